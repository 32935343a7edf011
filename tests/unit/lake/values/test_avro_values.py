"""Avro values with a given schema: types, both decoders, and what is wrong with bad ones."""

from __future__ import annotations

import io
import json
import pickle
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from neve.errors import InvalidError
from neve.lake.values import Decoded, value_format
from neve.lake.values.avro_decoding import AvroDecoder
from neve.lake.values.avro_reference import ReferenceAvroDecoder
from neve.lake.values.types import LOCAL_TIMESTAMP, TIME, TIMESTAMP, list_of, map_of


def record(type_: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Row", "fields": [{"name": "f", "type": type_}]}


def written(schema: Any, value: Any) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, fastavro.parse_schema(schema), value)
    return target.getvalue()


def decode(schema: Any, values: list[bytes | None], into: pa.Schema | None = None) -> Decoded:
    found = value_format({"format": "avro", "schema": schema})
    return found.decode(pa.array(values, pa.binary()), into or found.schema())


def logical(kind: str, name: str, **more: object) -> dict[str, object]:
    return {"type": kind, "logicalType": name, **more}


LOCAL = datetime(2024, 1, 2)  # noqa: DTZ001 (a time on a wall is what is meant)
NESTED = {"type": "record", "name": "N", "fields": [{"name": "z", "type": ["null", "string"]}]}
FIXED_DECIMAL = {"type": "fixed", "name": "D", "size": 8, "logicalType": "decimal"}
TYPES = [
    ("boolean", pa.bool_(), True, None),
    ("int", pa.int32(), -(2**31), None),
    ("long", pa.int64(), 2**63 - 1, None),
    ("float", pa.float32(), 1.5, None),
    ("double", pa.float64(), 2.5, None),
    ("string", pa.string(), "é", None),
    ("bytes", pa.binary(), b"\xff\0", None),
    (["null", "long"], pa.int64(), None, None),
    (["string", "null"], pa.string(), "x", None),
    (["string"], pa.string(), "x", None),
    (["null", "int", "long"], pa.int64(), 2**40, None),
    (logical("int", "date"), pa.date32(), date(1969, 1, 2), None),
    (logical("int", "time-millis"), TIME, time(1, 2, 3, 4000), None),
    (logical("long", "time-micros"), TIME, time(1, 2, 3, 4), None),
    (logical("long", "timestamp-millis"), TIMESTAMP, datetime(2024, 1, 2, tzinfo=UTC), None),
    (logical("long", "timestamp-micros"), TIMESTAMP, datetime(1950, 1, 2, tzinfo=UTC), None),
    (logical("long", "local-timestamp-millis"), LOCAL_TIMESTAMP, LOCAL, None),
    (logical("long", "local-timestamp-micros"), LOCAL_TIMESTAMP, LOCAL, None),
    (
        logical("bytes", "decimal", precision=10, scale=2),
        pa.decimal128(10, 2),
        Decimal("-1.25"),
        None,
    ),
    (
        ["null", logical("bytes", "decimal", precision=38)],
        pa.decimal128(38, 0),
        Decimal(10**37),
        None,
    ),
    ({**FIXED_DECIMAL, "precision": 10, "scale": 2}, pa.decimal128(10, 2), Decimal("-1.25"), None),
    (logical("string", "uuid"), pa.string(), uuid.UUID(int=7), str(uuid.UUID(int=7))),
    ({"type": "fixed", "name": "X", "size": 3}, pa.binary(3), b"abc", None),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, pa.string(), "B", None),
    ({"type": "array", "items": ["null", "bytes"]}, list_of(pa.binary()), [b"\xff", None], None),
    ({"type": "map", "values": "int"}, map_of(pa.int32()), {"k": 1}, [("k", 1)]),
    (["null", NESTED], pa.struct([("z", pa.string())]), {"z": "y"}, None),
    (
        {"type": "map", "values": NESTED},
        map_of(pa.struct([("z", pa.string())])),
        {"k": {"z": None}},
        [("k", {"z": None})],
    ),
    (logical("string", "made-up"), pa.string(), "x", None),
]


