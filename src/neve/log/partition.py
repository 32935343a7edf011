"""The leader's log of one partition: appended, committed, tiered.

Offsets are assigned on append, in place. The high watermark moves when the WAL commits, and only
then do readers see a record. The untiered rest is a list of slices: in memory while the cache's
bound allows it, else by range from the object that holds them.

One task at a time tiers a partition; everything else here is an ordinary call.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from neve import runtime
from neve.errors import DamagedError, LostRangeError, NotFoundError, UnavailableError
from neve.log.fetch import fetch_range_checked
from neve.log.keys import manifest as manifest_keys
from neve.log.keys import segment_prefix
from neve.log.manifest.manifest import Manifest
from neve.log.restore import load_history_at
from neve.log.segment.history import History
from neve.log.tail import PartitionTail, is_skipped
from neve.log.tiering import SegmentWriter
from neve.log.wal import object as wal_object
from neve.log.wal.object import Slice, SliceMeta
from neve.log.wal.writer import Commit, WalWriter
from neve.records.batch import parse_header, patch, walk
from neve.settings import SegmentSettings
from neve.store.port import Buffer, Store

# A partition that others tier each time we look at it is left to them after so many looks.
LOOKS_MAX = 10


@dataclass(eq=False)
class HeldObject:
    """An object that holds slices of the tail. `data` is dropped when the cache is full."""

    key: str
    incarnation: int
    number: int | None
    data: memoryview | None


class HeldSlice(NamedTuple):
    """Some committed, untiered batches of the partition. `since` is when this process saw them."""

    held: HeldObject
    entry: Slice
    since: float


class Appended(NamedTuple):
    """What a producer is told once `commit` is decided."""

    base_offset: int
    last_offset: int
    commit: Commit


class _Cut(NamedTuple):
    """Where a segment ended within a slice: before this offset, so many bytes into the slice."""

    offset: int
    position: int


class PartitionLog:
    """One partition under one leader epoch.

    `resolve` finds out where the slices of a stream lie now, and tells by calling `moved`.
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
    ) -> None:
        self._store = store
        self._resolve = resolve
        self._writer = writer
        self._settings = settings
        # A little above segment.bytes: this pays for the manifest's checkpoints, so that tiering
        # takes at most three PUTs for each segment.bytes written, however fast they come.
        self._segment_bytes = settings.bytes + settings.bytes // (2 * settings.checkpoint_numbers)
        self._tiering = asyncio.Lock()
        self.topic_id = topic_id
        self.partition = partition
        self.epoch = epoch
        self.name = f"{topic}-{partition}"
        self.manifest = Manifest(store, manifest_keys(topic, topic_id, partition))
        self.segments = SegmentWriter(
            store,
            self.manifest,
            segment_prefix(topic, topic_id, partition),
            writer.incarnation,
            settings,
        )
        self.next_offset = 0
        self.high_watermark = 0
        self.tail: deque[HeldSlice] = deque()
        self.tail_bytes = 0
        # Producer state and epoch history at the tiered offset: where the next bundle starts from.
        self.tiered_history = History(self.name)
        self._history_at = 0
        self._last_cut = _Cut(0, 0)

    def recovered(self, tail: PartitionTail, history: History, tiered: int | None = None) -> None:
        """Take over what predecessors left: the log goes on where it ends.

        `history` holds at the offset `tiered`; at the manifest's tiered offset where none is given.
        """
        now = runtime.monotonic()
        held: dict[str, HeldObject] = {}
        for incarnation, item, entry in tail.slices:
            at = held.setdefault(
                item.key, HeldObject(item.key, incarnation, item.number, item.data)
            )
            self._hold(HeldSlice(at, entry, now))
        self.tiered_history = history
        self._history_at = self.tiered_offset if tiered is None else tiered
        self.next_offset = self.high_watermark = tail.end

    def _hold(self, row: HeldSlice) -> None:
        self.tail.append(row)
        self.tail_bytes += row.entry.length

    @property
    def tiered_offset(self) -> int:
        """Below this, a won manifest number covers everything."""
        return self.manifest.state.next

    def append(self, batch: bytearray | memoryview) -> Appended:
        """Assign offsets to one checked batch, in place, and hand it to the WAL."""
        header = parse_header(batch)
        base, last = self.next_offset, self.next_offset + header.last_offset_delta
        meta = SliceMeta(
            self.topic_id, self.partition, self.epoch, base, last, header.max_timestamp
        )
        patch(batch, base, self.epoch)
        commit = self._writer.append(meta, batch)
        self.next_offset = last + 1
        return Appended(base, last, commit)

    def committed(self, held: HeldObject, entry: Slice) -> None:
        """The WAL committed a slice of ours. Called in the order of offsets."""
        self._hold(HeldSlice(held, entry, runtime.monotonic()))
        self.high_watermark = entry.last_offset + 1

    def moved(self, incarnation: int, below: int, fresh: list[tuple[HeldObject, Slice]]) -> None:
        """What a stream's numbers below `below` and its older roll-ups held lies elsewhere now."""

        def stays(row: HeldSlice) -> bool:
            other = row.held.incarnation != incarnation
            return other or (row.held.number is not None and row.held.number >= below)

        since = self.tail[0].since if self.tail else runtime.monotonic()
        due = self.tiered_offset
        rows = [row for row in self.tail if stays(row)]
        rows += [HeldSlice(*row, since) for row in fresh if row[1].last_offset >= due]
        rows.sort(key=lambda row: row.entry.base_offset)
        self.tail = deque(rows)
        self._count_bytes()

    # -- tiering -----------------------------------------------------------------------------

    def tiering_due(self) -> bool:
        if not self.tail:
            return False
        age_ms = (runtime.monotonic() - self.tail[0].since) * 1000
        return self.tail_bytes >= self._segment_bytes or age_ms >= self._settings.ms

    async def tier(self) -> bool:
        """Turn the oldest committed records, segment.bytes of them, into a segment; if it did."""
        async with self._tiering:
            batches = await self._untiered_batches()
            if not batches:
                return False
            written = await self.segments.write(
                batches, self.tiered_history, tiered=self._history_at
            )
            if written is not None:
                self.tiered_history = written.history
                self._history_at = written.segment.last + 1
                self._drop_tiered()
            else:
                await self._adopt_history()
            await self.manifest.gather_runs()
            await self.manifest.checkpoint(self._settings.checkpoint_numbers)
            return written is not None

    async def _untiered_batches(self) -> list[Buffer]:
        """The oldest untiered batches, with the history brought to where they begin."""
        for _ in range(LOOKS_MAX):
            if self._history_at != self.tiered_offset:
                await self._adopt_history()
            try:
                return await self._oldest_batches()
            except (LostRangeError, DamagedError):
                await self.manifest.refresh()
                if self._history_at == self.tiered_offset:
                    raise
                # Others tiered what we looked for.
        raise UnavailableError(self.manifest.keys.prefix, "it is tiered faster than we can look")

    async def _oldest_batches(self) -> list[Buffer]:
        """The oldest untiered batches, up to the one that reaches segment.bytes.

        Also those below the log's start: no reader sees them, but their producers are remembered.
        """
        due, size = self.tiered_offset, 0
        rows: list[HeldSlice] = []
        for row in self.tail:
            if size >= self._segment_bytes:
                break
            if row.entry.last_offset >= due and not self._is_skipped(row.entry):
                rows.append(row)
                size += row.entry.length - self._tiered_of(row)
        datas = await runtime.gather(*(self._data_if_needed(row) for row in rows))
        return self._cut(rows, datas, due)

    def _is_skipped(self, entry: Slice) -> bool:
        return is_skipped(self.manifest.state.skips, entry.base_offset, entry.last_offset + 1)

    async def _data_if_needed(self, row: HeldSlice) -> memoryview:
        try:
            return await self._data(row)
        except (DamagedError, LostRangeError):
            if row.entry.last_offset < self.manifest.state.start:
                return memoryview(b"")  # deleted for readers anyway
            raise

    def _cut(self, rows: list[HeldSlice], datas: list[memoryview], due: int) -> list[Buffer]:
        batches: list[Buffer] = []
        size = 0
        for row, data in zip(rows, datas, strict=True):
            for position, header in walk(data, key=row.held.key):
                if size >= self._segment_bytes:
                    self._last_cut = _Cut(due, position)
                    return batches
                if header.last_offset >= due:
                    self._check_that_it_joins(due, header.base_offset)
                    batches.append(data[position : position + header.size])
                    size += header.size
                    due = header.next_offset  # a slice that moved may bring more than was asked
        return batches

    def _check_that_it_joins(self, due: int, base: int) -> None:
        """A segment with a hole would hide committed records for ever."""
        state = self.manifest.state
        if not is_skipped(state.skips, max(due, state.start), base):
            raise LostRangeError(
                f"{self.name}: no slice holds offsets {due} to {base - 1}: "
                "run `neve storage verify`"
            )

    async def _data(self, row: HeldSlice) -> memoryview:
        """A slice's bytes; read again from wherever it is now if it moved while we looked."""
        resolved = False
        while True:
            try:
                return await read_slice(self._store, row)
            except NotFoundError as missing:
                found = self._holding(row.entry.base_offset)
                if (found is None or found.held is row.held) and not resolved:
                    # Somebody's checkpoint, or a late one of ours, moved it: look where it is now.
                    await self._resolve(row.held.incarnation)
                    resolved, found = True, self._holding(row.entry.base_offset)
                if found is None or found.held is row.held:
                    raise LostRangeError(
                        f"{self.name}: {row.held.key} is gone, and nothing else holds offset "
                        f"{row.entry.base_offset}: run `neve storage verify`"
                    ) from missing
                row = found

    def _holding(self, offset: int) -> HeldSlice | None:
        for row in self.tail:
            if row.entry.base_offset <= offset <= row.entry.last_offset:
                return row
        return None

    def _drop_tiered(self) -> None:
        due = self.tiered_offset
        while self.tail and self.tail[0].entry.last_offset < due:
            self.tail.popleft()
        self._count_bytes()

    def _count_bytes(self) -> None:
        self.tail_bytes = sum(row.entry.length - self._tiered_of(row) for row in self.tail)

    def _tiered_of(self, row: HeldSlice) -> int:
        """How many bytes of a slice are in a segment already: those before our last cut."""
        offset, position = self._last_cut
        inside = row.entry.base_offset < offset <= row.entry.last_offset
        return min(position, row.entry.length) if inside and offset == self.tiered_offset else 0

    async def _adopt_history(self) -> None:
        """Another process tiered for us: its last bundle has the state at the tiered offset."""
        self.tiered_history, self._history_at = await load_history_at(
            self._store, self.manifest, self.name
        )
        self._drop_tiered()


async def read_slice(store: Store, row: HeldSlice) -> memoryview:
    """A slice from memory, or by range and checked."""
    held, entry = row.held, row.entry
    if held.data is not None:
        return held.data[entry.position : entry.end]
    return await fetch_range_checked(
        store,
        held.key,
        entry.position,
        entry.end,
        lambda data: wal_object.slice_bytes(entry, data, held.key),
    )
