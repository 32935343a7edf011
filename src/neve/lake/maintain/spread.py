"""Dealing the partitions of a maintenance job out to Spark's tasks.

A task opens the bucket itself and does its partitions one after the other, so that its memory is
that of one: a merge holds one new segment and a few of its inputs. Tasks may be retried, run twice
by speculation, or die: every piece of work is safe to be done again, and beside itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from neve import runtime
from neve.bucket.maintain.jobs import Job, Outcome, Unit, do_units
from neve.errors import NeveError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A Python task costs some 150 ms: a few for each core let fast ones make up for slow ones.
TASKS_PER_CORE = 4
OUTCOME_SCHEMA = "outcome string"
_ARROW_SCHEMA = pa.schema([("outcome", pa.string())])
POLL_SECONDS = 0.5


class SparkJobError(NeveError):
    """Spark could not run a job; the message is its own."""


def deal(units: Sequence[Unit], tasks: int) -> list[list[Unit]]:
    """Units in so many hands, as even in bytes and in number as they can be dealt one by one."""
    hands: list[list[Unit]] = [[] for _ in range(max(1, min(tasks, len(units))))]
    held = [(0, 0, at) for at in range(len(hands))]
    for unit in sorted(units, key=lambda unit: -unit.bytes):
        size, count, at = min(held)
        hands[at].append(unit)
        held[at] = (size + unit.bytes, count + 1, at)
    return hands


async def run_on_spark(
    spark: SparkSession,
    job: Job,
    units: Sequence[Unit],
    *,
    tasks: int | None = None,
    told: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[Outcome]:
    """Do all units on Spark; outcomes in the order of the units.

    `told` is given how many tasks have ended, of how many.
    """
    if not units:
        return []
    hands = deal(units, tasks or TASKS_PER_CORE * _cores(spark))
    group = f"neve-maintain-{runtime.token(8).hex()}"
    work = runtime.spawn(runtime.offload(_collect, spark, job, hands, group))
    try:
        while not work.done():
            told(_ended_tasks(spark, group), len(hands))
            await runtime.sleep(POLL_SECONDS)
        rows = await work
    finally:
        if not work.done():
            _cancel(spark, group)
            work.cancel()
    told(len(hands), len(hands))
    found = {(row.topic, row.partition): row for row in rows}
    return [found[unit.topic, unit.partition] for unit in units]


def _collect(spark: SparkSession, job: Job, hands: list[list[Unit]], group: str) -> list[Outcome]:
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        context.setJobGroup(group, f"neve maintain {job.kind}", interruptOnCancel=True)
    numbers = spark.range(0, len(hands), 1, numPartitions=len(hands))
    done = numbers.mapInArrow(_Task(job, hands), OUTCOME_SCHEMA)
    try:
        rows = done.collect()
    except Exception as error:
        raise SparkJobError(f"neve maintain {job.kind} failed on Spark: {error}") from error
    return [Outcome(**json.loads(row.outcome)) for row in rows]


class _Task:
    """What a worker calls with the numbers of the hands that it is dealt."""

    def __init__(self, job: Job, hands: list[list[Unit]]) -> None:
        self._job = job
        self._hands = hands

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                outcomes = runtime.run(do_units(self._job, self._hands[number]))
                texts = [json.dumps(asdict(outcome)) for outcome in outcomes]
                yield pa.RecordBatch.from_pydict({"outcome": texts}, schema=_ARROW_SCHEMA)


def _cores(spark: SparkSession) -> int:
    context = getattr(spark, "sparkContext", None)
    found: Any = None if context is None else context.defaultParallelism
    return int(found or 2)


def _ended_tasks(spark: SparkSession, group: str) -> int:
    """How many tasks of the job have ended, as far as Spark tells."""
    context = getattr(spark, "sparkContext", None)
    if context is None:
        return 0
    tracker = context.statusTracker()
    ended = 0
    for number in tracker.getJobIdsForGroup(group):
        about = tracker.getJobInfo(number)
        for stage in () if about is None else about.stageIds:
            info = tracker.getStageInfo(stage)
            ended += 0 if info is None else info.numCompletedTasks
    return ended


def _cancel(spark: SparkSession, group: str) -> None:
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        context.cancelJobGroup(group)
