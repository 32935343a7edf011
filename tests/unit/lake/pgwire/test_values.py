"""Values on the wire: from Arrow in both formats, and parameters back to Python."""

from __future__ import annotations

import datetime
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.lake.pgwire.encode import data_rows, encoders, split_batch
from neve.lake.pgwire.parameters import decode
from neve.lake.pgwire.sqlstate import SqlError
from neve.lake.pgwire.types import column_descriptions, pg_type
from neve.lake.sql.out_of_range_times import texts_of
from unit.lake.pgwire.fake_engine import EVERY_TYPE, MOMENT, every_type
from unit.lake.pgwire.wire_client import row_of

TEXT, BINARY = 0, 1


def rows(table: pa.Table, form: int) -> list[list[bytes | None]]:
    found = []
    for batch in table.to_batches():
        data = data_rows(batch, encoders(batch.schema, [form] * len(batch.schema)))
        at = 0
        while at < len(data):
            kind, size = struct.unpack_from(">ci", data, at)
            assert kind == b"D"
            found.append(row_of(data[at + 5 : at + 1 + size]))
            at += 1 + size
    return found


def column(values: list[Any], kind: pa.DataType, form: int = TEXT) -> list[bytes | None]:
    return [row[0] for row in rows(pa.table([pa.array(values, kind)], names=["x"]), form)]


def test_every_type_in_text() -> None:
    first, second = rows(every_type(), TEXT)
    assert dict(zip(EVERY_TYPE, first, strict=True)) == {
        "bool": b"t",
        "int2": b"-2",
        "int4": b"2147483647",
        "int8": b"-9223372036854775808",
        "float4": b"1.5",
        "float8": b"-2.25",
        "numeric": b"-12345.6700",
        "text": "grün 'n' \\ Bäume".encode(),
        "bytea": b"\\x00ff6869",
        "timestamptz": b"2026-01-31 12:30:15.25+00",
        "timestamp": b"2026-01-31 12:30:15.25",
        "date": b"1999-12-31",
        "time": b"23:59:59.000001",
        "uuid": b"80000000-0000-0000-0000-000000000005",
        "jsonb": b'{"a":1,"b":["x"]}',
        "map": b'{"k":1}',
        "ints": b"{1,NULL,3}",
        "texts": b'{"a b","q\\"","","NULL",NULL}',
    }
    assert second == [None] * len(first)


def test_every_type_has_its_number() -> None:
    shown = {column.name: column.type_oid for column in column_descriptions(every_type().schema)}
    numbers = [16, 21, 23, 20, 700, 701, 1700, 25, 17, 1184, 1114, 1082, 1083, 2950, 3802, 3802]
    assert shown == dict(zip(EVERY_TYPE, [*numbers, 1007, 1009], strict=True))


@pytest.mark.parametrize("form", [TEXT, BINARY])
def test_every_type_comes_back_as_a_parameter(form: int) -> None:
    first, second = rows(every_type(), form)
    oids = [each.type_oid for each in column_descriptions(every_type().schema)]
    for name, value, oid in zip(EVERY_TYPE, first, oids, strict=True):
        read = decode(value, oid, form)
        wanted = EVERY_TYPE[name][1]
        if name in ("jsonb", "map"):
            assert read.startswith("{")
        elif name == "uuid":
            assert read == str(wanted)
        else:
            assert read == wanted, name
    assert [decode(value, oid, form) for value, oid in zip(second, oids, strict=True)] == second


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=9, min_value=-(10**20), max_value=10**20
    )
)
def test_numerics_survive_the_binary_format(value: Decimal) -> None:
    (sent,) = column([value], pa.decimal128(38, 9), BINARY)
    assert decode(sent, 1700, BINARY) == value
    (shown,) = column([value], pa.decimal128(38, 9))
    assert Decimal((shown or b"").decode()) == value
    assert b"E" not in (shown or b"")


@given(st.datetimes(MOMENT.replace(tzinfo=None, year=1000), MOMENT.replace(tzinfo=None, year=9999)))
def test_moments_survive_both_formats(moment: datetime.datetime) -> None:
    for form in (TEXT, BINARY):
        (sent,) = column([moment], pa.timestamp("us"), form)
        assert decode(sent, 1114, form) == moment
        aware = moment.replace(tzinfo=datetime.UTC)
        (sent,) = column([aware], pa.timestamp("us", "UTC"), form)
        assert decode(sent, 1184, form) == aware


