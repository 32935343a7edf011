"""Reading one partition: every committed record of a range, in order, once.

Objects may move under a reader: records are tiered, rolled up, merged and expired while it reads.
A listed object that is gone therefore means: look again, and go on where we were. Only if the new
list still names it is it lost. What moved never shows: the reader counts on by the next offset.

A damaged index costs a slower read. A damaged segment or slice is an error that names it and the
offsets up to which all was delivered.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from neve import runtime
from neve.bucket.chunks import Chunk, ChunkReader
from neve.bucket.layout import PartitionSource, Resolved
from neve.bucket.model import EARLIEST, LATEST, PartitionName, Selection
from neve.bucket.pieces import OffsetRange, Piece, Plan, SegmentPiece, plan
from neve.errors import DamagedError, LostRangeError, NeveError, NotFoundError
from neve.log.fetch import Download
from neve.log.prefetch import PrefetchReader
from neve.log.tail import TailSlice

# A reader that finds objects gone each time it looks gives up after so many looks in a row.
LOOKS_MAX = 20
LOOK_PAUSE_SECONDS = 0.05


@dataclass
class ReadCounters:
    """What a reader passed over. `looks` counts how often it had to look again."""

    skipped_offsets: int = 0
    looks: int = 0


class PartitionReader:
    """One pass over one partition, from a selection's first offset on. Not to be shared."""

    def __init__(
        self,
        source: PartitionSource,
        selection: Selection,
        chunks: ChunkReader,
        prefetching: Callable[[], PrefetchReader],
        counters: ReadCounters,
    ) -> None:
        self._source = source
        self._chunks = chunks
        self._prefetching = prefetching
        self._counters = counters
        self._resolved: Resolved | None = None
        self._gone: list[str] = []
        self._begun = False
        self._pieces: Sequence[Piece] = ()
        self.selection = selection
        self.next = -1

    @property
    def name(self) -> PartitionName:
        return self._source.name

    @property
    def source(self) -> PartitionSource:
        return self._source

    @property
    def finished(self) -> bool:
        """Whether nothing that is still to come can be in the selection."""
        return self.next >= self.selection.to_offset

    async def open(self) -> Resolved:
        """Look where the records are, and where to begin."""
        self._resolved = resolved = await self._source.resolve()
        wanted = self.selection.from_offset
        if wanted == EARLIEST:
            self.next = resolved.start
        elif wanted == LATEST:
            self.next = resolved.end
        else:
            self.next = int(wanted)
            if self.next < resolved.start:
                raise LostRangeError(
                    f"{self.name}: offset {self.next} is below the log's start at "
                    f"{resolved.start}: retention or a deletion removed it; read from "
                    f"{resolved.start} on, or from the earliest"
                )
        return resolved

    async def to_end(self) -> AsyncGenerator[Chunk, None]:
        """All chunks from the next offset to the end that the newest look saw."""
        if self._resolved is None:
            await self.open()
        resolved = self._resolved
        assert resolved is not None
        end = min(resolved.end, self.selection.to_offset)
        while self.next < end:
            try:
                async with contextlib.aclosing(self._once(resolved, end)) as chunks:
                    async for chunk in chunks:
                        yield chunk
            except NotFoundError as error:
                resolved = await self._look_again(error, end)
            except DamagedError as error:
                self._without_index(error)
        if resolved.failure is not None and end < self.selection.to_offset:
            raise self._explained(resolved.failure)

    async def again(self) -> AsyncGenerator[Chunk, None]:
        """Look again, then all chunks from the next offset to the end there is now."""
        self._resolved = await self._source.resolve()
        if self.next < self._resolved.start:
            raise self._overtaken(self._resolved.start, "")
        async with contextlib.aclosing(self.to_end()) as chunks:
            async for chunk in chunks:
                yield chunk

    async def newer(self, slices: Sequence[TailSlice]) -> AsyncGenerator[Chunk, None]:
        """All chunks that fresh slices of the tail bring; what is not contiguous is looked up."""
        fresh = [row for row in slices if row.entry.last_offset >= self.next]
        end = fresh[-1].entry.last_offset + 1 if fresh else self.next
        found = plan(self.next, min(end, self.selection.to_offset), (), fresh, ())
        source = self.again() if found.missing else self._fresh(found)
        async with contextlib.aclosing(source) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _fresh(self, found: Plan) -> AsyncGenerator[Chunk, None]:
        try:
            async with contextlib.aclosing(self._read(found.pieces)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except NotFoundError:
            async with contextlib.aclosing(self.again()) as chunks:
                async for chunk in chunks:
                    yield chunk
        except DamagedError as error:
            raise self._explained(error) from error

    # -- one pass ----------------------------------------------------------------------------

    async def _once(self, resolved: Resolved, end: int) -> AsyncGenerator[Chunk, None]:
        segments = await self._source.segments(self.next, end, self.selection)
        found = plan(self.next, end, segments, resolved.tail, resolved.skips)
        if found.missing and not self._source.gaps_allowed:
            raise _NowhereError(f"offsets {_shown(found.missing)}", "nothing holds them")
        passed_over = list(found.skipped)
        if not self.selection.by_time:  # otherwise segments may have been left out on purpose
            passed_over += found.missing
        first = self.next
        try:
            async with contextlib.aclosing(self._read(found.pieces)) as chunks:
                async for chunk in chunks:
                    yield chunk
            self.next = end
        finally:
            self._counters.skipped_offsets += _overlap(passed_over, first, self.next)

    async def _read(self, pieces: Sequence[Piece]) -> AsyncGenerator[Chunk, None]:
        self._pieces = pieces
        async with (
            self._prefetching() as prefetch,
            contextlib.aclosing(prefetch.read(self._downloads(pieces))) as downloads,
        ):
            async for downloaded in downloads:
                chunk = downloaded.data
                self._begun = True
                self._gone.clear()
                self.next = max(self.next, chunk.end)
                unheld = chunk.end - max(chunk.reached, chunk.first)
                self._counters.skipped_offsets += max(0, unheld)
                yield chunk

    async def _downloads(self, pieces: Sequence[Piece]) -> AsyncGenerator[Download[Chunk], None]:
        for piece in pieces:
            for download in await self._chunks.downloads(piece, self.selection.from_timestamp):
                yield download

    # -- what goes wrong ---------------------------------------------------------------------

    async def _look_again(self, error: NotFoundError, end: int) -> Resolved:
        """A listed object is gone: resolve what is left. A second time it is lost."""
        if error.key in self._gone or len(self._gone) >= LOOKS_MAX:
            if isinstance(error, _NowhereError):
                raise LostRangeError(
                    f"{self.name}: {error.key}: neither a segment nor a stream has them; run "
                    "`neve storage verify`"
                ) from error
            lost = DamagedError(error.key, "it is listed, and it is not there")
            raise self._explained(lost) from error
        self._gone.append(error.key)
        self._counters.looks += 1
        await runtime.sleep(LOOK_PAUSE_SECONDS)
        resolved = self._resolved = await self._source.resolve()
        if self.next >= resolved.start:
            return resolved
        if self._begun or self.selection.from_offset != EARLIEST or resolved.start >= end:
            raise self._overtaken(resolved.start, error.key) from error
        self.next = resolved.start  # nothing was delivered yet: the earliest is elsewhere now
        return resolved

    def _overtaken(self, start: int, key: str) -> LostRangeError:
        gone = f" ({key} is gone)" if key else ""
        return LostRangeError(
            f"{self.name}: the log starts at {start} now{gone}: offsets {self.next} to "
            f"{start - 1} were removed while they were read; go on from {start}"
        )

    def _without_index(self, error: DamagedError) -> None:
        """Read a segment that contradicts its index once more by itself: either may be damaged."""
        for piece in self._pieces:
            if isinstance(piece, SegmentPiece) and piece.segment.key == error.key:
                if piece.segment.index_key is not None and self._chunks.distrust_index(piece):
                    return
                break
        raise self._explained(error) from error

    def _explained(self, error: NeveError) -> NeveError:
        if not isinstance(error, DamagedError):
            return error
        lost = next((_range(piece) for piece in self._pieces if _key(piece) == error.key), None)
        told = f"{error.reason}. {self.name} was read up to offset {self.next}"
        if lost is not None:
            told += f"; the object holds offsets {lost[0]} to {lost[1]}. {self._source.remedy}"
        return DamagedError(error.key, told)

    def undecodable(self, error: DamagedError) -> DamagedError:
        """Damage that shows only when records are decoded: a batch that contradicts its header."""
        return DamagedError(error.key, f"{error.reason}, in {self.name}. {self._source.remedy}")


class _NowhereError(NotFoundError):
    """Offsets that no listed object holds: lost, unless the list is older than they are."""


def _key(piece: Piece) -> str:
    return piece.segment.key if isinstance(piece, SegmentPiece) else piece.row.item.key


def _range(piece: Piece) -> OffsetRange:
    if isinstance(piece, SegmentPiece):
        return piece.segment.base, piece.segment.last
    return piece.row.entry.base_offset, piece.row.entry.last_offset


def _shown(ranges: Sequence[OffsetRange]) -> str:
    return ", ".join(f"{first} to {end - 1}" for first, end in ranges)


def _overlap(ranges: Sequence[OffsetRange], first: int, end: int) -> int:
    return sum(max(0, min(stop, end) - max(start, first)) for start, stop in ranges)
