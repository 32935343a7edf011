"""Retention: moving a log's start, by age, by size, or on request.

The start moves in the manifest, and the segments wholly below it are doomed by the same number, so
that a reader sees either all of a segment or none of it. Deleting the objects is the collector's.
"""

from __future__ import annotations

from collections.abc import Sequence

from neve.errors import InvalidError, UnavailableError
from neve.log.manifest.manifest import Manifest
from neve.log.manifest.records import Segment, Start, removal

ATTEMPTS_MAX = 20


async def move_start(manifest: Manifest, offset: int, *, end: int) -> list[Segment]:
    """Make `offset` the log's start, if it is above; the segments that went. `end` bounds it."""
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
    """Where the log starts if segments with no record from `oldest_ms` on are dropped."""
    for segment in segments:
        # Records may have no time at all: then their segment's own counts.
        newest_ms = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms
        if newest_ms >= oldest_ms:
            break
        start = max(start, segment.last + 1)
    return start


def start_by_size(segments: Sequence[Segment], bytes_max: int, tail_bytes: int, start: int) -> int:
    """Where the log starts if the oldest segments are dropped until it fits in `bytes_max`."""
    size = tail_bytes + sum(segment.bytes for segment in segments)
    for segment in segments:
        if size - segment.bytes < bytes_max:
            break
        size -= segment.bytes
        start = max(start, segment.last + 1)
    return start
