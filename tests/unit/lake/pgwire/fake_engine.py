"""An engine without Spark: a few scripted queries, and a record of what was asked of it."""

from __future__ import annotations

import datetime
import decimal
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from neve.errors import InvalidError

BATCH_ROWS = 10_000


@dataclass(frozen=True)
class Column:
    name: str
    type: pa.DataType
    nullable: bool = True


@dataclass(frozen=True)
class Relation:
    name: str
    kind: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Result:
    schema: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]


class EngineError(InvalidError):
    sqlstate = "42703"
    position = 8
    hint = "Try another."


ORDERS = Relation(
    "orders",
    "topic",
    (
        Column("key", pa.binary()),
        Column("value", pa.binary()),
        Column("topic", pa.string(), False),
        Column("partition", pa.int32(), False),
        Column("offset", pa.int64(), False),
        Column("timestamp", pa.timestamp("us", "UTC"), False),
    ),
)
CLICKS = Relation(
    "lake.clicks",
    "table",
    (
        Column("id", pa.int64(), False),
        Column("price", pa.decimal128(10, 2)),
        Column("tags", pa.list_(pa.string())),
        Column("_kafka", pa.struct([("offset", pa.int64())])),
    ),
)
DOTTED = Relation("orders.v1", "topic", (Column("key", pa.binary()),))

MOMENT = datetime.datetime(2026, 1, 31, 12, 30, 15, 250_000, tzinfo=datetime.UTC)
EVERY_TYPE: dict[str, tuple[pa.DataType, Any]] = {
    "bool": (pa.bool_(), True),
    "int2": (pa.int16(), -2),
    "int4": (pa.int32(), 2**31 - 1),
    "int8": (pa.int64(), -(2**63)),
    "float4": (pa.float32(), 1.5),
    "float8": (pa.float64(), -2.25),
    "numeric": (pa.decimal128(20, 4), decimal.Decimal("-12345.6700")),
    "text": (pa.string(), "grün 'n' \\ Bäume"),
    "bytea": (pa.binary(), b"\x00\xffhi"),
    "timestamptz": (pa.timestamp("us", "UTC"), MOMENT),
    "timestamp": (pa.timestamp("us"), MOMENT.replace(tzinfo=None)),
    "date": (pa.date32(), datetime.date(1999, 12, 31)),
    "time": (pa.time64("us"), datetime.time(23, 59, 59, 1)),
    "uuid": (pa.uuid(), uuid.UUID(int=2**127 + 5)),
    "jsonb": (pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]), {"a": 1, "b": ["x"]}),
    "map": (pa.map_(pa.string(), pa.int32()), [("k", 1)]),
    "ints": (pa.list_(pa.int32()), [1, None, 3]),
    "texts": (pa.list_(pa.string()), ["a b", 'q"', "", "NULL", None]),
}


def every_type() -> pa.Table:
    """A row of values, then a row of nulls."""
    arrays = []
    for kind, value in EVERY_TYPE.values():
        raw = value.bytes if isinstance(value, uuid.UUID) else value
        arrays.append(pa.array([raw, None], kind))
    return pa.table(arrays, names=list(EVERY_TYPE))


@dataclass
class FakeEngine:
    """Knows: every_type(), numbers(n), hang(), ignore(), fail(), and echoes its parameters."""

    executed: list[tuple[str, list[Any], str]] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    batches_made: int = 0
    text_width: int = 150
    listed: int = 0
    relation_list: list[Relation] = field(default_factory=lambda: [ORDERS, CLICKS, DOTTED])
    hanging: threading.Event = field(default_factory=threading.Event)
    _stops: dict[str, threading.Event] = field(default_factory=dict)

    def execute(self, sql: str, parameters: Sequence[Any] = (), *, tag: str) -> Result:
        self.executed.append((sql, list(parameters), tag))
        self._stops[tag] = threading.Event()
        if match := re.search(r"numbers\((\d+)\)", sql):
            return self._numbers(int(match[1]))
        if "fail()" in sql:
            raise EngineError("there is no such column: nope")
        if "hang()" in sql:
            return Result(pa.schema([("a", pa.int64())]), lambda: self._hang(tag))
        if "every_type()" in sql:
            return _of(every_type())
        if parameters:
            return _of(_echo(parameters))
        return _of(pa.table({"one": pa.array([1], pa.int32())}))

    def cancel(self, tag: str) -> None:
        self.cancelled.append(tag)
        if tag in self._stops:
            self._stops[tag].set()

    def relations(self) -> list[Relation]:
        self.listed += 1
        return list(self.relation_list)

    def describe(self, name: str) -> list[Column]:
        return list(next(each for each in self.relations() if each.name == name).columns)

    def _numbers(self, count: int) -> Result:
        schema = pa.schema([("n", pa.int64()), ("text", pa.string())])

        def batches() -> Iterator[pa.RecordBatch]:
            for first in range(0, count, BATCH_ROWS):
                rows = range(first, min(count, first + BATCH_ROWS))
                texts = pa.array([f"{row:0{self.text_width}d}" for row in rows])
                self.batches_made += 1
                yield pa.record_batch([pa.array(rows, pa.int64()), texts], schema=schema)

        return Result(schema, batches)

    def _hang(self, tag: str) -> Iterator[pa.RecordBatch]:
        self.hanging.set()
        if self._stops[tag].wait(60):
            raise RuntimeError("the job was cancelled")
        yield pa.record_batch({"a": [1]})


def _of(table: pa.Table) -> Result:
    return Result(table.schema, lambda: iter(table.to_batches()))


def _echo(parameters: Sequence[Any]) -> pa.Table:
    arrays = [pa.array([value]) for value in parameters]
    return pa.table(arrays, names=[f"p{number}" for number in range(len(arrays))])
