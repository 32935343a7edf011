"""Finds the exact record for a time, with as few reads as possible.

Segments, runs and slices are listed with their greatest timestamp, and a segment's TIMESTAMP index
shows where to begin. A few batches remain, and one of them is decoded: in a thread and one at a
time, unless it is small. The bytes that all searches hold are bounded by `fetch.search.bytes`;
further searches wait before they read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import NamedTuple

from neve import runtime
from neve.errors import DamagedError, UnavailableError, UnsupportedError
from neve.log.manifest.records import Run, Segment
from neve.log.reading.leader.batch_times import Timed, first_from, youngest
from neve.log.reading.leader.readable_log import OffsetOutOfRangeError, ReadableLog
from neve.log.reading.record_chunk import RecordChunk
from neve.log.reading.segment_indexes import SegmentIndexes
from neve.records.batch import BatchHeader, walk

# Bytes of one read of a search: the stretch that the index selects is seldom larger.
SCAN_BYTES = 1024 * 1024
# Batches with more records, and compressed ones, are decoded in a thread.
RECORDS_INLINE_MAX = 200
# Attempts of a search that the log's start keeps overtaking.
ATTEMPTS_MAX = 10


class _Source(NamedTuple):
    """A range of offsets and its greatest timestamp."""

    base: int
    last: int
    max_timestamp: int
    segment: Segment | None = None
    is_run: bool = False


class TimeSearch:
    """Searches logs by time, with ordinary catch-up reads."""

    def __init__(
        self,
        read: Callable[[ReadableLog, int, int], Awaitable[RecordChunk]],
        indexes: SegmentIndexes,
        bytes_max: int,
    ) -> None:
        self._read = read
        self._indexes = indexes
        self.share = runtime.MemoryShare("searches-by-time", bytes_max)
        self._decoding = asyncio.Lock()

    async def first_from(self, log: ReadableLog, timestamp: int) -> Timed | None:
        """Return the first record of the log with this timestamp or a greater one."""
        return await _while_it_starts_there(log, lambda: self._first_from(log, timestamp))

    async def greatest(self, log: ReadableLog) -> Timed | None:
        """Return the first of the records with the greatest timestamp."""
        found = await _while_it_starts_there(log, lambda: self._greatest(log))
        return None if found is None or found.timestamp < 0 else found

    async def _first_from(self, log: ReadableLog, timestamp: int) -> Timed | None:
        for row in _sources(log):
            if row.max_timestamp < timestamp:
                continue
            for source in await self._expanded(log, row):
                if source.max_timestamp >= timestamp:
                    found = await self._first_in(log, source, timestamp)
                    if found is not None:
                        return found
        return None

    async def _first_in(self, log: ReadableLog, source: _Source, timestamp: int) -> Timed | None:
        start = log.start_offset
        at = await self._scan_from(source, timestamp, start)
        async with aclosing(self._batches(log, at, source.last)) as batches:
            async for header, batch in batches:
                if header.max_timestamp < timestamp:
                    continue
                search = partial(first_from, header, batch, timestamp, start)
                found = await self._decoded(log, header, search)
                if found is not None:
                    return found
        return None

    async def _greatest(self, log: ReadableLog) -> Timed | None:
        best: Timed | None = None
        for row in _youngest_first(_sources(log)):
            if _can_beat(row, best):
                for source in _youngest_first(await self._expanded(log, row)):
                    if _can_beat(source, best):
                        best = _better(best, await self._greatest_in(log, source))
        return best

    async def _greatest_in(self, log: ReadableLog, source: _Source) -> Timed | None:
        start = log.start_offset
        at = await self._scan_from(source, source.max_timestamp, start)
        best: BatchHeader | None = None
        cut: Timed | None = None  # of a batch that begins below the log's start
        async with aclosing(self._batches(log, at, source.last)) as batches:
            async for header, batch in batches:
                if header.base_offset < start:
                    search = partial(youngest, header, batch, start)
                    cut = await self._decoded(log, header, search)
                elif best is None or header.max_timestamp > best.max_timestamp:
                    best = header
                    if header.max_timestamp >= source.max_timestamp:
                        break
        if best is None or (cut is not None and cut.timestamp >= best.max_timestamp):
            return cut
        # Read again: a batch is held only while it is examined.
        async with aclosing(self._batches(log, best.base_offset, best.last_offset)) as batches:
            async for header, batch in batches:
                return await self._decoded(log, header, partial(youngest, header, batch, start))
        return cut

    async def _decoded(
        self,
        log: ReadableLog,
        header: BatchHeader,
        search: Callable[[str], Timed | None],
    ) -> Timed | None:
        """Run `search` with the batch's name for errors, in a thread unless the batch is small."""
        key = f"{log.name}, the batch at offset {header.base_offset},"
        if not header.codec and header.record_count <= RECORDS_INLINE_MAX:
            return search(key)
        async with self._decoding:
            return await runtime.offload(search, key)

    async def _scan_from(self, source: _Source, timestamp: int, start: int) -> int:
        """Return the offset from which on a source may have a record at or past `timestamp`."""
        if source.base < start or source.segment is None:
            return max(source.base, start)
        bundle = await self._indexes.get(source.segment)
        try:
            found = None if bundle is None else bundle.offset_for_timestamp(timestamp)
        except (DamagedError, UnsupportedError):
            found = None
        return source.base if found is None else max(source.base, found)

    async def _batches(
        self, log: ReadableLog, at: int, last: int
    ) -> AsyncGenerator[tuple[BatchHeader, memoryview], None]:
        while at <= last and at < log.high_watermark:
            async with self._chunk(log, at) as chunk:
                if not chunk.parts:
                    return
                for part in chunk.parts:
                    for position, header in walk(part, key=log.name):
                        if header.base_offset > last:
                            return
                        if header.last_offset >= at:
                            yield header, part[position : position + header.size]
                at = chunk.next_offset

    @asynccontextmanager
    async def _chunk(self, log: ReadableLog, at: int) -> AsyncIterator[RecordChunk]:
        """Read from `at` on, within the share. Reads again if a batch is larger than expected."""
        size = SCAN_BYTES
        while True:
            async with self.share.taken(size):
                chunk = await self._read(log, at, SCAN_BYTES)
                if chunk.size <= size:
                    yield chunk
                    return
                size = chunk.size
                del chunk

    async def _expanded(self, log: ReadableLog, source: _Source) -> list[_Source]:
        """Return the segments of a run, or the source itself if it is not a run."""
        if not source.is_run:
            return [source]
        return [_listed(row) for row in await log.manifest.segments(source.base, source.last)]


