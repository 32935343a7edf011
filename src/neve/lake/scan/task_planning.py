"""Divides scan plans into tasks: few large offset ranges, since every Spark task has a fixed cost.

The ranges cover exactly the planned offsets, each once.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from itertools import accumulate

from neve.bucket.planning import PartitionPlan, PlannedSpan
from neve.lake.scan.tasks import ScanRange
from neve.settings import MIB

TASK_BYTES = 128 * MIB
"""Decoding this much takes about as long as a Python task's fixed cost of some 150 ms."""
PACK_BYTES = 16 * MIB
"""Smaller ranges share a task, so that a thousand small partitions need few tasks."""


def plan_tasks(
    plans: Iterable[PartitionPlan],
    *,
    max_bytes_per_task: int = TASK_BYTES,
    min_tasks: int = 0,
    from_timestamp: int | None = None,
    to_timestamp: int | None = None,
) -> list[ScanRange]:
    """Return ranges of at most `max_bytes_per_task`, smaller to reach `min_tasks`.

    The timestamps are those that the plans were made for; every task filters by them.
    """
    runs = [(plan, run) for plan in plans for run in _runs(plan.spans)]
    total = sum(_bytes(run) for _, run in runs)
    if min_tasks > 0:
        max_bytes_per_task = min(max_bytes_per_task, max(1, total // min_tasks))
    return [
        ScanRange(
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
    ranges: Sequence[ScanRange], *, pack_bytes: int = PACK_BYTES, min_tasks: int = 0
) -> list[tuple[ScanRange, ...]]:
    """Group small ranges into tasks of `pack_bytes`. Returns at least `min_tasks` if possible."""
    if len(ranges) <= min_tasks:
        return [(each,) for each in ranges]
    total = sum(each.bytes for each in ranges)
    if min_tasks > 0:
        pack_bytes = min(pack_bytes, total // min_tasks)
    packed: list[tuple[ScanRange, ...]] = []
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
    """Group spans that follow one another. Gaps were pruned: no task may read them."""
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
    """Cut a run into parts of equal bytes, at most `bytes_max`. Yields (first, end, bytes)."""
    total = _bytes(run)
    offsets = run[-1].end - run[0].first
    parts = min(offsets, max(1, -(-total // bytes_max)))
    ends = list(accumulate(span.bytes for span in run))
    first = run[0].first
    for number in range(1, parts + 1):
        end = run[-1].end if number == parts else _offset_at(run, ends, total * number // parts)
        # Every part gets at least one offset.
        end = min(max(end, first + 1), run[-1].end - (parts - number))
        yield first, end, total * number // parts - total * (number - 1) // parts
        first = end


def _offset_at(run: Sequence[PlannedSpan], ends: Sequence[int], position: int) -> int:
    """Return the offset at a byte position in a run, assuming records of equal size."""
    index = bisect.bisect_left(ends, position)
    span = run[index]
    into = position - (ends[index] - span.bytes)
    return span.first + (span.end - span.first) * into // max(1, span.bytes)