@given(
    st.lists(st.none() | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
)
def test_arrays_survive_both_formats(values: list[str | None]) -> None:
    for form in (TEXT, BINARY):
        (sent,) = column([values], pa.list_(pa.string()), form)
        assert decode(sent, 1009, form) == values


def test_odd_floats_and_types() -> None:
    odd = [float("nan"), float("inf"), -float("inf"), 1e300, None]
    assert column(odd, pa.float64()) == [b"NaN", b"Infinity", b"-Infinity", b"1e+300", None]
    assert column([2**64 - 1], pa.uint64()) == [b"18446744073709551615"]
    assert column([Decimal("0.0000000001")], pa.decimal128(20, 10)) == [b"0.0000000001"]
    assert column([1_500_000, -1], pa.duration("us")) == [b"00:00:01.5", b"-00:00:00.000001"]
    assert column(["a", None], pa.dictionary(pa.int8(), pa.string())) == [b"a", None]
    assert column([1_700_000_000_123_456_789], pa.timestamp("ns", "UTC")) == [
        b"2023-11-14 22:13:20.123456+00"
    ]
    assert pg_type(pa.list_(pa.list_(pa.int8()))).name == "jsonb"
    assert column([None, None], pa.null()) == [None, None]


def test_slices_and_empty_batches() -> None:
    table = every_type()
    sliced = table.slice(1)
    for form in (TEXT, BINARY):
        assert rows(sliced, form) == rows(table, form)[1:]
    empty = table.slice(0, 0).combine_chunks()
    batch = pa.RecordBatch.from_arrays(
        [c.combine_chunks() for c in empty.columns], empty.column_names
    )
    assert data_rows(batch, encoders(batch.schema, [BINARY] * len(batch.schema))) == b""
    none = pa.table({"x": [1, 2]}).select([])
    assert data_rows(pa.RecordBatch.from_struct_array(none.to_struct_array().chunk(0)), []) == (
        b"D\0\0\0\x06\0\0" * 2
    )


def test_batches_are_cut_to_size_without_losing_rows() -> None:
    batch = pa.record_batch({"x": ["a" * 1000] * 999 + ["b" * 300_000]})
    parts = list(split_batch(batch, 64 * 1024))
    assert sum(part.num_rows for part in parts) == 1000
    assert all(part.nbytes <= 64 * 1024 or part.num_rows == 1 for part in parts)
    assert pa.Table.from_batches(parts).combine_chunks() == pa.Table.from_batches([batch])


@given(
    st.binary(max_size=40),
    st.sampled_from(
        [0, 16, 17, 20, 23, 25, 700, 1700, 1082, 1114, 1184, 1083, 2950, 3802, 1007, 1009, 99999]
    ),
    st.sampled_from([TEXT, BINARY]),
)
def test_any_bytes_are_a_value_or_refused(data: bytes, oid: int, form: int) -> None:
    code = ""
    try:
        decode(data, oid, form)
    except SqlError as error:
        code = error.code
    assert code in ("", "22P02", "22P03", "0A000")


FAR_US = 1_700_000_000_000_000 * 1000
"""Microseconds where milliseconds were meant."""


def test_moments_and_days_beyond_python_s_years() -> None:
    zoned = pa.timestamp("us", "UTC")
    assert column([FAR_US, 5, None], zoned) == [
        b"55840-11-08 22:13:20+00", b"1970-01-01 00:00:00.000005+00", None,
    ]  # fmt: skip
    assert column([20_000_000, -719_163], pa.date32()) == [b"56728-02-22", b"0000-12-31"]
    nested = pa.struct([("t", zoned), ("l", pa.list_(pa.date32()))])
    values = [{"t": FAR_US, "l": [20_000_000, None]}, None, {"t": None, "l": None}]
    assert column(values, nested) == [
        b'{"t":"55840-11-08T22:13:20Z","l":["56728-02-22",null]}', None, b'{"t":null,"l":null}',
    ]  # fmt: skip


def test_maps_whose_keys_are_structs() -> None:
    kind = pa.map_(pa.struct([("a", pa.int32())]), pa.string())
    assert column([[({"a": 1}, "x")], None], kind) == [b'[[{"a":1},"x"]]', None]


@given(st.integers(-719_162, 2_932_896))
def test_days_are_written_as_python_writes_them(days: int) -> None:
    shown = texts_of(pa.array([days], pa.date32()), "", "")
    assert shown == [(datetime.date(1970, 1, 1) + datetime.timedelta(days=days)).isoformat()]


@pytest.mark.parametrize(
    ("text", "oid"), [("32768", 21), ("-2147483649", 23), ("9" * 19, 20), ("1_000", 20), ("", 23)]
)
def test_whole_numbers_that_their_type_has_not_are_refused(text: str, oid: int) -> None:
    with pytest.raises(SqlError, match="22P02"):
        decode(text.encode(), oid, TEXT)
    assert decode(b" -7 ", oid, TEXT) == -7
