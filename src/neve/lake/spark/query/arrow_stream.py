"""Streams a Spark result as Arrow batches, a few partitions at a time, in bounded memory.

Spark's `toLocalIterator` runs one partition after another, and `collect` holds all rows in memory.
Here a job runs as many partitions as are expected to fill a memory window, from the sizes in
earlier jobs: small partitions run on all cores, large ones one by one. The order of rows is kept.
`spool` defines what a task returns: a few rows in memory, or a file that is read batch by batch.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from neve import runtime
from neve.lake.spark.query.spool import (
    BATCH_BYTES,
    DATA,
    FILE,
    SCHEMA,
    ResultLimits,
    Spooler,
    read_messages,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WINDOW_BYTES = 64 * 1024 * 1024
"""The target size of one job's rows, estimated from earlier jobs."""
FIRST_PARTITIONS = 2
JOBS_PER_CORE = 4
BATCH_SETTING = "spark.sql.execution.arrow.maxBytesPerBatch"


@contextlib.contextmanager
def job_settings(context: Any, tag: str) -> Iterator[None]:
    """Tag the jobs started in the block, so that any thread can cancel them.

    Also sets BATCH_BYTES for their tasks: session settings do not reach these jobs.
    """
    context.addJobTag(tag)
    context.setInterruptOnCancel(True)
    context.setLocalProperty(BATCH_SETTING, str(BATCH_BYTES))
    try:
        yield
    finally:
        context.setLocalProperty(BATCH_SETTING, None)
        context.removeJobTag(tag)


class ArrowStream:
    """The rows of one query.

    Tasks spool to files below `folder`. It is None if they run on other machines, where each
    returns its rows in memory.
    """

    def __init__(
        self,
        frame: DataFrame,
        schema: pa.Schema,
        tag: str,
        folder: Path | None,
        limits: ResultLimits,
    ) -> None:
        self._frame = frame
        self._schema = schema
        self._tag = tag
        self._folder = None if folder is None else folder / runtime.token(8).hex()
        self._limits = limits
        self._context: Any = frame.sparkSession.sparkContext

    def batches(self, check: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        """Yield all batches in order. `check` is called before each job and may raise."""
        try:
            yield from self._batches(check)
        finally:
            if self._folder is not None:  # includes files of cancelled tasks
                shutil.rmtree(self._folder, ignore_errors=True)

    def _batches(self, check: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        left, frame = self._limited()
        check()
        with job_settings(self._context, self._tag):
            rows = self._rows(frame)
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

    def _job(self, rows: Any, partitions: list[int]) -> Iterator[pa.RecordBatch]:
        """Run some partitions. Yields their batches in order."""
        for data, file in self._run(rows, partitions):
            for message in read_messages(data, file):
                yield pa.ipc.read_record_batch(message, self._schema)

    def _run(self, rows: Any, partitions: list[int]) -> list[tuple[bytes | None, str | None]]:
        from pyspark.serializers import NoOpSerializer

        context = self._context
        with job_settings(context, self._tag):
            place = context._jvm.PythonRDD.runJob(context._jsc.sc(), rows, partitions)
        schema = pa.schema([(DATA, pa.binary()), (FILE, pa.string())])
        found: list[tuple[bytes | None, str | None]] = []
        with _connected(place) as stream:
            for encoded in NoOpSerializer().load_stream(stream):
                batch = pa.ipc.read_record_batch(pa.py_buffer(encoded), schema)
                columns = (batch.column(name).to_pylist() for name in (DATA, FILE))
                found += zip(*columns, strict=True)
        return found

    def _rows(self, frame: DataFrame) -> Any:
        """Return the spooled rows as an RDD. Shuffles run in this call."""
        names = {name.lower() for name in frame.columns if name.isidentifier()}
        if len(names) != len(frame.columns):  # mapInArrow matches columns by name
            frame = frame.toDF(*(f"c{at}" for at in range(len(frame.columns))))
        if self._folder is not None:
            self._folder.mkdir(mode=0o700)
        folder = None if self._folder is None else str(self._folder)
        spooled: Any = frame.mapInArrow(Spooler(folder, self._limits), SCHEMA)
        return spooled._jdf.toArrowBatchRdd().toJavaRDD()

    def _limited(self) -> tuple[int | None, DataFrame]:
        """Return the limit of a plain LIMIT, or None, and the rows below it.

        With a limit, not all partitions need to run.
        """
        java: Any = self._frame._jdf
        execution = java.queryExecution()
        plan, top = execution.executedPlan(), execution.analyzed()
        plain = _kind(plan) == "CollectLimitExec" and plan.offset() == 0 and plan.limit() >= 0
        if not plain or _kind(top) != "GlobalLimit" or _kind(top.child()) != "LocalLimit":
            return None, self._frame
        from pyspark.sql import DataFrame

        spark: Any = self._frame.sparkSession
        dataset = self._context._jvm.org.apache.spark.sql.classic.Dataset
        each = dataset.ofRows(spark._jsparkSession, top.child())
        return int(plan.limit()), DataFrame(each, spark)


def _kind(plan: Any) -> str:
    return str(plan.getClass().getSimpleName())


@contextlib.contextmanager
def _connected(place: Any) -> Iterator[Any]:
    """Open the result of a job. PySpark 4.1 returns a stream, later versions also a socket."""
    from pyspark.util import _create_local_socket

    given = _create_local_socket(place)
    stream, *sockets = given if isinstance(given, tuple) else (given,)
    try:
        yield stream
    finally:
        stream.close()
        for each in sockets:
            each.close()
