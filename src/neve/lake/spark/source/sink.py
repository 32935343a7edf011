"""Writing rows to topics, through the brokers, as Spark's Kafka sink does.

Each task has one idempotent producer with acks=all and ends only when every row of it is
acknowledged. So every row is written at least once, in the order of its task within a partition; a
row is written twice only where Spark runs its task, or a stream's batch, a second time.
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
    # Java clients, and so Spark's Kafka sink, choose a key's partition like this.
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
    """Brokers did not take some rows of a task, which fails; Spark may run it again."""


@dataclass(frozen=True)
class WriteOptions:
    """Where rows go: a topic for all of them or None, and how the producer is set up."""

    topic: str | None
    producer: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Options as Spark hands them over; one that means nothing is refused by name."""
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
                    f"there is no option {option!r} of a write: {', '.join(WRITE_OPTIONS)} and "
                    f"{KAFKA_PREFIX}… of the producer's"
                )
        if not producer.get(SERVERS):
            raise InvalidError(f"give the option {KAFKA_PREFIX}{SERVERS}: rows go to brokers")
        for name, value in PRODUCER_FIXED.items():
            if producer.get(name, value) not in (value, "-1" if name == "acks" else value):
                raise InvalidError(f"{KAFKA_PREFIX}{name} is {value} here: leave it out")
        return cls(topic, {**PRODUCER_DEFAULTS, **producer, **PRODUCER_FIXED})


@dataclass
class RowsWritten(WriterCommitMessage):  # type: ignore[misc]
    """How many rows a task wrote."""

    rows: int


def check_columns(schema: StructType, options: WriteOptions) -> None:
    """Refuse rows without a value or a topic, and columns of another type; others are ignored."""
    given = {each.name: each.dataType for each in schema.fields}
    if "value" not in given:
        raise InvalidError("the rows to write have no column value")
    if options.topic is None and "topic" not in given:
        raise InvalidError("the rows to write have no column topic: add it, or give the option")
    for name, kinds in COLUMN_TYPES.items():
        if name in given and given[name] not in kinds:
            wanted = " or ".join(kind.simpleString() for kind in kinds)
            raise InvalidError(
                f"the column {name} is {given[name].simpleString()}: it has to be {wanted}"
            )
    if "headers" in given and not _is_headers(given["headers"]):
        raise InvalidError(
            f"the column headers is {given['headers'].simpleString()}: it has to be "
            "array<struct<key:string,value:binary>>"
        )


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    parts = [(each.name, each.dataType) for each in kind.elementType.fields]
    return parts == [("key", StringType()), ("value", BinaryType())]


class _Writing:
    """What batch and stream writers share: one task's rows to the brokers."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> RowsWritten:
        return RowsWritten(write_rows(self._options, iterator))


class NeveWriter(_Writing, DataSourceArrowWriter):  # type: ignore[misc]
    """A batch."""


class NeveStreamWriter(_Writing, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Each batch of a stream."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is left to do: rows count from their acknowledgement on."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing can be taken back: what was acknowledged stays."""


def write_rows(options: WriteOptions, batches: Iterator[pa.RecordBatch]) -> int:
    """Send all rows and wait until each is acknowledged; their number."""
    from confluent_kafka import KafkaException, Producer

    try:
        producer = Producer(dict(options.producer))
    except KafkaException as error:
        raise InvalidError(f"the producer refuses its settings: {error}") from error
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
            raise InvalidError("a row to write has no topic: its column is null")
        if row.get("partition") is None:
            row.pop("partition", None)
        elif row["partition"] < 0:  # which librdkafka would take for none
            raise InvalidError(f"a row to write has the partition {row['partition']}")
        headers = row.pop("headers", None)
        if headers:
            row["headers"] = [_header(each) for each in headers]
        yield row


def _header(given: dict[str, Any] | None) -> tuple[str, bytes | None]:
    if given is None or given["key"] is None:
        raise InvalidError("a row to write has a header without a key: it is null")
    return given["key"], given["value"]