@pytest.mark.parametrize("judged", [False, True], ids=["both", "judge alone"])
@pytest.mark.parametrize(
    ("type_", "column", "value", "shown"), TYPES, ids=lambda each: str(each)[:40]
)
def test_a_type_is_a_column(
    type_: Any,
    column: pa.DataType,
    value: Any,
    shown: Any,
    judged: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = record(type_)
    if judged:
        monkeypatch.setattr("neve.lake.values.avro_decoding.AvroDecoder._fast", not_fast)
    decoded = decode(schema, [written(schema, {"f": value}), None])
    assert decoded.bad == []
    assert decoded.rows.schema == pa.schema([("f", column)])
    assert decoded.rows["f"].to_pylist() == [value if shown is None else shown, None]


def not_fast(self: AvroDecoder, values: pa.BinaryArray) -> pa.StructArray:
    from neve.lake.values.avro_decoding import _NotFastError

    raise _NotFastError("asked not to be")


@pytest.mark.parametrize("place", [0, 5, 18, 25], ids=["boolean", "string", "decimal", "map"])
def test_clean_values_do_not_come_before_the_judge(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(ReferenceAvroDecoder, "record")
    type_, _, value, _ = TYPES[place]
    schema = record(type_)
    assert decode(schema, [written(schema, {"f": value})] * 3).bad == []


BAD = [
    ("long", b"", "ends too early"),
    ("long", b"\x02\x00", "1 bytes are left over"),
    ("long", b"\x80" * 11, "more than 10 bytes"),
    ("int", b"\xfe\xff\xff\xff\xff\x0f", "past what int holds"),
    ("boolean", b"\x02", "a boolean is 0 or 1"),
    ("string", b"\x04a", "ends too early"),
    ("string", b"\x03", "a length of -2"),
    ("string", b"\x02\xff", "not UTF-8"),
    (["null", "long"], b"\x04\x02", "branch is 2 of 2"),
    (["null", "long"], b"\x01\x02", "branch is -1 of 2"),
    ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", "a symbol is -1 of 1"),
    ({"type": "array", "items": "long"}, b"\xfe\xff\xff\xff\x0f\x02", "ends too early"),
    ({"type": "map", "values": "long"}, b"\x04\x02a\x02\x02a\x04\x00", "b'a' stands twice"),
    (
        logical("bytes", "decimal", precision=2),
        b"\x04\x03\xe8",
        "more digits than decimal128(2, 0)",
    ),
    (logical("bytes", "decimal", precision=2), b"\x00", "a decimal of no bytes"),
    (logical("bytes", "decimal", precision=38), b"\x20" + b"\x7f" * 16, "more digits"),
    (logical("int", "time-millis"), b"\x01", "outside the day"),
    (logical("long", "timestamp-millis"), b"\xfe" + b"\xff" * 8 + b"\x01", "overflow"),
    (logical("int", "date"), b"\x80\x9b\xee\x02", "a date outside the years 1 to 9999"),
    (
        logical("long", "timestamp-micros"),
        b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
        "a timestamp outside",
    ),
    (
        logical("long", "local-timestamp-millis"),
        b"\xff\xff\xff\xff\xff\xff\xff\x03",
        "a timestamp outside",
    ),
]


@pytest.mark.parametrize(("type_", "value", "reason"), BAD, ids=lambda each: str(each)[:30])
def test_a_bad_value_is_named_and_moves_nothing(type_: Any, value: bytes, reason: str) -> None:
    schema = {
        "type": "record",
        "name": "Row",
        "fields": [
            {"name": "n", "type": "int"},
            {"name": "f", "type": ["null", type_] if not isinstance(type_, list) else type_},
        ],
    }
    good = [written(schema, {"n": number, "f": None}) for number in range(600)]
    whole = b"\x0e" + (b"" if isinstance(type_, list) else b"\x02") + value
    decoded = decode(schema, [*good[:300], whole, *good[300:]])
    assert [each.row for each in decoded.bad] == [300]
    assert reason in decoded.bad[0].reason
    assert decoded.rows["n"].to_pylist() == list(range(600))
    assert decoded.good.to_pylist() == [*range(300), *range(301, 601)]


@pytest.mark.parametrize(
    ("type_", "value", "wanted"),
    [
        ("long", b"\x82\x00", 1),
        ({"type": "array", "items": "long"}, b"\x03\x04\x02\x04\x02\x06\x00", [1, 2, 3]),
        (logical("bytes", "decimal", precision=4), b"\x2a" + b"\xff" * 20 + b"\xfe", Decimal(-2)),
    ],
)
def test_other_right_ways_to_write_it_are_read(type_: Any, value: bytes, wanted: Any) -> None:
    decoded = decode(record(type_), [value])
    assert decoded.bad == []
    assert decoded.rows["f"].to_pylist() == [wanted]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("string", "must be a record"),
        (record("null"), "f: 'null' is not an Avro type"),
        (record(["null", "string", "long"]), "f is a union of 2 types"),
        (record(["null", "Row"]), "Row holds itself"),
        (record("Missing"), "'Missing' is not an Avro type"),
        (record({"type": "record", "name": "Empty", "fields": []}), "has no fields"),
        (record({"type": "fixed", "name": "X", "size": 0}), "holds nothing"),
        (record(logical("bytes", "decimal", precision=39)), "more than a column can hold"),
        (record({"type": "array"}), "no Avro schema: 'items'"),
        ("{not json", "no Avro schema"),
    ],
)
def test_a_schema_without_columns_is_refused_by_name(schema: Any, reason: str) -> None:
    text = schema if str(schema).startswith("{not") else json.dumps(schema)
    with pytest.raises(InvalidError, match=reason):
        value_format(
            {"format": "avro", "schema": text if text.startswith("{") else {"type": schema}}
        )


def test_rows_are_brought_into_the_tables_columns_by_name() -> None:
    schema = {
        "type": "record",
        "name": "Row",
        "namespace": "a.b",
        "fields": [
            {"name": "new", "type": NESTED},
            {"name": "same", "type": "N"},
            {"name": "wide", "type": "int"},
        ],
    }
    value = written(schema, {"new": {"z": "1"}, "same": {"z": "2"}, "wide": 3})
    table = pa.schema(
        [("wide", pa.int64()), ("gone", pa.string()), ("same", pa.struct([("z", pa.string())]))]
    )
    decoded = decode(schema, [value], table)
    assert decoded.rows.schema == table
    assert decoded.rows.to_pylist() == [{"wide": 3, "gone": None, "same": {"z": "2"}}]
    assert decoded.unknown == pa.schema([("new", pa.struct([("z", pa.string())]))])


def test_a_schema_that_does_not_fit_the_table_makes_its_rows_bad() -> None:
    schema = record("string")
    decoded = decode(schema, [written(schema, {"f": "x"}), None], pa.schema([("f", pa.int64())]))
    assert [(each.row, each.reason) for each in decoded.bad] == [
        (0, "f is string and the column is int64")
    ]
    assert decoded.rows.to_pylist() == [{"f": None}]


def test_a_format_travels_to_workers() -> None:
    found = pickle.loads(pickle.dumps(value_format({"format": "avro", "schema": record("long")})))
    assert found.schema() == pa.schema([("f", pa.int64())])
