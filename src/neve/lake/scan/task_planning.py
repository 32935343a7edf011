"""From plans to tasks: few large ranges of offsets, since every Spark task costs by itself.

Ranges cover exactly the spans of the plans: nothing twice, nothing left out but what the plans
left out.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from itertools import accumulate

from neve.bucket.planning import PartitionPlan, PlannedSpan
from neve.lake.scan.tasks import OffsetRange
from neve.settings import MIB

TASK_BYTES = 128 * MIB
"""A Python task takes some 150 ms beside its reading, about as long as decoding this much."""
PACK_BYTES = 16 * MIB
"""Ranges smaller than this share a task, so that a thousand small partitions are not as many."""


def plan_tasks(
    plans: Iterable[PartitionPlan],
    *,
    max_bytes_per_task: int = TASK_BYTES,
    min_tasks: int = 0,
    from_timestamp: int | None = None,
    to_timestamp: int | None = None,
) -> list[OffsetRange]:
    """Ranges of at most so many bytes; smaller ones where otherwise there would be too few.

    The times are those that the plans were made for: each task takes them along.
    """
    runs = [(plan, run) for plan in plans for run in _runs(plan.spans)]
    total = sum(_bytes(run) for _, run in runs)
    if min_tasks > 0:
        max_bytes_per_task = min(max_bytes_per_task, max(1, total // min_tasks))
    return [
        OffsetRange(
            plan.topic,
            plan.topic_id,
            plan.partition,
            first,
            end,
            size,
            from_timestamp,
            to_timestamp,
        )
        for plan, run in runs
        for first, end, size in _cut(run, max_bytes_per_task)
    ]


def pack_tasks(
    ranges: Sequence[OffsetRange], *, pack_bytes: int = PACK_BYTES, min_tasks: int = 0
) -> list[tuple[OffsetRange, ...]]:
    """Ranges put together until they are worth a task of their own; never fewer than asked for."""
    if len(ranges) <= min_tasks:
        return [(each,) for each in ranges]
    total = sum(each.bytes for each in ranges)
    if min_tasks > 0:
        pack_bytes = min(pack_bytes, total // min_tasks)
    packed: list[tuple[OffsetRange, ...]] = []
    open_bytes = 0
    for each in ranges:
        if not packed or open_bytes + each.bytes > pack_bytes:
            packed.append((each,))
            open_bytes = each.bytes
        else:
            packed[-1] = (*packed[-1], each)
            open_bytes += each.bytes
    return packed


def _runs(spans: Sequence[PlannedSpan]) -> list[list[PlannedSpan]]:
    """Spans that follow one another without a gap. A gap was pruned: no task may read it."""
    runs: list[list[PlannedSpan]] = []
    for span in spans:
        if runs and runs[-1][-1].end == span.first:
            runs[-1].append(span)
        else:
            runs.append([span])
    return runs


def _bytes(run: Sequence[PlannedSpan]) -> int:
    return sum(span.bytes for span in run)


def _cut(run: Sequence[PlannedSpan], bytes_max: int) -> Iterable[tuple[int, int, int]]:
    """A run in parts of equal bytes, none above the most: (first, end, bytes) of each."""
    total = _bytes(run)
    offsets = run[-1].end - run[0].first
    parts = min(offsets, max(1, -(-total // bytes_max)))
    ends = list(accumulate(span.bytes for span in run))
    first = run[0].first
    for number in range(1, parts + 1):
        end = run[-1].end if number == parts else _offset_at(run, ends, total * number // parts)
        # Every part has an offset, and leaves one for each that follows.
        end = min(max(end, first + 1), run[-1].end - (parts - number))
        yield first, end, total * number // parts - total * (number - 1) // parts
        first = end


def _offset_at(run: Sequence[PlannedSpan], ends: Sequence[int], position: int) -> int:
    """The offset that lies so many bytes into a run, as if all records of a span were alike."""
    index = bisect.bisect_left(ends, position)
    span = run[index]
    into = position - (ends[index] - span.bytes)
    return span.first + (span.end - span.first) * into // max(1, span.bytes)