def _sources(log: ReadableLog) -> list[_Source]:
    """Return all that the log holds, in order, as of now.

    What is tiered later stays in the result, and is read from where it is then.
    """
    state, start = log.manifest.state, log.start_offset
    rows = [_listed(row) for row in state.runs]
    rows += [_listed(row) for row in state.loose]
    rows += [
        _Source(row.entry.base_offset, row.entry.last_offset, row.entry.max_timestamp)
        for row in log.tail
        if row.entry.last_offset >= state.next
    ]
    return sorted((row for row in rows if row.last >= start), key=lambda row: row.base)


def _listed(row: Run | Segment) -> _Source:
    is_run = isinstance(row, Run)
    segment = None if isinstance(row, Run) else row
    return _Source(row.base, row.last, row.max_timestamp, segment, is_run)


def _youngest_first(sources: Iterable[_Source]) -> list[_Source]:
    return sorted(sources, key=lambda row: (-row.max_timestamp, row.base))


def _can_beat(source: _Source, best: Timed | None) -> bool:
    if best is None or source.max_timestamp > best.timestamp:
        return True
    return source.max_timestamp == best.timestamp and source.base < best.offset


def _better(best: Timed | None, found: Timed | None) -> Timed | None:
    if best is None or found is None:
        return best or found
    return min(best, found, key=lambda row: (-row.timestamp, row.offset))


async def _while_it_starts_there(
    log: ReadableLog, search: Callable[[], Awaitable[Timed | None]]
) -> Timed | None:
    """Run a search again if the log's start overtook it."""
    for _ in range(ATTEMPTS_MAX):
        try:
            return await search()
        except OffsetOutOfRangeError:
            continue
    raise UnavailableError(log.name, "its start moves faster than it is searched: search again")
