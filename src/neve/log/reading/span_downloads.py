"""Turns the spans of a plan into downloads of record chunks, for readers of whole plans."""

from __future__ import annotations

from neve.errors import DamagedError, UnsupportedError
from neve.log.downloads import PART_BYTES_DEFAULT, Download
from neve.log.manifest.records import Segment
from neve.log.reading.located_range import (
    LocatedRange,
    read_located,
    segment_ranges,
    slice_range,
    whole_range,
)
from neve.log.reading.record_chunk import RecordChunk
from neve.log.reading.segment_indexes import SegmentIndexes
from neve.log.reading.spans import Span
from neve.log.segment.bundle import Bundle
from neve.store.port import Store


async def span_downloads(
    span: Span,
    indexes: SegmentIndexes,
    from_timestamp: int | None = None,
    *,
    part_bytes: int = PART_BYTES_DEFAULT,
) -> list[Download[RecordChunk]]:
    """Return the downloads of a span.

    There are none if the segment's index shows that all records are older than `from_timestamp`.
    """
    if not isinstance(span.holder, Segment):
        return [_download(span, slice_range(span.holder))]
    segment = span.holder
    bundle = await indexes.get_or_rebuild(segment)
    if bundle is None or (not bundle.checksummed and span.is_whole):
        # The footer of a foreign segment covers more than the checksums of its batches.
        return [_download(span, whole_range(segment))]
    try:
        first = _scan_from(bundle, span, from_timestamp)
    except (DamagedError, UnsupportedError):
        return [_download(span, whole_range(segment))]
    if first is None:
        return []
    span = span._replace(first=first)
    ranges = segment_ranges(segment, bundle, first, span.end, part_bytes)
    return [_download(span, located) for located in ranges]


def _scan_from(bundle: Bundle, span: Span, from_timestamp: int | None) -> int | None:
    """Return the first offset to read; None if all records are older."""
    if from_timestamp is None:
        return span.first
    scan = bundle.offset_for_timestamp(from_timestamp)
    if scan is None or scan >= span.end:
        return None
    return max(span.first, scan)


def _download(span: Span, located: LocatedRange) -> Download[RecordChunk]:
    first = max(span.first, located.first_offset)
    end = min(span.end, located.end_offset)

    async def fetch(store: Store) -> RecordChunk:
        data = None if isinstance(span.holder, Segment) else span.holder.in_memory()
        end_offset = end
        if data is None:
            data, end_offset = await read_located(store, located)
        absent = max(0, end - max(end_offset, first))
        return RecordChunk([data], len(data), first, end, located.key, absent)

    return Download(key=located.key, size_bytes=located.size, fetch=fetch, start=located.start)
