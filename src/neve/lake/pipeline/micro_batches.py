"""Chooses the next micro-batch of a topic, and combines the results of its ranges. Pure.

A batch takes ranges from all partitions in turn, up to a number of bytes, so that none starves. The
committed offsets of a partition have no gap: if a range ends early, the ranges after it are left
for the next batch.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from neve.bucket.planning import PartitionPlan
from neve.lake.pipeline.range_task import RangeResult
from neve.lake.scan.task_planning import plan_tasks
from neve.lake.scan.tasks import ScanRange
from neve.lake.tables.progress import Progress, TopicProgress
from neve.lake.tables.table_ref import WrittenFile


@dataclass(frozen=True)
class MicroBatch:
    """Ranges to read, by partition and offset; `whole` partitions are read to their end."""

    topic: str
    topic_id: str
    plans: tuple[PartitionPlan, ...]
    ranges: tuple[ScanRange, ...]
    whole: frozenset[int]


@dataclass(frozen=True)
class BatchResult:
    """The files to commit, and the offsets of the table after the commit."""

    files: tuple[WrittenFile, ...]
    letter_files: tuple[WrittenFile, ...]
    new: Progress
    rows: int
    bad: int
    failures: tuple[str, ...]
    stuck: frozenset[int] = frozenset()
    """Partitions with a range that ended early."""

    def reached(self, plan: PartitionPlan) -> int:
        """Return the offset below which all records of the partition are done."""
        topic = self.new.get(plan.topic_id)
        return plan.first if topic is None else topic.offsets.get(plan.partition, plan.first)


def next_micro_batch(
    plans: Sequence[PartitionPlan],
    *,
    batch_bytes: int,
    task_bytes: int,
    doubtful: Collection[int] = (),
) -> MicroBatch:
    """Return as many ranges as fit, at least one if there is any.

    A doubtful partition had a range that ended early. It gets at most one range: while that offset
    still cannot be read, reading and writing the records after it would be wasted at every step.
    """
    waiting = {plan.partition: plan_tasks([plan], max_bytes_per_task=task_bytes) for plan in plans}
    chosen: dict[int, list[ScanRange]] = {number: [] for number in waiting}
    size = 0
    while size < batch_bytes and any(
        ranges for number, ranges in waiting.items() if number not in doubtful or not chosen[number]
    ):
        for number, ranges in waiting.items():
            if chosen[number] and number in doubtful:
                continue
            if ranges and size < batch_bytes:
                size += ranges[0].bytes
                chosen[number].append(ranges.pop(0))
    topic, topic_id = (plans[0].topic, plans[0].topic_id) if plans else ("", "")
    return MicroBatch(
        topic,
        topic_id,
        tuple(plans),
        tuple(each for ranges in chosen.values() for each in ranges),
        frozenset(number for number, left in waiting.items() if not left),
    )


def combine_results(
    batch: MicroBatch, results: Sequence[RangeResult], *, started: Collection[int] = ()
) -> BatchResult:
    """Combine the results of the ranges, which may be in any order.

    `started` are the partitions for which the table has an offset.
    """
    kept: list[RangeResult] = []
    offsets: dict[int, int] = {}
    failures: list[str] = []
    stuck: set[int] = set()
    for plan in batch.plans:
        own = sorted(
            (each for each in results if each.task.partition == plan.partition),
            key=lambda each: each.task.first,
        )
        reached = plan.stop if plan.partition in batch.whole else plan.first
        for result in own:
            kept.append(result)
            if plan.partition not in batch.whole:
                reached = result.end
            if result.end < result.task.end:
                reached = result.end
                stuck.add(plan.partition)
                failures.append(f"{plan.topic}-{plan.partition}: {result.failure}")
                break
        if plan.failure is not None:
            failures.append(f"{plan.topic}-{plan.partition}: {plan.failure}")
        # A failed plan may have unknown offsets. If they are known, a partition that begins with a
        # failure gets its first offset: without one, it would count as new later.
        begins = plan.partition not in started and plan.end > 0
        if plan.failure is None or reached > plan.first or begins:
            offsets[plan.partition] = reached
    return BatchResult(
        tuple(file for each in kept for file in each.files),
        tuple(file for each in kept for file in each.letter_files),
        {batch.topic_id: TopicProgress(batch.topic, offsets)},
        sum(each.rows for each in kept),
        sum(each.bad for each in kept),
        tuple(failures),
        frozenset(stuck),
    )
