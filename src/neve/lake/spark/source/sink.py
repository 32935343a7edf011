"""Writes rows to topics through the brokers, as Spark's Kafka sink does.

Each task has one idempotent producer with acks=all, and ends when all of its rows are acknowledged.
Every row is written at least once, and rows of a task keep their order within a partition. A row is
written twice only if Spark repeats its task, or a stream repeats a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from neve.errors import InvalidError, NeveError
from neve.lake.scan.options import KAFKA_PREFIX

if TYPE_CHECKING:
    import pyarrow as pa

SERVERS = "bootstrap.servers"
WRITE_OPTIONS = ("topic", "includeHeaders")
_SPARKS_OWN = ("checkpointlocation", "path", "queryname")
PRODUCER_DEFAULTS = {
    # The partitioner of Java clients, and so of Spark's Kafka sink.
    "partitioner": "murmur2_random",
    "linger.ms": "20",
}
PRODUCER_FIXED = {"enable.idempotence": "true", "acks": "all"}
TEXT_OR_BYTES: tuple[DataType, ...] = (StringType(), BinaryType())
COLUMN_TYPES: Mapping[str, tuple[DataType, ...]] = {
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "key": TEXT_OR_BYTES,
    "value": TEXT_OR_BYTES,
}
FLUSH_SECONDS = 1.0


class RowsNotWrittenError(NeveError):
    """Brokers rejected some rows of a task. The task fails; Spark may retry it."""


@dataclass(frozen=True)
class WriteOptions:
    """The topic for all rows, or None if a column names it, and the producer's settings."""

    topic: str | None
    producer: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Parse the options that Spark passes. Raises InvalidError for an unknown one."""
        known = {name.lower() for name in WRITE_OPTIONS}
        producer: dict[str, str] = {}
        topic: str | None = None
        for option, text in options.items():
            name = option.lower()
            if name.startswith(KAFKA_PREFIX):
                producer[name.removeprefix(KAFKA_PREFIX)] = text
            elif name == "topic":
                topic = text
            elif name not in known and name not in _SPARKS_OWN:
                raise InvalidError(
                    f"unknown option {option!r} of a write: use {', '.join(WRITE_OPTIONS)}, or "
                    f"{KAFKA_PREFIX}… for the producer"
                )
        if not producer.get(SERVERS):
            raise InvalidError(
                f"the option {KAFKA_PREFIX}{SERVERS} is missing: name the brokers to write to"
            )
        for name, value in PRODUCER_FIXED.items():
            if producer.get(name, value) not in (value, "-1" if name == "acks" else value):
                raise InvalidError(f"{KAFKA_PREFIX}{name} must be {value}: remove the option")
        return cls(topic, {**PRODUCER_DEFAULTS, **producer, **PRODUCER_FIXED})


@dataclass
class RowsWritten(WriterCommitMessage):  # type: ignore[misc]
    """How many rows a task wrote."""

    rows: int


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Raise InvalidError for rows without value or topic, and for columns of a wrong type."""
    given = {each.name: each.dataType for each in schema.fields}
    if "value" not in given:
        raise InvalidError("the rows to write have no column value")
    if options.topic is None and "topic" not in given:
        raise InvalidError("the rows to write have no column topic: add it, or set the option")
    for name, kinds in COLUMN_TYPES.items():
        if name in given and given[name] not in kinds:
            wanted = " or ".join(kind.simpleString() for kind in kinds)
            raise InvalidError(
                f"the column {name} is {given[name].simpleString()}: it must be {wanted}"
            )
    if "headers" in given and not _is_headers(given["headers"]):
        raise InvalidError(
            f"the column headers is {given['headers'].simpleString()}: it must be "
            "array<struct<key:string,value:binary>>"
        )


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    parts = [(each.name, each.dataType) for each in kind.elementType.fields]
    return parts == [("key", StringType()), ("value", BinaryType())]


class _Writing:
    """The part that batch and stream writers share: sending the rows of one task."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        return RowsWritten(write_rows(self._options, iterator))


class NeveWriter(_Writing, DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a batch."""


class NeveStreamWriter(_Writing, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes the batches of a stream."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: rows are written when they are acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: acknowledged rows cannot be withdrawn."""


def write_rows(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> int:
    """Send all rows and wait for their acknowledgements. Returns the number of rows.

    Raises RowsNotWrittenError if a row is rejected.
    """
    from confluent_kafka import KafkaException, Producer

    try:
        producer = Producer(dict(options.producer))
    except KafkaException as error:
        raise InvalidError(f"invalid producer settings: {error}") from error
    failures: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(f"{message.topic()}: {error}")

    rows = 0
    for batch in batches:
        for row in _messages(batch, options.topic):
            _send(producer, row, delivered)
            rows += 1
        producer.poll(0)
        if failures:
            break
    while producer.flush(FLUSH_SECONDS) > 0:
        pass
    if failures:
        raise RowsNotWrittenError(f"{len(failures)} of {rows} rows were not written: {failures[0]}")
    return rows


def _send(producer: Any, row: dict[str, Any], delivered: Any) -> None:
    while True:
        try:
            producer.produce(**row, on_delivery=delivered)
            return
        except BufferError:  # the queue is full: acknowledgements make room
            producer.poll(FLUSH_SECONDS)


def _messages(batch: pa.RecordBatch, topic: str | None) -> Iterator[dict[str, Any]]:
    names = [name for name in batch.schema.names if name in (*COLUMN_TYPES, "headers")]
    columns = [batch.column(name).to_pylist() for name in names]
    for values in zip(*columns, strict=True):
        row = dict(zip(names, values, strict=True))
        row["topic"] = topic if topic is not None else row.get("topic")
        if row["topic"] is None:
            raise InvalidError("a row to write has a null topic")
        if row.get("partition") is None:
            row.pop("partition", None)
        elif row["partition"] < 0:  # librdkafka takes it as "not set"
            raise InvalidError(f"a row to write has the negative partition {row['partition']}")
        headers = row.pop("headers", None)
        if headers:
            row["headers"] = [_header(each) for each in headers]
        yield row


def _header(given: dict[str, Any] | None) -> tuple[str, bytes | None]:
    if given is None or given["key"] is None:
        raise InvalidError("a row to write has a header with a null key")
    return given["key"], given["value"]
