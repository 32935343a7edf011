"""What a pipeline reads next of a topic, and how far the table has come when that is done. Pure.

A portion takes from every partition in turn, so that none waits for another, up to so many bytes.
What is committed of a partition has no hole: where one range ends early, what lies behind it is
left for the next portion.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from neve.bucket.planning import PartitionPlan
from neve.lake.pipeline.range_task import RangeResult
from neve.lake.scan.task_planning import plan_tasks
from neve.lake.scan.tasks import OffsetRange
from neve.lake.tables.progress import Progress, TopicProgress
from neve.lake.tables.table_ref import WrittenFile


@dataclass(frozen=True)
class MicroBatch:
    """Ranges to read, by partition in the order of offsets; `whole` ones are read to their end."""

    topic: str
    topic_id: str
    plans: tuple[PartitionPlan, ...]
    ranges: tuple[OffsetRange, ...]
    whole: frozenset[int]


@dataclass(frozen=True)
class BatchResult:
    """What a portion came to: files to commit, and the offsets that the table then has."""

    files: tuple[WrittenFile, ...]
    letter_files: tuple[WrittenFile, ...]
    new: Progress
    rows: int
    bad: int
    failures: tuple[str, ...]
    stuck: frozenset[int] = frozenset()
    """Partitions of which a range ended early."""

    def reached(self, plan: PartitionPlan) -> int:
        """The offset of a partition that everything below is done."""
        topic = self.new.get(plan.topic_id)
        return plan.first if topic is None else topic.offsets.get(plan.partition, plan.first)


def next_micro_batch(
    plans: Sequence[PartitionPlan],
    *,
    portion_bytes: int,
    task_bytes: int,
    doubtful: Collection[int] = (),
) -> MicroBatch:
    """As many ranges as fit, at least one where there is any.

    Of a doubtful partition it is one at most: what lies behind a place that still cannot be passed
    would be read and written for nothing, again and again.
    """
    waiting = {plan.partition: plan_tasks([plan], max_bytes_per_task=task_bytes) for plan in plans}
    chosen: dict[int, list[OffsetRange]] = {number: [] for number in waiting}
    size = 0
    while size < portion_bytes and any(
        ranges for number, ranges in waiting.items() if number not in doubtful or not chosen[number]
    ):
        for number, ranges in waiting.items():
            if chosen[number] and number in doubtful:
                continue
            if ranges and size < portion_bytes:
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


def combine_results(portion: MicroBatch, results: Sequence[RangeResult]) -> BatchResult:
    """Put together what the ranges gave; results come in any order."""
    kept: list[RangeResult] = []
    offsets: dict[int, int] = {}
    failures: list[str] = []
    stuck: set[int] = set()
    for plan in portion.plans:
        own = sorted(
            (each for each in results if each.task.partition == plan.partition),
            key=lambda each: each.task.first,
        )
        reached = plan.stop if plan.partition in portion.whole else plan.first
        for result in own:
            kept.append(result)
            if plan.partition not in portion.whole:
                reached = result.end
            if result.end < result.task.end:
                reached = result.end
                stuck.add(plan.partition)
                failures.append(f"{plan.topic}-{plan.partition}: {result.failure}")
                break
        if plan.failure is not None:
            failures.append(f"{plan.topic}-{plan.partition}: {plan.failure}")
        if plan.failure is None or reached > plan.first:  # else it may not even have been seen
            offsets[plan.partition] = reached
    return BatchResult(
        tuple(file for each in kept for file in each.files),
        tuple(file for each in kept for file in each.letter_files),
        {portion.topic_id: TopicProgress(portion.topic, offsets)},
        sum(each.rows for each in kept),
        sum(each.bad for each in kept),
        tuple(failures),
        frozenset(stuck),
    )
