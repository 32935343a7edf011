"""The Spark task of a pipeline: reads an offset range, decodes it, writes Parquet files.

Each record of the range becomes exactly one row or one dead letter with its reason. If a partition
cannot be read further (a damaged batch, removed offsets), the range ends early: the task keeps what
it has read and returns the offset that it reached. Any other error fails the task, and Spark
retries it.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from neve import runtime
from neve.bucket.decode import COLUMNS
from neve.bucket.model import PARTITION_ERRORS
from neve.lake.scan.tasks import ScanRange, StoreRef, read_range
from neve.lake.tables.columns import DEAD_LETTER_SCHEMA, KAFKA_COLUMN, KAFKA_STRUCT, TIMESTAMP
from neve.lake.tables.data_files import write_files
from neve.lake.tables.table_ref import TableRef, WrittenFile
from neve.lake.values import BadValue, Decoded, ValueFormat, decode_strictly
from neve.lake.values.times import MICROSECONDS_MAX, MICROSECONDS_MIN

TOPIC_ID = "topic_id"


@dataclass(frozen=True)
class TopicTask:
    """The common part of a topic's tasks. Without `letters`, bad values are only counted.

    `strict` makes values bad that have a field without a column. `stop` ends a range at its first
    bad value, as if the log could not be read further.
    """

    store: StoreRef
    value: ValueFormat
    schema: pa.Schema
    table: TableRef
    letters: TableRef | None = None
    strict: bool = False
    stop: bool = False


@dataclass(frozen=True)
class RangeResult:
    """The result of one range: the files contain every offset of it below `end`.

    `failure` is why the range ended early; `unknown` has fields without a column in the table.
    """

    task: ScanRange
    end: int
    files: tuple[WrittenFile, ...] = ()
    letter_files: tuple[WrittenFile, ...] = ()
    rows: int = 0
    bad: int = 0
    unknown: tuple[pa.Schema, ...] = ()
    failure: str = ""


def run_range(work: TopicTask, task: ScanRange) -> RangeResult:
    """Read, decode and write one range."""
    reading = _Reading(work, task)
    files = write_files(work.table, reading.rows())
    letter_files = (
        write_files(work.letters, reading.letters) if work.letters and reading.letters else []
    )
    _settle()
    return RangeResult(
        task,
        reading.end,
        tuple(files),
        tuple(letter_files),
        reading.row_count,
        reading.bad_count,
        tuple(reading.unknown),
        reading.failure,
    )


@functools.cache
def _settle() -> None:
    """Exclude what a worker has loaded so far from garbage collections.

    Spark collects garbage in a worker after each task. Traversing all modules takes longer than
    everything else between two tasks.
    """
    gc.collect()
    gc.freeze()


class _Reading:
    """One pass over a range. Dead letters stay in memory: they are few, and a range is bounded."""

    def __init__(self, work: TopicTask, task: ScanRange) -> None:
        self._work = work
        self._task = task
        self.end = task.first
        self.letters: list[pa.RecordBatch] = []
        self.unknown: list[pa.Schema] = []
        self.row_count = self.bad_count = 0
        self.failure = ""

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the good rows with the table's columns."""
        try:
            for batch in read_range(self._work.store, self._task, COLUMNS):
                decoded = self._decoded(batch)
                if decoded.bad and self._work.stop:
                    yield self._before_the_first_bad(batch, decoded)
                    return
                yield self._good(batch, decoded)
                self.end = batch.column("offset")[-1].as_py() + 1
        except PARTITION_ERRORS as error:
            self.failure = str(error)
        else:
            self.end = self._task.end

    def _decoded(self, batch: pa.RecordBatch) -> Decoded:
        work = self._work
        values = batch.column("value")
        if work.strict:
            decoded = decode_strictly(work.value, values, work.schema)
        else:
            decoded = work.value.decode(values, work.schema)
        if decoded.unknown is not None and decoded.unknown not in self.unknown:
            self.unknown.append(decoded.unknown)
        return decoded

    def _good(self, batch: pa.RecordBatch, decoded: Decoded) -> pa.RecordBatch:
        if decoded.bad:
            self._put_aside(batch, decoded.bad)
        good = batch if not decoded.bad else batch.take(decoded.good)
        self.row_count += good.num_rows
        return self._with_origin(decoded.rows, good)

    def _before_the_first_bad(self, batch: pa.RecordBatch, decoded: Decoded) -> pa.RecordBatch:
        """End the range before its first bad value. Returns the rows before it."""
        first = decoded.bad[0]
        self.end = batch.column("offset")[first.row].as_py()
        self.failure = (
            f"offset {self.end}: {first.reason}; on_error is stop: correct the value's schema, or "
            "choose dead_letters or skip"
        )
        # Every row before it is good.
        self.row_count += first.row
        return self._with_origin(decoded.rows.slice(0, first.row), batch.slice(0, first.row))

    def _with_origin(self, values: pa.RecordBatch, records: pa.RecordBatch) -> pa.RecordBatch:
        ids = pa.repeat(pa.scalar(self._task.topic_id, pa.string()), records.num_rows)
        return with_origin(values, records.append_column(TOPIC_ID, ids))

    def _put_aside(self, batch: pa.RecordBatch, bad: Sequence[BadValue]) -> None:
        self.bad_count += len(bad)
        if self._work.letters is not None:
            self.letters.append(letters_of(batch, bad, self._task.topic_id))


