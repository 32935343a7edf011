"""Reads one partition: every committed record of a range, in order, once.

Records may move to other objects meanwhile. If a listed object is gone, the reader resolves the
partition again and continues at its next offset (`log.reading.gone_objects`). A damaged index only
makes a read slower. A damaged segment or slice raises an error that names the object and the offset
up to which all records were delivered.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from neve import runtime
from neve.bucket.layout import PartitionSource, Resolved
from neve.bucket.model import EARLIEST, LATEST, PartitionName, Selection
from neve.errors import DamagedError, LostRangeError, NeveError, NotFoundError
from neve.log.downloads import Download
from neve.log.manifest.records import Segment
from neve.log.manifest.skips import OffsetRange
from neve.log.prefetch import PrefetchReader
from neve.log.reading.gone_objects import GoneObjects, NowhereError, final_error
from neve.log.reading.record_chunk import RecordChunk
from neve.log.reading.segment_indexes import SegmentIndexes
from neve.log.reading.span_downloads import span_downloads
from neve.log.reading.spans import ReadPlan, Span, plan_spans
from neve.log.tail import TailSlice

RESOLVE_PAUSE_SECONDS = 0.05


@dataclass
class ReadCounters:
    """Offsets that readers passed over, and how often they resolved a partition again."""

    skipped_offsets: int = 0
    resolves: int = 0


class PartitionReader:
    """One pass over one partition, from a selection's first offset on, for one consumer."""

    def __init__(
        self,
        source: PartitionSource,
        selection: Selection,
        indexes: SegmentIndexes,
        prefetching: Callable[[], PrefetchReader],
        counters: ReadCounters,
    ) -> None:
        self._source = source
        self._indexes = indexes
        self._prefetching = prefetching
        self._counters = counters
        self._resolved: Resolved | None = None
        self._gone = GoneObjects()
        self._begun = False
        self._spans: Sequence[Span] = ()
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
        """Whether the reader is at the selection's end, so that new records cannot be in it."""
        return self.next >= self.selection.to_offset

    async def open(self) -> Resolved:
        """Resolve the partition and the offset to begin at.

        Raises LostRangeError if the selection begins below the log's start.
        """
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
                    f"{resolved.start} on, or from the earliest",
                    log_start=resolved.start,
                )
        return resolved

    async def to_end(self) -> AsyncGenerator[RecordChunk, None]:
        """Yield all chunks from the next offset to the end as of the first complete resolve.

        If the last resolve was not complete, stop where it ends and raise its failure.
        """
        if self._resolved is None:
            await self.open()
        resolved = self._resolved
        assert resolved is not None
        limit, complete = self.selection.to_offset, False
        while True:
            if resolved.failure is None and not complete:
                limit, complete = min(resolved.end, limit), True
            end = limit if resolved.failure is None else min(resolved.end, limit)
            if self.next >= end:
                break
            try:
                async with contextlib.aclosing(self._once(resolved, end)) as chunks:
                    async for chunk in chunks:
                        yield chunk
            except NotFoundError as error:
                resolved = await self._resolve_again(error, limit)
            except DamagedError as error:
                await self._without_index(error)
        if resolved.failure is not None and end < limit:
            raise self._explained(resolved.failure)

    async def again(self) -> AsyncGenerator[RecordChunk, None]:
        """Resolve again, and yield all chunks from the next offset to the new end."""
        self._resolved = await self._source.resolve()
        if self.next < self._resolved.start:
            raise self._overtaken(self._resolved.start, "")
        async with contextlib.aclosing(self.to_end()) as chunks:
            async for chunk in chunks:
                yield chunk

    async def newer(self, slices: Sequence[TailSlice]) -> AsyncGenerator[RecordChunk, None]:
        """Yield the chunks of new slices of the tail. Resolve again if they are not contiguous."""
        fresh = [row for row in slices if row.entry.last_offset >= self.next]
        end = fresh[-1].entry.last_offset + 1 if fresh else self.next
        found = plan_spans(self.next, min(end, self.selection.to_offset), (), fresh, ())
        source = self.again() if found.missing else self._fresh(found)
        async with contextlib.aclosing(source) as chunks:
            async for chunk in chunks:
                yield chunk

    async def _fresh(self, found: ReadPlan) -> AsyncGenerator[RecordChunk, None]:
        try:
            async with contextlib.aclosing(self._read(found.spans)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except NotFoundError:
            async with contextlib.aclosing(self.again()) as chunks:
                async for chunk in chunks:
                    yield chunk
        except DamagedError as error:
            raise self._explained(error) from error

    # -- one pass ----------------------------------------------------------------------------

    async def _once(self, resolved: Resolved, end: int) -> AsyncGenerator[RecordChunk, None]:
        selection = self.selection
        segments = await self._source.segments(self.next, end, with_times=selection.by_time)
        found = plan_spans(
            self.next, end, segments, resolved.tail, resolved.skips, times=selection.times
        )
        if found.missing and not self._source.gaps_allowed:
            raise NowhereError(found.missing)
        passed_over = found.skipped + found.missing
        first = self.next
        try:
            async with contextlib.aclosing(self._read(found.spans)) as chunks:
                async for chunk in chunks:
                    yield chunk
            self.next = end
        finally:
            self._counters.skipped_offsets += _overlap(passed_over, first, self.next)

    async def _read(self, spans: Sequence[Span]) -> AsyncGenerator[RecordChunk, None]:
        self._spans = spans
        async with (
            self._prefetching() as prefetch,
            contextlib.aclosing(prefetch.read(self._downloads(spans))) as downloads,
        ):
            async for downloaded in downloads:
                chunk = downloaded.data
                self._begun = True
                self._gone.clear()
                self.next = max(self.next, chunk.next_offset)
                self._counters.skipped_offsets += chunk.absent
                yield chunk

    async def _downloads(
        self, spans: Sequence[Span]
    ) -> AsyncGenerator[Download[RecordChunk], None]:
        from_timestamp = self.selection.from_timestamp
        for span in spans:
            for download in await span_downloads(span, self._indexes, from_timestamp):
                yield download

    # -- what goes wrong ---------------------------------------------------------------------

    async def _resolve_again(self, missing: NotFoundError, limit: int) -> Resolved:
        """Resolve the partition again, because a listed object is gone. Raises if it is lost."""
        if self._gone.is_final(missing):
            still_listed = self._gone.is_repeated(missing)
            error = final_error(str(self.name), missing, still_listed=still_listed)
            raise self._explained(error) from missing
        self._gone.note(missing)
        self._counters.resolves += 1
        await runtime.sleep(RESOLVE_PAUSE_SECONDS)
        resolved = self._resolved = await self._source.resolve()
        if self.next >= resolved.start:
            return resolved
        if self._begun or self.selection.from_offset != EARLIEST or resolved.start >= limit:
            raise self._overtaken(resolved.start, missing.key) from missing
        self.next = resolved.start  # nothing was delivered yet, and the earliest offset has changed
        return resolved

    def _overtaken(self, start: int, key: str) -> LostRangeError:
        gone = f" ({key} is gone)" if key else ""
        return LostRangeError(
            f"{self.name}: the log starts at {start} now{gone}: offsets {self.next} to "
            f"{start - 1} were removed while they were read; go on from {start}",
            log_start=start,
        )

    async def _without_index(self, error: DamagedError) -> None:
        """Read a damaged segment without its index from now on. Raises if that cannot help."""
        span = self._span_of(error.key)
        segment = None if span is None else span.holder
        if isinstance(segment, Segment) and await self._indexes.distrust(segment):
            return
        raise self._explained(error) from error

    def _explained(self, error: NeveError) -> NeveError:
        if not isinstance(error, DamagedError):
            return error
        reason = f"{error.reason}. {self.name} was read up to offset {self.next}"
        span = self._span_of(error.key)
        if span is not None:
            first, end = span.offsets
            reason += f"; the object holds offsets {first} to {end - 1}. {self._source.remedy}"
        return DamagedError(error.key, reason)

    def _span_of(self, key: str) -> Span | None:
        return next((span for span in self._spans if span.key == key), None)

    def undecodable(self, error: DamagedError) -> DamagedError:
        """Explain damage that only decoding detects: a batch that contradicts its header."""
        return DamagedError(error.key, f"{error.reason}, in {self.name}. {self._source.remedy}")


def _overlap(ranges: Sequence[OffsetRange], first: int, end: int) -> int:
    return sum(max(0, min(stop, end) - max(start, first)) for start, stop in ranges)
