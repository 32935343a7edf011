"""Retention by age and by size: where a topic's configs put the start of its logs.

The leader decides from what it has in memory, and computes when the next check is due from the
oldest segment or slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from neve import runtime
from neve.cluster.topic_config import TopicConfig
from neve.log.log_start import move_start, start_by_age, start_by_size
from neve.log.manifest.records import Segment
from neve.log.partition import PartitionLog

NEVER_MS = 2**63 - 1


async def retain(log: PartitionLog, config: TopicConfig) -> int:
    """Drop records that have expired. Returns when to check again (wall clock), or NEVER_MS."""
    if log.is_internal:
        return await _retain_state(log)
    segments = await log.manifest.segments()
    start = log.manifest.state.start
    if config.retention_ms >= 0:
        start = _start_by_age(log, segments, runtime.now_ms() - config.retention_ms)
    if config.retention_bytes >= 0:
        start = start_by_size(segments, config.retention_bytes, log.tail_bytes, start)
    if start > log.manifest.state.start:
        await move_start(log.manifest, start, end=log.high_watermark)
        segments = [row for row in segments if row.last >= start]
    # By size, the next check is due after the next segment.
    return _next_by_age(log, segments, config)


async def _retain_state(log: PartitionLog) -> int:
    """Drop the records of an internal partition whose state is in its last bundle."""
    if log.state_floor > log.start_offset:
        await move_start(log.manifest, log.state_floor, end=log.high_watermark)
    return NEVER_MS


def due_ms(log: PartitionLog, config: TopicConfig) -> int:
    """When a check may find something, known without a request; or NEVER_MS.

    For segments in runs that is a lower bound: their own times are in the run's object.
    """
    if log.is_internal:
        return 0 if log.state_floor > log.start_offset else NEVER_MS
    state = log.manifest.state
    runs = [row for row in state.runs if row.last >= state.start]
    loose = [row for row in state.loose if row.last >= state.start]
    if config.retention_bytes >= 0 and (runs or loose):
        size = log.tail_bytes + sum(row.bytes for row in runs) + sum(row.bytes for row in loose)
        oldest = 0 if runs else loose[0].bytes
        if size - oldest >= config.retention_bytes:
            return 0
    if runs and config.retention_ms >= 0:
        return runs[0].min_timestamp + config.retention_ms
    return _next_by_age(log, loose, config)


def _next_by_age(log: PartitionLog, segments: Sequence[Segment], config: TopicConfig) -> int:
    if config.retention_ms < 0:
        return NEVER_MS
    if segments:
        return _newest_ms(segments[0]) + config.retention_ms + 1
    for row in _untiered(log):
        # Records without a time are kept until they are in a segment, which has a time.
        return row.newest_ms + config.retention_ms + 1 if row.newest_ms >= 0 else NEVER_MS
    return NEVER_MS


def _newest_ms(segment: Segment) -> int:
    return segment.max_timestamp if segment.max_timestamp >= 0 else segment.created_ms


def _start_by_age(log: PartitionLog, segments: Sequence[Segment], oldest_ms: int) -> int:
    start = start_by_age(segments, oldest_ms, log.manifest.state.start)
    if segments and start <= segments[-1].last:
        return start
    # All segments have expired, so slices that are not tiered yet may have expired too.
    for row in _untiered(log):
        if not 0 <= row.newest_ms < oldest_ms:
            break
        start = max(start, row.last + 1)
    return start


class _Untiered(NamedTuple):
    last: int
    newest_ms: int


def _untiered(log: PartitionLog) -> Iterator[_Untiered]:
    """The committed slices that no segment holds and readers still see, oldest first."""
    state = log.manifest.state
    for row in log.tail:
        if row.entry.last_offset >= max(state.start, state.next):
            yield _Untiered(row.entry.last_offset, row.entry.max_timestamp)
