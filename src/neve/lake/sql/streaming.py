"""A Spark result as Arrow batches, a few partitions at a time.

Spark's own way to stream runs one partition after another, and its way to collect holds all rows.
Here a job takes as many partitions as earlier ones suggest will fill a window of memory: rows that
many partitions give few of come from all cores, and large ones one by one. The order is kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WINDOW_BYTES = 64 * 1024 * 1024
"""What one job should bring at most, going by those before it."""
FIRST_PARTITIONS = 2
JOBS_PER_CORE = 4


@contextlib.contextmanager
def tagged(context: Any, tag: str) -> Iterator[None]:
    """Jobs that are started in here can be cancelled by this tag, from any thread."""
    context.addJobTag(tag)
    context.setInterruptOnCancel(True)
    try:
        yield
    finally:
        context.removeJobTag(tag)


class ArrowStream:
    """The rows of one query."""

    def __init__(self, frame: DataFrame, schema: pa.Schema, tag: str) -> None:
        self._frame = frame
        self._schema = schema
        self._tag = tag
        self._context: Any = frame.sparkSession.sparkContext

    def batches(self, check: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        """All batches in order. `check` is called before each job and may raise."""
        left = self._limit()
        check()
        with tagged(self._context, self._tag):
            rows = self._rows()
            count = rows.getNumPartitions()
        done, size = 0, FIRST_PARTITIONS
        received = 0
        while done < count and left != 0:
            check()
            wanted = list(range(done, min(count, done + size)))
            for batch in self._job(rows, wanted):
                received += batch.nbytes
                part = batch if left is None else batch.slice(0, left)
                left = None if left is None else left - part.num_rows
                if part.num_rows:
                    yield part
            done += len(wanted)
            size = self._next_size(received // done)

    def _next_size(self, bytes_each: int) -> int:
        most = JOBS_PER_CORE * int(self._context.defaultParallelism)
        return max(1, min(most, WINDOW_BYTES // max(1, bytes_each)))

    def _job(self, rows: Any, partitions: list[int]) -> list[pa.RecordBatch]:
        """Run some partitions; their batches, in their order."""
        from pyspark.serializers import NoOpSerializer

        context = self._context
        with tagged(context, self._tag):
            place = context._jvm.PythonRDD.runJob(context._jsc.sc(), rows, partitions)
        with _connected(place) as stream:
            return [
                pa.ipc.read_record_batch(pa.py_buffer(data), self._schema)
                for data in NoOpSerializer().load_stream(stream)
            ]

    def _rows(self) -> Any:
        """Spark's rows as encoded batches. Whatever has to be shuffled is, in this call."""
        plan = self._limited_plan()
        found = self._java().toArrowBatchRdd(plan) if plan else self._java().toArrowBatchRdd()
        return found.toJavaRDD()

    def _limited_plan(self) -> Any:
        """What a plain LIMIT stands on: without it, partitions need not all be begun."""
        plan = self._java().queryExecution().executedPlan()
        plain = plan.getClass().getSimpleName() == "CollectLimitExec" and plan.offset() == 0
        return plan.child() if plain and plan.limit() >= 0 else None

    def _limit(self) -> int | None:
        return (
            int(self._java().queryExecution().executedPlan().limit())
            if (self._limited_plan() is not None)
            else None
        )

    def _java(self) -> Any:
        return self._frame._jdf


@contextlib.contextmanager
def _connected(place: Any) -> Iterator[Any]:
    """What a job gives, to be read. PySpark 4.1 hands out no socket beside it to be closed."""
    from pyspark.util import _create_local_socket

    given = _create_local_socket(place)
    stream, *sockets = given if isinstance(given, tuple) else (given,)
    try:
        yield stream
    finally:
        stream.close()
        for each in sockets:
            each.close()
