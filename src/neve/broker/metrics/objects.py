"""Count the objects that are written to the bucket and deleted from it, by kind.

The counting store wraps the whole stack, so that an object counts once, however often its upload
was retried. The deletions include those of retention.
"""

from __future__ import annotations

from collections.abc import Iterator

from neve.log import keys
from neve.serving.text import several
from neve.store.port import Buffer, Store
from neve.store.wrapper import Wrapper

KINDS = (
    "wal",
    "wal-checkpoint",
    "rollup",
    "segment",
    "index",
    "manifest",
    "cluster",
    "heartbeat",
    "other",
)


def kind_of(key: str) -> str:
    """Return the kind of an object, from its key."""
    incarnation = keys.stream_of(key)
    if incarnation is not None:
        stream = keys.wal_stream(incarnation)
        if stream.number_of(key) is not None:
            return "wal"
        return "wal-checkpoint" if stream.checkpoint_of(key) is not None else "rollup"
    segment = keys.segment_name(key)
    if segment is not None:
        return "segment" if segment.suffix == "kfs" else "index"
    if keys.partition_of(key) is not None:
        return "manifest"
    if keys.heartbeat_of(key) is not None:
        return "heartbeat"
    return "cluster" if key.startswith(keys.CLUSTER_LOG_PREFIX) else "other"


class ObjectCounts(Wrapper):
    """Counts the writes and deletions that succeeded."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.written = dict.fromkeys(KINDS, 0)
        self.written_bytes = dict.fromkeys(KINDS, 0)
        self.deleted = dict.fromkeys(KINDS, 0)

    async def put(self, key: str, data: Buffer) -> None:
        await self.inner.put(key, data)
        self._wrote(key, len(data))

    async def create(self, key: str, data: Buffer) -> None:
        await self.inner.create(key, data)
        self._wrote(key, len(data))

    async def delete(self, key: str) -> None:
        await self.inner.delete(key)
        self.deleted[kind_of(key)] += 1

    def _wrote(self, key: str, size_bytes: int) -> None:
        kind = kind_of(key)
        self.written[kind] += 1
        self.written_bytes[kind] += size_bytes


def object_view(counts: ObjectCounts) -> Iterator[str]:
    for name, by_kind in (
        ("neve_objects_written_total", counts.written),
        ("neve_object_bytes_written_total", counts.written_bytes),
        ("neve_objects_deleted_total", counts.deleted),
    ):
        yield several(name, [((kind,), count) for kind, count in by_kind.items()])
