"""Follows streams: finds what was committed since the last poll, for many partitions at once.

A poll sends one request per stream, for its next number, however many partitions follow it. If a
checkpoint passed the position that was reached, or a partition moved to another stream, its
followers must resolve again. The cluster log is read at intervals, and at every poll while a
partition's last stream is sealed or a slice has an unknown epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from neve import runtime
from neve.bucket.layout import News
from neve.bucket.model import PartitionName
from neve.cluster.log import ClusterLog
from neve.cluster.state import StreamPart
from neve.errors import NeveError
from neve.log.tail import TailSlice
from neve.log.wal.reader import StreamTail, WalReader
from neve.settings import ReaderSettings
from neve.store.port import Store


class Watched(Protocol):
    """A partition whose streams are followed."""

    name: PartitionName
    topic_id: bytes

    @property
    def parts(self) -> tuple[StreamPart, ...]: ...


class StreamWatcher:
    """Follows the streams of some partitions."""

    def __init__(
        self,
        store: Store,
        settings: ReaderSettings,
        cluster: ClusterLog,
        sources: Sequence[Watched],
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._sources = {source.name: source for source in sources}
        self._poll_seconds = settings.cluster_poll_ms / 1000
        self._polled_at = 0.0
        self._known: dict[PartitionName, tuple[StreamPart, ...]] = {}
        # None if the stream could not be read: the next poll reads it from its checkpoint again.
        self._tails: dict[int, StreamTail | None] = {}
        self._behind = False

    async def poll(self) -> dict[PartitionName, News]:
        """Return what is new. At the first poll every partition must be resolved."""
        stale = await self._poll_cluster_log()
        fresh: dict[PartitionName, list[TailSlice]] = {}
        for incarnation in sorted(self._tails):
            before = self._tails[incarnation]
            more = None if before is None else await self._more(incarnation, before)
            if more is None:
                # Read before its followers resolve, so that no slice is missed in between.
                self._tails[incarnation] = await self._tail(incarnation)
                stale |= self._followers(incarnation)
                continue
            self._tails[incarnation] = more
            for name, row in self._slices(incarnation, more):
                fresh.setdefault(name, []).append(row)
        return {
            name: News(tuple(sorted(fresh.get(name, ()), key=_base_offset)), name in stale)
            for name in self._sources
            if name in fresh or name in stale
        }

    async def _poll_cluster_log(self) -> set[PartitionName]:
        """Read the cluster log if it is due. Returns the partitions whose streams changed."""
        leading = {part.incarnation for parts in self._known.values() for part in parts[-1:]}
        sealed = any(
            tail is not None and tail.sealed and incarnation in leading
            for incarnation, tail in self._tails.items()
        )
        due = not self._known or runtime.monotonic() - self._polled_at >= self._poll_seconds
        if not (due or sealed or self._behind):
            return set()
        await self._cluster.refresh()
        self._polled_at = runtime.monotonic()
        self._behind = False
        return await self._take_parts()

    async def _take_parts(self) -> set[PartitionName]:
        changed: set[PartitionName] = set()
        for name, source in self._sources.items():
            try:
                parts = source.parts
            except NeveError:
                changed.add(name)  # its topic is gone: resolving it raises the error
                parts = ()
            if self._known.get(name) != parts:
                changed.add(name)
                self._known[name] = parts
        needed = {part.incarnation for parts in self._known.values() for part in _open(parts)}
        kept = {number: tail for number, tail in self._tails.items() if number in needed}
        for incarnation in sorted(needed - kept.keys()):
            kept[incarnation] = await self._tail(incarnation)
        self._tails = kept
        return changed

    async def _tail(self, incarnation: int) -> StreamTail | None:
        try:
            return await WalReader(self._store, incarnation).tail()
        except NeveError:
            return None  # resolving one of its partitions raises the error

    async def _more(self, incarnation: int, before: StreamTail) -> StreamTail | None:
        try:
            return await WalReader(self._store, incarnation).more(before)
        except NeveError:
            return None

    def _followers(self, incarnation: int) -> set[PartitionName]:
        return {
            name
            for name, parts in self._known.items()
            if any(part.incarnation == incarnation for part in parts)
        }

    def _slices(
        self, incarnation: int, more: StreamTail
    ) -> Iterator[tuple[PartitionName, TailSlice]]:
        if not more.objects:
            return
        for name, source in self._sources.items():
            epochs = {part.epoch for part in self._known[name] if part.incarnation == incarnation}
            if not epochs:
                continue
            for item, entry in more.of(source.topic_id, name.partition):
                if entry.leader_epoch in epochs:
                    yield name, TailSlice(incarnation, item, entry)
                else:
                    self._behind = True


def _open(parts: tuple[StreamPart, ...]) -> list[StreamPart]:
    """Return the parts without an end: new records can still come from their streams.

    This includes streams of former leaders: a deposed leader commits until its stream is sealed,
    and the process that seals it may die. A part with an end costs no more requests.
    """
    return [part for part in parts if part.end is None]


def _base_offset(row: TailSlice) -> int:
    return row.entry.base_offset
