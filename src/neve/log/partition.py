"""The leader's log of one partition: appending, committing and tiering records.

Append checks the producer's sequence and assigns offsets in place. When the WAL commits, the high
watermark moves, and only then can readers see a record. Committed records that are not tiered yet
are a list of slices (`log/untiered.py`). `recent` lists the slices in memory, tiered or not.

One task at a time tiers a partition. Most other methods are synchronous.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple, TypeAlias

from neve import runtime
from neve.errors import DamagedError, InvalidError, LostRangeError, NeveError, UnavailableError
from neve.log.cached_slice import CachedObject, CachedSlice
from neve.log.keys import manifest as manifest_keys
from neve.log.keys import segment_prefix
from neve.log.leader_epochs import EpochEnd, end_of_epoch
from neve.log.manifest.manifest import Manifest
from neve.log.manifest.records import Change, Skip
from neve.log.manifest.skips import OffsetRange
from neve.log.manifest.state import ManifestState
from neve.log.producers import ProducerMemory, Producers
from neve.log.restore import load_history
from neve.log.segment.history import History
from neve.log.segment.sections import EpochStart, ProducerEntry
from neve.log.segment.state_table import is_internal
from neve.log.tail import PartitionTail
from neve.log.tiering import SegmentWriter
from neve.log.untiered import Untiered
from neve.log.wal.object import Slice, SliceMeta
from neve.log.wal.writer import Commit, WalWriter
from neve.records.batch import BatchHeader, parse_header, patch, walk
from neve.settings import ProducerSettings, SegmentSettings
from neve.store.port import Buffer, Store

__all__ = ["Appended", "CachedObject", "CachedSlice", "PartitionLog"]

# Attempts of tiering while other processes tier the same partition.
TIERING_ATTEMPTS_MAX = 10

Watcher: TypeAlias = Callable[["PartitionLog"], None]


class Appended(NamedTuple):
    """The result of an append. A duplicate has the offsets and commit of its first append."""

    base_offset: int
    last_offset: int
    commit: Commit
    duplicate: bool = False


class PartitionLog:
    """One partition under one leader epoch.

    `resolve` finds the objects that hold a stream's slices now, and calls `moved` with the result.
    """

    def __init__(
        self,
        store: Store,
        writer: WalWriter,
        settings: SegmentSettings,
        *,
        topic: str,
        topic_id: bytes,
        partition: int,
        epoch: int,
        resolve: Callable[[int], Awaitable[None]],
        producers: ProducerSettings | None = None,
        producer_memory: ProducerMemory | None = None,
    ) -> None:
        self._store = store
        self._writer = writer
        self._producer_settings = producers or ProducerSettings()
        self._producer_memory = producer_memory
        self._tiering = asyncio.Lock()
        self._watchers: dict[Watcher, None] = {}
        self._recovered_commit: Commit | None = None
        self.topic_id = topic_id
        self.partition = partition
        self.epoch = epoch
        self.name = f"{topic}-{partition}"
        self.is_internal = is_internal(topic)
        self.closed: NeveError | None = None
        self._is_over = False  # closed for good
        self.next_offset = 0
        self.high_watermark = 0
        self.recent: deque[CachedSlice] = deque()
        self.producers = self._known_producers(())
        self.epochs: list[EpochStart] = [EpochStart(epoch, 0)]
        self.manifest = Manifest(store, manifest_keys(topic, topic_id, partition))
        self.untiered = Untiered(store, self.manifest, self.name, self.recent, resolve)
        self.segments = SegmentWriter(
            store,
            self.manifest,
            segment_prefix(topic, topic_id, partition),
            writer.incarnation,
            settings,
        )
        # Producers, epochs and state table at `_history_at`, from which the next bundle is built.
        self.tiered_history = History(self.name, state=() if self.is_internal else None)
        self._history_at = 0
        self.configure(settings)

    def configure(self, settings: SegmentSettings) -> None:
        """Use these settings for tiering from now on."""
        self._settings = settings
        # A little more than segment.bytes, to make up for the manifest's checkpoints: tiering
        # takes at most three PUTs per segment.bytes written, however fast records arrive.
        self._segment_bytes = settings.bytes + settings.bytes // (2 * settings.checkpoint_numbers)
        self.segments.configure(settings)

    def recovered(
        self,
        tail: PartitionTail,
        history: History,
        tiered: int | None = None,
        *,
        end: History | None = None,
        in_memory: Sequence[tuple[CachedObject, Slice]] = (),
    ) -> None:
        """Start from the state that previous leaders left, and append at the end of `tail`.

        `history` is the history at offset `tiered`, by default the manifest's tiered offset. `end`
        is the history at the end of the tail, by default the same, and `in_memory` are the slices
        of the tail whose bytes were kept in memory.
        """
        now = runtime.monotonic()
        objects: dict[str, CachedObject] = {}
        for incarnation, item, entry in tail.slices:
            # Without the bytes that were read with small objects: no cache counts them.
            at = objects.setdefault(
                item.key, CachedObject(item.key, incarnation, item.number, None)
            )
            self.untiered.hold(CachedSlice(at, entry, now))
        for kept, entry in in_memory:
            self._remember(CachedSlice(kept, entry, now))
        self.tiered_history = history
        self._history_at = self.tiered_offset if tiered is None else tiered
        self.next_offset = self.high_watermark = tail.end
        at_end = history if end is None else end
        self.producers = self._known_producers(at_end.producers.entries())
        self.epochs = list(at_end.epochs.starts)
        if not self.epochs or self.epochs[-1].epoch < self.epoch:
            self.epochs.append(EpochStart(self.epoch, tail.end))

    def _known_producers(self, entries: Sequence[ProducerEntry]) -> Producers:
        return Producers(entries, self._producer_settings, memory=self._producer_memory)

    # -- offsets -----------------------------------------------------------------------------

    @property
    def tiered_offset(self) -> int:
        """The offset below which no record is left to tier, as of the manifest."""
        return self.manifest.state.next

    @property
    def start_offset(self) -> int:
        """The first offset that readers may request. Retention and DeleteRecords move it."""
        return self.manifest.state.start

    @property
    def tail(self) -> deque[CachedSlice]:
        """The committed slices that are not completely in segments."""
        return self.untiered.rows

    @property
    def tail_bytes(self) -> int:
        return self.untiered.bytes

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Return the end of a leader epoch's records, as in Kafka's OffsetForLeaderEpoch."""
        return end_of_epoch(
            self.epochs, epoch, start_offset=self.start_offset, end_offset=self.next_offset
        )

    @property
    def state_floor(self) -> int:
        """The offset above which retention must not move the log's start.

        An internal partition keeps its last two segments: if the last bundle is lost, its state
        table is rebuilt from the segment before. For other partitions this is the high watermark.
        """
        state = self.manifest.state
        if not self.is_internal:
            return self.high_watermark
        last_two = state.loose[-2:]
        if len(last_two) < 2 and state.runs:
            return state.runs[-1].base
        return last_two[0].base if last_two else state.next

    # -- appending, committing ---------------------------------------------------------------

    def append(
        self,
        batch: bytearray | memoryview,
        header: BatchHeader | None = None,
        *,
        admitted: bool = False,
    ) -> Appended:
        """Assign offsets to one checked batch, in place, and hand it to the WAL.

        `header` is the batch's header, if the caller has parsed it. For a duplicate, returns the
        first append's offsets and commit. For an idempotent producer, raises
        OutOfOrderSequenceError, DuplicateSequenceError or ProducerFencedError. Raises FullError if
        the WAL has no room and the caller must wait, unless it has done so (`admitted`).
        """
        if self.closed is not None:
            raise self.closed
        if header is None:
            header = parse_header(batch)
        idempotent = header.producer_id >= 0
        if idempotent:
            seen = self.producers.check(header)
            if seen is not None:
                commit = self._long_committed() if seen.commit is None else seen.commit
                return Appended(seen.base_offset, seen.last_offset, commit, duplicate=True)
        base = self.next_offset
        last = base + header.last_offset_delta
        patch(batch, base, self.epoch)
        meta = SliceMeta(
            self.topic_id, self.partition, self.epoch, base, last, header.max_timestamp
        )
        commit = self._writer.append(meta, batch, admitted=admitted)
        self.next_offset = last + 1
        if idempotent:
            self.producers.appended(header, base, commit)
        return Appended(base, last, commit)

    def _long_committed(self) -> Commit:
        if self._recovered_commit is None:
            self._recovered_commit = Commit()
            self._recovered_commit.succeed()
        return self._recovered_commit

    def committed(self, cached: CachedObject, entry: Slice) -> None:
        """Take in a slice that the WAL committed. The WAL calls this in the order of offsets."""
        row = CachedSlice(cached, entry, runtime.monotonic())
        self.untiered.hold(row)
        self._remember(row)
        self.high_watermark = entry.last_offset + 1
        if self._watchers:
            self._notify()

    def _remember(self, row: CachedSlice) -> None:
        if row.cached.data is not None:  # None if the cache had no room for it
            self.recent.append(row)
            row.cached.kept_in(self.recent)

    def watch(self, callback: Watcher) -> None:
        """Call back at every commit, and once when the log is closed, until `unwatch`."""
        self._watchers[callback] = None

    def unwatch(self, callback: Watcher) -> None:
        self._watchers.pop(callback, None)

    def _notify(self) -> None:
        for watcher in tuple(self._watchers):
            try:
                watcher(self)
            except Exception as failure:  # a reader's bug must not end the stream
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"a watcher of {self.name} failed", "exception": failure}
                )

    def stop(self, error: NeveError) -> None:
        """Reject appends and reads until `resume`. Batches that were appended can still commit.

        Watchers are not notified: they learn from `close` or a commit how this ends.
        """
        if self.closed is None:
            self.closed = error

    def resume(self) -> None:
        """Accept appends again after `stop`."""
        self.closed = None

    def close(self, error: NeveError) -> None:
        """Reject appends from now on, because the log is no longer led, and notify watchers."""
        if self._is_over:
            return
        self._is_over = True
        self.closed = error
        self._notify()
        self._watchers.clear()
        self.producers.uncount()

    def moved(self, incarnation: int, below: int, fresh: list[tuple[CachedObject, Slice]]) -> None:
        """Replace the rows of a stream's numbers below `below` and of its roll-ups by `fresh`."""
        self.untiered.moved(incarnation, below, fresh)

    async def give_up(self, streams: Collection[int], reason: str) -> list[OffsetRange]:
        """Record untiered records that lie in none of these streams as lost.

        Returns the offsets. The other streams were given up: see `neve cluster abandon-wal`.
        """
        lost: list[OffsetRange] = []

        def make(_: ManifestState) -> Sequence[Change]:
            lost[:] = self.untiered.outside(streams)
            at_ms = runtime.now_ms()
            return [Skip(first, end - 1, at_ms, reason) for first, end in lost]

        async with self._tiering:
            await self.manifest.refresh()
            await self.manifest.change(make)
            self.untiered.keep_only(streams)
        return lost

    # -- tiering -----------------------------------------------------------------------------

    def tiering_due(self) -> bool:
        rows = self.untiered.rows
        if not rows:
            return False
        age_ms = (runtime.monotonic() - rows[0].since) * 1000
        return self.untiered.bytes >= self._segment_bytes or age_ms >= self._settings.ms

    @property
    def next_segment_bytes(self) -> int:
        """The size in bytes of a segment that would be tiered now."""
        return min(self.untiered.bytes, self._segment_bytes)

    def tiering_bytes(self, segment_bytes: int) -> int:
        """The memory in bytes that tiering such a segment takes: slices are read as a whole.

        If slices move during the read, it may take a roll-up's slice more.
        """
        return self.untiered.bytes_to_read(segment_bytes) + segment_bytes

    async def tier(self, segment_bytes: int | None = None) -> bool:
        """Tier the oldest committed records as one segment of about this size, or segment.bytes.

        Returns True if a segment was written; False if there is nothing to tier, or another process
        tiered these records.
        """
        async with self._tiering:
            target = self._segment_bytes if segment_bytes is None else segment_bytes
            batches = await self._untiered_batches(target)
            if not batches:
                return False
            self.producers.expire()
            written = await self.segments.write(
                batches, self.tiered_history, tiered=self._history_at, known=self.producers
            )
            if written is not None:
                self.tiered_history = written.history
                self._history_at = written.segment.last + 1
                self.untiered.drop_tiered()
            else:
                await self._adopt_history()
            await self.manifest.gather_runs()
            await self.manifest.checkpoint(self._settings.checkpoint_numbers)
            return written is not None

    async def _untiered_batches(self, target_bytes: int | None) -> list[Buffer]:
        """Return the oldest untiered batches, and bring the history to the offset of the first."""
        for _ in range(TIERING_ATTEMPTS_MAX):
            if self._history_at != self.tiered_offset:
                await self._adopt_history()
            try:
                return await self.untiered.oldest_batches(target_bytes)
            except (LostRangeError, DamagedError):
                await self.manifest.refresh()
                if self._history_at == self.tiered_offset:
                    raise
                # Another process tiered these records during the read.
        raise UnavailableError(
            self.manifest.keys.prefix,
            "its untiered records moved during each attempt to read them: try again",
        )

    async def _adopt_history(self) -> None:
        """Load the history at the tiered offset after another process tiered the partition."""
        self.tiered_history, self._history_at = await load_history(
            self._store, self.manifest, self.name
        )
        self.untiered.drop_tiered()

    async def load_state(self) -> dict[bytes, bytes]:
        """Return an internal partition's state table, with all committed records applied.

        Raises InvalidError if the partition is not internal.
        """
        if self.tiered_history.state is None:
            raise InvalidError(f"{self.name} is not an internal partition: it keeps no table")
        async with self._tiering:
            batches = await self._untiered_batches(None)
            assert self.tiered_history.state is not None
            table = self.tiered_history.state.copy()
        for run in batches:
            view = memoryview(run)
            for position, header in walk(view, key=self.name):
                if not header.is_control:
                    table.apply(view[position : position + header.size], self.name)
        return table.values()
