"""Rows on their way to a producer: what they become, and what cannot be written."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from neve.errors import InvalidError
from neve.lake.spark.source.sink import RowsNotWrittenError, WriteOptions, check_columns, write_rows

SERVERS = {"kafka.bootstrap.servers": "nowhere:1"}
LEAST: dict[str, DataType] = {"value": BinaryType(), "topic": StringType()}
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", HEADERS),
        ("other", pa.int64()),
    ]
)


class Producer:
    """Takes rows, and says of each that it was written, or that it was not."""

    def __init__(self, error: str | None = None) -> None:
        self.sent: list[dict[str, Any]] = []
        self.settings: dict[str, str] = {}
        self._error = error

    def __call__(self, settings: dict[str, str]) -> Producer:
        self.settings = settings
        return self

    def produce(self, *, on_delivery: Any, **row: Any) -> None:
        self.sent.append(row)
        on_delivery(self._error, mock.Mock(**{"topic.return_value": row["topic"]}))

    def poll(self, _: float) -> None: ...

    def flush(self, _: float) -> int:
        return 0


def written(
    rows: list[dict[str, Any]], producer: Producer | None = None, **options: str
) -> list[dict[str, Any]]:
    producer = producer or Producer()
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    with mock.patch("confluent_kafka.Producer", producer):
        assert write_rows(WriteOptions.parse({**SERVERS, **options}), iter([batch])) == len(rows)
    return producer.sent


def test_nulls_are_left_to_the_producer_and_other_columns_are_passed_over() -> None:
    given = {"value": "v", "topic": "t", "other": 1}
    headers = [{"key": "h", "value": None}, {"key": "h", "value": b"2"}]
    assert written([given, {**given, "value": None, "partition": 3, "headers": headers}]) == [
        {"key": None, "value": "v", "topic": "t"},
        {
            "key": None,
            "value": None,
            "topic": "t",
            "partition": 3,
            "headers": [("h", None), ("h", b"2")],
        },
    ]


def test_the_option_names_the_topic_of_all_rows() -> None:
    rows = written([{"value": "v", "topic": "t"}, {"value": "v"}], topic="all")
    assert [row["topic"] for row in rows] == ["all", "all"]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"value": "v"}, "null topic"),
        ({"value": "v", "topic": "t", "partition": -1}, "has the negative partition -1"),
        ({"topic": "t", "headers": [{"key": None, "value": b""}]}, "header with a null key"),
        ({"topic": "t", "headers": [None]}, "header with a null key"),
    ],
)
def test_what_cannot_be_written_is_told(row: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidError, match=told):
        written([row])


def test_a_row_that_is_not_acknowledged_fails_the_task() -> None:
    with pytest.raises(RowsNotWrittenError, match="2 of 2 rows were not written: t: gone"):
        written([{"value": "v", "topic": "t"}] * 2, Producer("gone"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "kafka.bootstrap.servers"),
        ({**SERVERS, "kafka.acks": "1"}, "kafka.acks must be all"),
        ({**SERVERS, "kafka.enable.idempotence": "false"}, "enable.idempotence must be true"),
        ({**SERVERS, "subscribe": "t"}, "unknown option 'subscribe'"),
    ],
)
def test_options_that_a_write_has_not(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidError, match=told):
        WriteOptions.parse(options)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"key": BinaryType(), "topic": StringType()}, "no column value"),
        ({"value": BinaryType()}, "no column topic"),
        ({**LEAST, "value": LongType()}, "value is bigint: it must be string or binary"),
        ({**LEAST, "partition": LongType()}, "partition is bigint"),
        ({**LEAST, "headers": MapType(StringType(), BinaryType())}, "headers is map"),
    ],
)
def test_columns_that_cannot_be_written_are_told(columns: dict[str, DataType], told: str) -> None:
    with pytest.raises(InvalidError, match=told):
        check_columns(_schema(columns), WriteOptions.parse(SERVERS))


def _schema(columns: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])