def with_origin(values: pa.RecordBatch, records: pa.RecordBatch) -> pa.RecordBatch:
    """Return the value's columns with the struct that identifies the record of each row.

    The records have a column with the topic id: after a topic is deleted and recreated, its name,
    partition and offset identify another record.
    """
    origin = pa.StructArray.from_arrays(
        [_cast(records.column(field.name), field.type) for field in KAFKA_STRUCT],
        fields=list(KAFKA_STRUCT),
    )
    schema = values.schema.append(pa.field(KAFKA_COLUMN, KAFKA_STRUCT))
    return pa.RecordBatch.from_arrays([*values.columns, origin], schema=schema)


def letters_of(batch: pa.RecordBatch, bad: Sequence[BadValue], topic_id: str) -> pa.RecordBatch:
    """Return the bad records unchanged, each with its reason."""
    records = batch.take(pa.array([each.row for each in bad], pa.int64()))
    count = records.num_rows
    columns = {name: records.column(name) for name in records.schema.names}
    columns |= {
        TOPIC_ID: pa.array([topic_id] * count, pa.string()),
        "reason": pa.array([each.reason for each in bad], pa.string()),
        "at": pa.array([runtime.now_ms() * 1000] * count, pa.int64()),
    }
    return pa.RecordBatch.from_arrays(
        [_cast(columns[field.name], field.type) for field in DEAD_LETTER_SCHEMA],
        schema=DEAD_LETTER_SCHEMA,
    )


def _cast(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    fitting = column if column.type == wanted else column.cast(wanted)
    return _within_years(fitting) if wanted == TIMESTAMP else fitting


def _within_years(times: pa.Array) -> pa.Array:
    """Replace times before year 1 or after year 9999 by null.

    Producers may write any number, for example microseconds. Iceberg's partitions and statistics
    cannot represent such a day, and one record would block its topic.
    """
    counts = times.view(pa.int64())
    found = pc.min_max(counts)
    least, most = found["min"].as_py(), found["max"].as_py()
    if least is None or (least >= MICROSECONDS_MIN and most <= MICROSECONDS_MAX):
        return times
    inside = pc.and_(
        pc.greater_equal(counts, MICROSECONDS_MIN), pc.less_equal(counts, MICROSECONDS_MAX)
    )
    return pc.if_else(inside, times, pa.scalar(None, TIMESTAMP))
