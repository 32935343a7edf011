"""Finds objects that no live partition and no needed stream refers to.

These are objects of topics that no longer exist, of streams that are no longer needed and of
probes that crashed, and keys that Neve never writes. Listings are processed at once and not kept.
"""

from __future__ import annotations

from collections.abc import Iterable

from neve import runtime
from neve.bucket.verify.context import Stray, VerifyContext
from neve.bucket.verify.findings import Finding, Remedy, Severity
from neve.bucket.verify.series import unknown_key
from neve.cluster.state import ClusterState
from neve.errors import DamagedError, UnsupportedError
from neve.log.keys import TOPICS_PREFIX, WAL_PREFIX, partition_of, stream_of, wal_stream
from neve.log.wal.checkpoint import read_checkpoint
from neve.log.wal.reader import WalReader
from neve.store.port import ObjectInfo

PROBE_PREFIX = "probe/"
# No probe takes this long, so an older probe object was left by one that crashed.
PROBE_AGE_MS = 3_600_000


def streams_to_check(state: ClusterState) -> list[int]:
    """Return the streams that a partition needs or that a live process may be writing."""
    alive = {broker.incarnation for broker in state.brokers.values() if broker.live}
    return sorted({*state.streams(), *alive})


class UnreferencedObjects:
    """Finds objects under Neve's prefixes without a live partition or a needed stream."""

    def __init__(self, context: VerifyContext) -> None:
        self._context = context

    async def check(self) -> None:
        self._context.report.begin("everything else")
        await self._context.watch(self)
        await self._note_deleted_topics()

    async def _note_deleted_topics(self) -> None:
        for topic in (await self._context.cluster.refresh()).deleted.values():
            self._context.report.add(
                Finding(
                    severity=Severity.NOTE,
                    key=f"{TOPICS_PREFIX}{topic.name}",
                    what=f"topic {topic.name} ({topic.topic_id}) is deleted, and its objects are "
                    "still to be removed",
                )
            )

    async def strays(self) -> list[Stray]:
        topics = await self._context.store.list(TOPICS_PREFIX)
        wal = await self._context.store.list(WAL_PREFIX)
        probes = await self._context.store.list(PROBE_PREFIX)
        state = await self._context.cluster.refresh()
        return [
            *self._of_topics(topics, state),
            *await self._of_streams(wal, state),
            *self._of_probes(probes),
        ]

    def _of_topics(self, rows: Iterable[ObjectInfo], state: ClusterState) -> list[Stray]:
        found: list[Stray] = []
        for row in rows:
            name = partition_of(row.key)
            if name is None:
                found.append(unknown_key(row, TOPICS_PREFIX))
                continue
            topic_id = name.topic_id.hex()
            topic = state.topics.get(topic_id)
            if topic_id in state.deleted:
                continue  # the sweep of deleted topics removes its whole prefix
            if topic is not None and not topic.partitions:
                found.append(_of_an_import(row, topic.name))
            elif topic is None or name.partition >= len(topic.partitions):
                found.append(_of_no_topic(row))
        return found

    async def _of_streams(self, rows: Iterable[ObjectInfo], state: ClusterState) -> list[Stray]:
        checked = set(streams_to_check(state))
        found: list[Stray] = []
        retired: dict[int, list[ObjectInfo]] = {}
        for row in rows:
            incarnation = stream_of(row.key)
            if incarnation is None or incarnation >= self._context.cluster.view.position:
                found.append(unknown_key(row, WAL_PREFIX))
            elif incarnation not in checked:
                retired.setdefault(incarnation, []).append(row)
        for incarnation, kept in sorted(retired.items()):
            found += await self._of_retired(incarnation, kept)
        return found

    async def _of_retired(self, incarnation: int, rows: list[ObjectInfo]) -> list[Stray]:
        """Return the objects of a retired stream, except its end seal and the checkpoint there."""
        keys = wal_stream(incarnation)
        if len(rows) <= 1:
            return []
        try:
            end = await WalReader(self._context.store, incarnation).end()
            number, checkpoint = end or (0, 0)
            payload = await read_checkpoint(self._context.store, keys, checkpoint)
        except (DamagedError, UnsupportedError):
            return []  # nothing reads this stream any more
        if end is None:
            return []  # never sealed: its process may just be slow
        named = payload.rollups if payload is not None else ()
        kept = {keys.number(number), keys.checkpoint(number)}
        # Before the collector is done with a stream, its objects are expected; afterwards strays.
        collected = checkpoint == number and not any(row.key in named for row in rows)
        severity = Severity.LEFTOVER if collected else Severity.NOTE
        return [
            Stray(
                row,
                Finding(
                    severity=severity,
                    key=row.key,
                    what=f"stream {incarnation} is over, and all its records are in segments",
                    do="harmless; the collector or --repair removes it",
                    remedy=Remedy.RETIRE_STREAM,
                    incarnation=incarnation,
                ),
            )
            for row in rows
            if row.key not in kept
        ]

    def _of_probes(self, rows: Iterable[ObjectInfo]) -> list[Stray]:
        old = runtime.now_ms() - PROBE_AGE_MS
        return [
            Stray(
                row,
                Finding(
                    severity=Severity.LEFTOVER,
                    key=row.key,
                    what="a probe of the store's rules left it behind",
                    do="harmless; --repair removes it",
                    remedy=Remedy.REMOVE_PROBE,
                ),
            )
            for row in rows
            if row.modified_ms <= old
        ]


def _of_an_import(row: ObjectInfo, topic: str) -> Stray:
    """Return a stray of a topic without partitions.

    Only an import creates such a topic. It adds all partitions when it ends.
    """
    return Stray(
        row,
        Finding(
            severity=Severity.NOTE,
            key=row.key,
            what=f"topic {topic} has no partitions yet: its import is under way, or was killed",
            do="run `neve import kafscale` again to end it, or delete the topic",
        ),
    )


def _of_no_topic(row: ObjectInfo) -> Stray:
    return Stray(
        row,
        Finding(
            severity=Severity.ORPHAN,
            key=row.key,
            what="it belongs to no topic that the cluster has or had to clean up",
            do="no manifest can doom it, so it is never removed by itself: inspect it, then "
            "remove it by hand",
        ),
    )
