"""A partition's tail: the committed records that are not in segments yet, from all its streams.

The order of reading is essential: streams first (checkpoint, then numbers), the newest manifest
**afterwards**. In the other order, a leader that tiers and trims in between would hide records, and
offsets would be assigned twice. A gap, or an end below the next offset in a stream's checkpoint,
means that records moved during the read: resolve again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from neve import runtime
from neve.log.manifest.skips import is_skipped, past_skips
from neve.log.manifest.state import ManifestState
from neve.log.wal.object import Slice
from neve.log.wal.reader import StreamTail, TailObject, WalReader
from neve.settings import PrefetchSettings
from neve.store.port import Store


class StreamPart(Protocol):
    """The numbers of a stream that may hold a partition's records of one leader epoch."""

    @property
    def epoch(self) -> int: ...
    @property
    def incarnation(self) -> int: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int | None: ...
    @property
    def end_offset(self) -> int | None: ...


class TailSlice(NamedTuple):
    """Some batches of the partition, in an object of a stream."""

    incarnation: int
    item: TailObject
    entry: Slice

    @property
    def key(self) -> str:
        return self.item.key

    def in_memory(self) -> memoryview | None:
        """Return the batches if they were read together with the object, else None."""
        data = self.item.data
        return None if data is None else data[self.entry.position : self.entry.end]


class PartitionTail(NamedTuple):
    """Slices in the order of their offsets, from the tiered offset to `end`."""

    slices: tuple[TailSlice, ...]
    end: int


async def read_streams(
    store: Store,
    incarnations: Iterable[int],
    *,
    whole: bool = False,
    prefetch: PrefetchSettings | None = None,
) -> dict[int, StreamTail]:
    """Read the tails of several streams concurrently."""
    wanted = sorted(set(incarnations))
    tails = await runtime.gather(
        *(WalReader(store, incarnation, prefetch).tail(whole=whole) for incarnation in wanted)
    )
    return dict(zip(wanted, tails, strict=True))


def assemble(
    topic_id: bytes,
    partition: int,
    parts: Sequence[StreamPart],
    tails: Mapping[int, StreamTail],
    manifest: ManifestState,
) -> PartitionTail | None:
    """Return one partition's tail, from streams and a manifest read after them.

    Returns None if records moved in between: resolve again. The tail begins at the tiered offset
    even if the log starts above it: a new leader needs deleted records for the partition's history.
    """
    next_offset = manifest.next
    kept: list[TailSlice] = []
    for row in committed_slices(topic_id, partition, parts, tails):
        if row.entry.last_offset < next_offset:
            continue
        if not _given_up(manifest, next_offset, row.entry.base_offset):
            return None
        kept.append(row)
        next_offset = row.entry.last_offset + 1
    promised = promised_end(topic_id, partition, parts, tails)
    if promised > next_offset:
        if not _given_up(manifest, next_offset, promised):
            return None
        next_offset = promised
    # Offsets that were given up at the end were assigned, and are not assigned again.
    next_offset = past_skips(manifest.skips, next_offset)
    return PartitionTail(tuple(kept), max(next_offset, manifest.start))


def committed_slices(
    topic_id: bytes,
    partition: int,
    parts: Sequence[StreamPart],
    tails: Mapping[int, StreamTail],
) -> list[TailSlice]:
    """Return the slices of a partition in its streams, in the order of their first offsets."""
    found = (row for part in parts for row in _slices(topic_id, partition, part, tails))
    return sorted(found, key=lambda row: row.entry.base_offset)


def promised_end(
    topic_id: bytes,
    partition: int,
    parts: Sequence[StreamPart],
    tails: Mapping[int, StreamTail],
) -> int:
    """Return the greatest next offset that the partition's streams are known to reach.

    The checkpoints of the streams keep it, and so does the record of a leader's release.
    """
    released = [part.end_offset for part in parts if part.end_offset is not None]
    found = ((part, tails[part.incarnation].ends.get((topic_id, partition))) for part in parts)
    ends = (end.next for part, end in found if end is not None and end.epoch == part.epoch)
    return max([*released, *ends], default=0)


def _slices(
    topic_id: bytes, partition: int, part: StreamPart, tails: Mapping[int, StreamTail]
) -> Iterable[TailSlice]:
    for item, entry in tails[part.incarnation].of(topic_id, partition):
        if entry.leader_epoch != part.epoch:
            continue
        outside = item.number is not None and (
            item.number < part.start or (part.end is not None and item.number >= part.end)
        )
        if not outside:
            yield TailSlice(part.incarnation, item, entry)


def _given_up(manifest: ManifestState, first: int, end: int) -> bool:
    """Return whether all offsets from first up to end are below the log's start or skipped."""
    return is_skipped(manifest.skips, max(first, manifest.start), end)
