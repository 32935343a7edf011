"""The committed records of one partition that are not in segments yet.

They are a list of slices, each in memory or in a range of a stream's object. Roll-ups move slices:
the node calls `moved` for its own roll-ups, and if an object of another process is gone, the stream
is resolved again. A slice that cannot be found raises an error; no slice is silently left out.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import NamedTuple, TypeAlias

from neve import runtime
from neve.errors import DamagedError, LostRangeError, NotFoundError, UnavailableError
from neve.log.cached_slice import CachedObject, CachedSlice, read_slice
from neve.log.manifest.manifest import Manifest
from neve.log.manifest.skips import (
    OffsetRange,
    clipped_skips,
    crosses_leap,
    is_skipped,
    without,
)
from neve.log.segment import kfs
from neve.log.wal.object import Slice
from neve.records.batch import walk
from neve.store.port import Buffer, Store

WALKED_AT_ONCE = 1_000
"""Batches examined before other tasks may run: a segment may have 100,000s of tiny batches."""

READS_MAX = 10
"""Attempts to read the oldest slices while they move."""


_Resolved: TypeAlias = dict[int, DamagedError | None]
"""Streams that were resolved during one read; with the error of one that is damaged."""


class _Cut(NamedTuple):
    """Where a segment ended within a slice: before `offset`, at byte `position` of the slice."""

    offset: int
    position: int


class Untiered:
    """The slices from the manifest's tiered offset to the high watermark, in order.

    `recent` is the log's list of slices in memory, which are preferred. `resolve` finds the objects
    that hold a stream's slices now, and calls `moved` with the result.
    """

    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        name: str,
        recent: deque[CachedSlice],
        resolve: Callable[[int], Awaitable[None]],
    ) -> None:
        self._store = store
        self._manifest = manifest
        self._name = name
        self._recent = recent
        self._resolve = resolve
        self._last_cut = _Cut(0, 0)
        self.rows: deque[CachedSlice] = deque()
        self.bytes = 0

    async def resolve(self, incarnation: int) -> None:
        """Find the objects that hold a stream's slices now, because one of its objects is gone."""
        await self._resolve(incarnation)

    def hold(self, row: CachedSlice) -> None:
        self.rows.append(row)
        self.bytes += row.entry.length

    def moved(
        self, incarnation: int, below: int, fresh: Sequence[tuple[CachedObject, Slice]]
    ) -> None:
        """Replace the rows of a stream's numbers below `below` and of its roll-ups by `fresh`."""

        def stays(row: CachedSlice) -> bool:
            other = row.cached.incarnation != incarnation
            return other or (row.cached.number is not None and row.cached.number >= below)

        for cached, _ in fresh:
            cached.drop()  # bytes that were read with a directory: no cache counts them
        since = self.rows[0].since if self.rows else runtime.monotonic()
        next_offset = self._manifest.state.next
        rows = [row for row in self.rows if stays(row)]
        rows += [CachedSlice(*row, since) for row in fresh if row[1].last_offset >= next_offset]
        rows.sort(key=lambda row: row.entry.base_offset)
        self.rows = deque(rows)
        self._count_bytes()

    def outside(self, streams: Collection[int]) -> list[OffsetRange]:
        """Return the untiered offsets whose slices lie in none of these streams.

        Without those that are below the log's start or skipped.
        """
        state = self._manifest.state
        first = max(state.next, state.start)
        lost: list[OffsetRange] = []
        for row in self.rows:
            low, high = max(first, row.entry.base_offset), row.entry.last_offset + 1
            if row.cached.incarnation not in streams and low < high:
                lost += without(low, high, clipped_skips(state.skips, low, high))
        return lost

    def keep_only(self, streams: Collection[int]) -> None:
        """Forget the slices of all other streams: their records were given up."""
        self.rows = deque(row for row in self.rows if row.cached.incarnation in streams)
        self._count_bytes()

    def drop_tiered(self) -> None:
        next_offset = self._manifest.state.next
        while self.rows and self.rows[0].entry.last_offset < next_offset:
            self.rows.popleft()
        self._count_bytes()

    def _count_bytes(self) -> None:
        self.bytes = sum(row.entry.length - self._tiered_of(row) for row in self.rows)

    def _tiered_of(self, row: CachedSlice) -> int:
        """Return how many bytes of a slice are already in a segment: those before the last cut."""
        offset, position = self._last_cut
        inside = row.entry.base_offset < offset <= row.entry.last_offset
        if not inside or offset != self._manifest.state.next:
            return 0
        return min(position, row.entry.length)

    # -- reading -----------------------------------------------------------------------------

    def bytes_to_read(self, target_bytes: int) -> int:
        """Return the size of the slices that `oldest_batches` takes, each of them as a whole."""
        rows = self._oldest_rows(self._manifest.state.next, target_bytes)
        return sum(row.entry.length for row in rows)

    async def oldest_batches(self, target_bytes: int | None) -> list[Buffer]:
        """Return the oldest untiered batches, up to the one that reaches `target_bytes`, or all.

        With `target_bytes`, the batches always fit one segment. Adjacent batches are one buffer.
        Includes batches below the log's start: readers do not see them, but their producers must be
        remembered.
        """
        next_offset = self._manifest.state.next
        resolved: _Resolved = {}
        for _ in range(READS_MAX):
            rows = self._oldest_rows(next_offset, target_bytes)
            try:
                datas = await self._datas(rows, resolved)
            except NotFoundError as missing:
                gone = missing.key  # not the error: its traceback holds what was read
            else:
                return await self._cut(rows, datas, next_offset, target_bytes)
            # A roll-up joins slices. Start again with those that exist now, instead of reading a
            # joined slice once for each slice that it replaces.
            await self._find_moved([row for row in rows if row.key == gone], resolved)
            self._check_that_all_are_held(next_offset, rows[-1].entry.last_offset)
        raise UnavailableError(self._name, "its slices moved at each attempt to read them")

    def _oldest_rows(self, next_offset: int, target_bytes: int | None) -> list[CachedSlice]:
        """Return the rows that hold the oldest batches, up to `target_bytes`, or all.

        With `target_bytes`, they end before a leap, so that a segment never spans one.
        """
        size = 0
        rows: list[CachedSlice] = []
        for row in self._nearest_rows(next_offset):
            if target_bytes is not None and (size >= target_bytes or self._leapt(rows, row)):
                break
            if row.entry.last_offset >= next_offset and not self._is_skipped(row.entry):
                rows.append(row)
                size += row.entry.length - self._tiered_of(row)
        return rows

    def _nearest_rows(self, next_offset: int) -> list[CachedSlice]:
        """Return the rows in memory if they have all the records, otherwise the untiered rows.

        After a roll-up the untiered rows are in the bucket, while the records may be in memory.
        """
        recent = self._recent
        if not recent or recent[0].entry.base_offset > next_offset:
            return list(self.rows)
        end = self.rows[-1].entry.last_offset if self.rows else next_offset - 1
        return [row for row in recent if next_offset <= row.entry.last_offset <= end]

    def _leapt(self, rows: list[CachedSlice], row: CachedSlice) -> bool:
        """Return whether a leap lies between these rows and the next one."""
        if not rows:
            return False
        behind = rows[-1].entry.last_offset + 1
        return crosses_leap(self._manifest.state.skips, behind, row.entry.base_offset)

    def _is_skipped(self, entry: Slice) -> bool:
        skips = self._manifest.state.skips
        return is_skipped(skips, entry.base_offset, entry.last_offset + 1)

    async def _datas(self, rows: list[CachedSlice], resolved: _Resolved) -> list[memoryview]:
        """Return the slices' bytes. Raises NotFoundError if a slice may be somewhere else now."""
        # Taken before the first await, during which the cache may drop them.
        in_memory = [row.in_memory() for row in rows]
        missing = [row for row, data in zip(rows, in_memory, strict=True) if data is None]
        read = iter(await runtime.gather(*(self._data_if_needed(row, resolved) for row in missing)))
        return [next(read) if data is None else data for data in in_memory]

    async def _data_if_needed(self, row: CachedSlice, resolved: _Resolved) -> memoryview:
        try:
            return await self._data(row, resolved)
        except (DamagedError, LostRangeError):
            if row.entry.last_offset < self._manifest.state.start:
                return memoryview(b"")  # below the log's start: no reader misses it
            raise

    async def _data(self, row: CachedSlice, resolved: _Resolved) -> memoryview:
        try:
            return await read_slice(self._store, row)
        except NotFoundError as missing:
            if row.cached.incarnation not in resolved or not self._has(row):
                raise
            raise resolved[row.cached.incarnation] or LostRangeError(
                f"{self._name}: {row.key} is gone, and nothing else holds offset "
                f"{row.entry.base_offset}: run `neve storage verify`"
            ) from missing

    async def _find_moved(self, gone: list[CachedSlice], resolved: _Resolved) -> None:
        """Resolve the stream of slices that are gone, unless they have been moved already."""
        if not any(self._has(row) for row in gone):
            return
        # A checkpoint, of another process or a late one of ours, moved the slices.
        incarnation = gone[0].cached.incarnation
        resolved[incarnation] = None
        try:
            await self._resolve(incarnation)
        except DamagedError as damage:
            resolved[incarnation] = damage  # slices below the log's start are not needed

    def _has(self, row: CachedSlice) -> bool:
        return any(each.cached is row.cached for each in self.rows)

    async def _cut(
        self,
        rows: list[CachedSlice],
        datas: list[memoryview],
        next_offset: int,
        target_bytes: int | None,
    ) -> list[Buffer]:
        runs: list[Buffer] = []
        bases, sizes = array("q"), array("q")  # of each batch: there may be very many
        size = 0
        for row, data in zip(rows, datas, strict=True):
            start = end = 0
            for position, header in walk(data, key=row.cached.key):
                if target_bytes is not None and _is_full(size, header.size, target_bytes):
                    break
                bases.append(header.base_offset)
                sizes.append(header.size)
                if len(bases) % WALKED_AT_ONCE == 0:
                    await runtime.sleep(0)
                if header.last_offset >= next_offset:
                    self._check_that_it_joins(next_offset, header.base_offset)
                    start = start if end else position
                    end = position + header.size
                    size += header.size
                    next_offset = header.next_offset
            if end:
                # Offsets ascend, so all batches after the first selected one are selected too.
                runs.append(data[start:end])
        if target_bytes is not None:
            self._last_cut = _Cut(next_offset, self._position_of(next_offset, bases, sizes))
        return runs

    def _position_of(self, offset: int, bases: array[int], sizes: array[int]) -> int:
        """Return the position of an offset in its slice, from the batches before it."""
        row = self._holding(offset)
        if row is None or not bases:
            return 0
        first = row.entry.base_offset
        # A slice in memory may begin later than the roll-up's slice with the same offset.
        before = self._tiered_of(row) if bases[0] > first else 0
        return before + sum(size for base, size in zip(bases, sizes, strict=True) if base >= first)

    def _check_that_it_joins(self, next_offset: int, base: int) -> None:
        """Raise LostRangeError if offsets are missing: a segment with a gap would hide them."""
        state = self._manifest.state
        if not is_skipped(state.skips, max(next_offset, state.start), base):
            raise LostRangeError(
                f"{self._name}: no slice holds offsets {next_offset} to {base - 1}: "
                "run `neve storage verify`"
            )

    def _check_that_all_are_held(self, next_offset: int, last: int) -> None:
        """Raise LostRangeError if offsets up to `last` were held, and are not after a move.

        A gap before the last slice is found when the batches are joined.
        """
        end = self.rows[-1].entry.last_offset + 1 if self.rows else next_offset
        if end <= last and last >= self._manifest.state.start:
            raise LostRangeError(
                f"{self._name}: no slice holds offsets {end} to {last} any more: "
                "run `neve storage verify`"
            )

    def _holding(self, offset: int) -> CachedSlice | None:
        for row in self.rows:
            if row.entry.base_offset <= offset <= row.entry.last_offset:
                return row
        return None


def _is_full(size: int, batch_bytes: int, target_bytes: int) -> bool:
    """Return whether a segment with `size` bytes of batches ends before this batch."""
    return size >= target_bytes or 0 < size > kfs.BODY_BYTES_MAX - batch_bytes
