"""Retention: moves a log's start, by age, by size, or on request.

One manifest number moves the start and dooms the segments entirely below it, so that a reader sees
either all of a segment or none of it. The collector deletes the objects later.
"""

from __future__ import annotations

from collections.abc import Sequence

from neve.errors import InvalidError, UnavailableError
from neve.log.manifest.manifest import Manifest
from neve.log.manifest.records import Segment, Start, removal

ATTEMPTS_MAX = 20


async def move_start(manifest: Manifest, offset: int, *, end: int) -> list[Segment]:
    """Raise the log's start to `offset`, and return the segments that were dropped.

    Raises InvalidError if the offset is negative or above `end`.
    """
    if not 0 <= offset <= end:
        raise InvalidError(
            f"{manifest.keys.prefix}: a log cannot start at {offset}, it ends at {end}"
        )
    for _ in range(ATTEMPTS_MAX):
        state = await manifest.refresh()
        base = manifest.view
        if offset <= state.start:
            return []
        gone = [row for row in await manifest.segments(0, offset - 1) if row.last < offset]
        if await manifest.change_at(base, [Start(offset, tuple(map(removal, gone)))]):
            return gone
    raise UnavailableError(manifest.keys.prefix, "it changes faster than its start can be moved")


def start_by_age(segments: Sequence[Segment], oldest_ms: int, start: int) -> int:
    """Return the log's start without the oldest segments that end before `oldest_ms`.

    Stops at the first segment that has a record from `oldest_ms` on.
    """
    for segment in segments:
        # Records may have no timestamp: use the time when the segment was created.
        newest_ms = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
        if newest_ms >= oldest_ms:
            break
        start = max(start, segment.last + 1)
    return start


def start_by_size(segments: Sequence[Segment], bytes_max: int, tail_bytes: int, start: int) -> int:
    """Return the log's start after dropping the oldest segments that `bytes_max` can spare.

    The log keeps at least `bytes_max` bytes, as in Kafka.
    """
    size = tail_bytes + sum(segment.bytes for segment in segments)
    for segment in segments:
        if size - segment.bytes < bytes_max:
            break
        size -= segment.bytes
        start = max(start, segment.last + 1)
    return start
