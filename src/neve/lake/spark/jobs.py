"""Neve's own work as Spark jobs: the tasks of a pipeline, and the maintenance of a bucket.

A maintenance task opens the bucket itself and works on one partition at a time, which bounds its
memory: a merge holds one new segment and a few of its inputs. Spark may retry a task, run it twice
by speculation, or lose it: every unit of work can be repeated, also concurrently with itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from neve import runtime
from neve.bucket.maintain.jobs import Job, Outcome, Unit, do_units
from neve.errors import NeveError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Starting a Python task costs about 150 ms. With a few tasks per core the load is balanced.
TASKS_PER_CORE = 4
OUTCOME_SCHEMA = "outcome string"
_ARROW_SCHEMA = pa.schema([("outcome", pa.string())])
POLL_SECONDS = 0.5

Input = TypeVar("Input")
Output = TypeVar("Output")


class SparkJobError(NeveError):
    """Spark failed to run a job; the message is Spark's."""


def run_tasks(
    spark: SparkSession, call: Callable[[Input], Output], inputs: Sequence[Input]
) -> list[Output]:
    """Call a function with each input, in one Spark task each. Returns the results in order."""
    found: list[Output] = spark.sparkContext.parallelize(inputs, len(inputs)).map(call).collect()
    return found


def assign_units(units: Sequence[Unit], tasks: int) -> list[list[Unit]]:
    """Assign units to at most `tasks` tasks, evenly by bytes and then by number."""
    assigned: list[list[Unit]] = [[] for _ in range(max(1, min(tasks, len(units))))]
    loads = [(0, 0, at) for at in range(len(assigned))]
    for unit in sorted(units, key=lambda unit: -unit.bytes):
        size, count, at = min(loads)
        assigned[at].append(unit)
        loads[at] = (size + unit.bytes, count + 1, at)
    return assigned


async def run_maintenance(
    spark: SparkSession,
    job: Job,
    units: Sequence[Unit],
    *,
    tasks: int | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[Outcome]:
    """Run a maintenance job on Spark. Returns the outcomes in the order of the units.

    `on_progress` is called with the number of completed tasks and the number of all tasks. Raises
    SparkJobError if Spark fails.
    """
    if not units:
        return []
    assigned = assign_units(units, tasks or TASKS_PER_CORE * _cores(spark))
    group = f"neve-maintain-{runtime.token(8).hex()}"
    work = runtime.spawn(runtime.offload(_collect, spark, job, assigned, group))
    try:
        while not work.done():
            on_progress(_completed_tasks(spark, group), len(assigned))
            await runtime.sleep(POLL_SECONDS)
        rows = await work
    finally:
        if not work.done():
            _cancel(spark, group)
            work.cancel()
    on_progress(len(assigned), len(assigned))
    found = {(row.topic, row.partition): row for row in rows}
    return [found[unit.topic, unit.partition] for unit in units]


def _collect(
    spark: SparkSession, job: Job, assigned: list[list[Unit]], group: str
) -> list[Outcome]:
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        context.setJobGroup(group, f"neve maintain {job.kind}", interruptOnCancel=True)
    numbers = spark.range(0, len(assigned), 1, numPartitions=len(assigned))
    done = numbers.mapInArrow(_MaintenanceTask(job, assigned), OUTCOME_SCHEMA)
    try:
        rows = done.collect()
    except Exception as error:
        raise SparkJobError(f"neve maintain {job.kind} failed on Spark: {error}") from error
    return [Outcome(**json.loads(row.outcome)) for row in rows]


class _MaintenanceTask:
    """Called in a worker with task numbers; runs the units assigned to each."""

    def __init__(self, job: Job, assigned: list[list[Unit]]) -> None:
        self._job = job
        self._assigned = assigned

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                outcomes = runtime.run(do_units(self._job, self._assigned[number]))
                texts = [json.dumps(asdict(outcome)) for outcome in outcomes]
                yield pa.RecordBatch.from_pydict({"outcome": texts}, schema=_ARROW_SCHEMA)


def _cores(spark: SparkSession) -> int:
    context = getattr(spark, "sparkContext", None)
    found: Any = None if context is None else context.defaultParallelism
    return int(found or 2)


def _completed_tasks(spark: SparkSession, group: str) -> int:
    """Return how many tasks of the job Spark reports as completed."""
    context = getattr(spark, "sparkContext", None)
    if context is None:
        return 0
    tracker = context.statusTracker()
    completed = 0
    for number in tracker.getJobIdsForGroup(group):
        about = tracker.getJobInfo(number)
        for stage in () if about is None else about.stageIds:
            info = tracker.getStageInfo(stage)
            completed += 0 if info is None else info.numCompletedTasks
    return completed


def _cancel(spark: SparkSession, group: str) -> None:
    context = getattr(spark, "sparkContext", None)
    if context is not None:
        context.cancelJobGroup(group)
