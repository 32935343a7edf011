"""JSON values: what is a row, what is not, and that no bad value moves a good one."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from neve.errors import InvalidError, UnsupportedError
from neve.lake.values import Decoded, json_format, value_format
from neve.lake.values.json_fast import FastJson, FastPathError
from neve.lake.values.json_reference import ReferenceJsonDecoder
from neve.lake.values.types import TIMESTAMP, list_of, map_of

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


def decode(values: list[bytes | None], schema: pa.Schema = COLUMNS) -> Decoded:
    return value_format({"format": "json"}).decode(pa.array(values, pa.binary()), schema)


def only(value: bytes, type_: pa.DataType) -> Any:
    """The one column's value, or the reason why there is no row."""
    decoded = decode([value], pa.schema([("f", type_)]))
    return decoded.bad[0].reason if decoded.bad else decoded.rows.to_pylist()[0]["f"]


BAD = {
    b"": "empty",
    b'{"id":1': "truncated",
    b'{"id":1}{"id":2}': "trailing",
    b'{"id":1}}{"v":{"id":2}': "trailing",
    b'{"id":1}}\n{"v":{"id":2}': "trailing",
    b'{"id":1},"v":{"id":2}': "trailing",
    b'{"id":1},"w":{"id":2}': "trailing",
    b'{"id":1}\n{"id":2}': "trailing",
    b'{"name":"\xff"}': "UTF-8",
    b'{"name":"\xed\xa0\x80"}': "UTF-8",
    b'{"other":"\xff"}': "UTF-8",
    b'{"name":"\\udc00"}': "surrogate",
    b'{"name":"a\nb"}': "invalid character",
    b'{"name":"a\0b"}': "invalid character",
    b'{"id":1}\0': "trailing",
    b'{"id":1}}\0': "trailing",
    b'{"id":NaN}': "invalid character",
    b'{"other":NaN}': "invalid character",
    b'{"other":Infinity}': "invalid character",
    b'{"other":1e999}': "out of range",
    b'{"id":1,"id":2}': "id stands twice",
    b'{"id":1,"\\u0069d":2}': "id stands twice",
    b'{"other":{"a:":1,"a:":2}}': "a: stands twice",
    b'{"id":1,"id":2,"name":"\\u003a"}': "id stands twice",
    b'{"\xff":1}': "UTF-8",
    b'{"id":1}}{"v":{"id":2}}\0': "trailing",
    b'{"id":1}}{"v":{"id":2}}{"v":{"id":3}}\0{': "trailing",
    b'{"id":9223372036854775808}': "is not of type long",
    b'{"id":1.0}': "is not of type long",
    b'{"id":"1"}': 'id: "1" is not of type long',
    b'{"id":true}': "is not of type long",
    b'{"name":5}': "name: 5 is not of type string",
    b'{"name":{}}': "name: an object is not of type string",
    b"[1]": "an object is expected",
    b"1": "an object is expected",
    b'{"other":' + b"[" * 100 + b"]" * 100 + b"}": "deeper than 100",
    b'{"other":' + b"[" * 5000 + b"]" * 5000 + b"}": "deeper than 100",
}


@pytest.mark.parametrize("value", BAD, ids=lambda value: repr(value[:24]))
def test_a_bad_value_is_named_and_moves_nothing(value: bytes) -> None:
    decoded = decode([b'{"id":1}', value, None, b'{"id":3}'])
    assert decoded.rows.to_pylist() == [
        {"id": 1, "name": None},
        {"id": None, "name": None},
        {"id": 3, "name": None},
    ]
    assert decoded.good.to_pylist() == [0, 2, 3]
    assert [each.row for each in decoded.bad] == [1]
    assert BAD[value] in decoded.bad[0].reason
    assert decoded.unknown is None


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (b"null", {"id": None, "name": None}),
        (b"{}", {"id": None, "name": None}),
        (b'\xef\xbb\xbf{"id":1}', {"id": 1, "name": None}),
        (b' \r\n\t{"id":\n1} \n', {"id": 1, "name": None}),
        (b'{"name":"\\ud83d\\ude00\\u0000"}', {"id": None, "name": "😀\0"}),
        (b'{"id":-9223372036854775808,"name":null}', {"id": -(2**63), "name": None}),
        (b'{"other":' + b"[" * 99 + b"]" * 99 + b"}", {"id": None, "name": None}),
        (b'{"name":"' + b"x" * 20_000_000 + b'"}', {"id": None, "name": "x" * 20_000_000}),
    ],
    ids=range(8),
)
def test_a_good_value_is_a_row(value: bytes, row: dict[str, object]) -> None:
    decoded = decode([b'{"id":7}', value, b'{"id":8}'])
    assert decoded.bad == []
    assert decoded.rows.to_pylist() == [{"id": 7, "name": None}, row, {"id": 8, "name": None}]


def test_every_bad_value_at_once_among_many_good_ones() -> None:
    bad = list(BAD)
    values = []
    for place in range(3000):
        values.append(json.dumps({"id": place, "name": f"n{place}"}).encode())
        if place % 60 == 0 and bad:
            values.append(bad.pop())
    decoded = decode([*values])
    assert len(decoded.bad) == len(BAD)
    assert decoded.rows["id"].to_pylist() == list(range(3000))
    wanted = [json.loads(values[row])["id"] for row in decoded.good.to_pylist()]
    assert decoded.rows["id"].to_pylist() == wanted
    assert sorted([*decoded.good.to_pylist(), *(each.row for each in decoded.bad)]) == list(
        range(len(values))
    )


def test_a_slice_of_a_larger_array_is_read_like_any_other() -> None:
    values = pa.array([b"\0", None, b'{"id":1}', None, b'{"id":2}', b"{"], pa.binary())
    decoded = value_format({"format": "json"}).decode(values.slice(1, 4), COLUMNS)
    assert decoded.rows["id"].to_pylist() == [None, 1, None, 2]
    assert decoded.good.to_pylist() == [0, 1, 2, 3]


def test_runs_are_cut_by_rows_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_format, "RUN_ROWS_MAX", 7)
    monkeypatch.setattr(json_format, "RUN_BYTES_MAX", 100)
    values = [json.dumps({"id": n, "name": "x" * (n * 7 % 130)}).encode() for n in range(100)]
    assert decode([*values]).rows["id"].to_pylist() == list(range(100))


def test_one_bad_value_in_many_does_not_bring_the_others_before_the_judge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judged = []
    judge = ReferenceJsonDecoder.row
    monkeypatch.setattr(
        ReferenceJsonDecoder, "row", lambda self, value: judged.append(1) or judge(self, value)
    )
    values = [b'{"id":%d}' % number for number in range(20_000)]
    values[777] = b'{"id":"x"}'
    assert [each.row for each in decode([*values]).bad] == [777]
    assert len(judged) == 1


@pytest.mark.parametrize(
    ("value", "reason"), [(b'{"id":1}\xff', "not UTF-8"), (b'{"id":1}\0', "a NUL byte")]
)
def test_the_fast_path_looks_at_the_bytes_itself(value: bytes, reason: str) -> None:
    """Whatever a later reader makes of them."""
    with pytest.raises(FastPathError, match=reason):
        FastJson(COLUMNS).rows(pa.array([b"{}", value], pa.binary()).slice(1), unknown=False)


# --- types


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (b'"2024-02-29T12:30:15.25Z"', datetime(2024, 2, 29, 12, 30, 15, 250_000, UTC)),
        (b'"2024-02-29 12:30"', datetime(2024, 2, 29, 12, 30, tzinfo=UTC)),
        (b'"2024-02-29T12:30:00+02:00"', datetime(2024, 2, 29, 10, 30, tzinfo=UTC)),
        (b'"2024-02-29"', datetime(2024, 2, 29, tzinfo=UTC)),
        (b'"2024-02-29T12:30:15.123456789Z"', datetime(2024, 2, 29, 12, 30, 15, 123_456, UTC)),
        (b"1700000000123", datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)),
        (b"-1", datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
        (b"null", None),
    ],
)
def test_a_timestamp_is_iso_8601_or_milliseconds(text: bytes, wanted: datetime | None) -> None:
    assert only(b'{"f":%b}' % text, TIMESTAMP) == wanted


@pytest.mark.parametrize(
    "text",
    [
        b'"2023-02-29"',
        b'"yesterday"',
        b'"1700000000000"',
        b"1.5",
        b"true",
        b"10e3",
        b"[]",
        b'"0000-12-31"',
        b'"0001-01-01T00:00+01:00"',
        b"253402300800000",
    ],
)
def test_anything_else_is_no_timestamp(text: bytes) -> None:
    assert "is not of type timestamp" in only(b'{"f":%b}' % text, TIMESTAMP)


def test_timestamps_as_numbers_are_read_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ReferenceJsonDecoder, "row")
    schema = pa.schema([("f", TIMESTAMP), ("g", pa.struct([("t", TIMESTAMP)]))])
    rows = decode([b'{"f":1000,"g":{"t":"1970-01-01"}}', b'{"f":null}'], schema).rows.to_pylist()
    assert rows[0] == {
        "f": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "g": {"t": datetime(1970, 1, 1, tzinfo=UTC)},
    }


@pytest.mark.parametrize(
    ("type_", "text", "wanted"),
    [
        (pa.decimal128(10, 2), b"1.25", Decimal("1.25")),
        (pa.decimal128(10, 2), b"1.250", Decimal("1.25")),
        (pa.decimal128(10, 2), b'"-1.5"', Decimal("-1.50")),
        (pa.decimal128(38, 0), b"18446744073709551615", Decimal(2**64 - 1)),
        (pa.decimal128(10, 2), b"1.255", "f: 1.255 is not of type decimal(10, 2)"),
        (pa.decimal128(10, 2), b"100000000", "f: 100000000 is not of type decimal(10, 2)"),
        (pa.decimal128(10, 2), b"1e500", "out of range"),
        (pa.decimal128(10, 2), b"-0.00e99999999999999999999", Decimal(0)),
        (pa.decimal128(10, 2), b"0e-99999999999999999999", Decimal(0)),
        (pa.decimal128(10, 2), b"1e-99999999999999999999", "1E-9999 is not of type"),
        (pa.float64(), b"7", 7.0),
        (pa.float64(), b"1e400", "out of range"),
        (pa.float64(), b"9" * 400, "is not of type double"),
        (pa.float32(), b"1.5", 1.5),
        (pa.float32(), b"1e39", "is not of type float"),
        (pa.int32(), b"2147483648", "is not of type int"),
        (pa.date32(), b'"2024-02-29"', date(2024, 2, 29)),
        (pa.date32(), b"19000", "is not of type date"),
        (pa.date32(), b'"0000-01-01"', "is not of type date"),
        (pa.bool_(), b"1", "is not of type bool"),
        (list_of(pa.int64()), b"[1,null]", [1, None]),
        (list_of(pa.int64()), b'[1,"x"]', 'f[]: "x" is not of type long'),
        (map_of(pa.int64()), b'{"a":1,"b":null}', [("a", 1), ("b", None)]),
        (map_of(pa.int64()), b'{"a":"x"}', 'f{}: "x" is not of type long'),
        (pa.struct([("g", pa.string())]), b'{"g":"x"}', {"g": "x"}),
        (pa.struct([("g", pa.string())]), b"[]", "f: an array is not an object"),
    ],
)
def test_a_field_is_exactly_of_its_type(type_: pa.DataType, text: bytes, wanted: Any) -> None:
    found = only(b'{"f":%b}' % text, type_)
    if isinstance(wanted, str):
        assert wanted in found
    else:
        assert found == wanted


def test_columns_that_json_cannot_fill_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="f is binary"):
        decode([], pa.schema([("f", pa.binary())]))


def test_required_columns_are_refused_since_a_tombstone_has_none() -> None:
    with pytest.raises(InvalidError, match="id are required"):
        decode([], pa.schema([pa.field("id", pa.int64(), nullable=False)]))


# --- unknown fields and inference


def test_unknown_fields_are_reported_at_any_depth() -> None:
    schema = pa.schema(
        [("a", pa.struct([("b", pa.int64())])), ("l", list_of(pa.struct([("x", pa.int64())])))]
    )
    values = [
        b'{"a":{"b":1,"c":"2024-01-01"},"l":[{"x":1,"y":true}],"new":[1.5]}',
        b'{"a":{"b":2},"new":null,"empty":{},"nothing":[]}',
    ]
    decoded = decode([*values], schema)
    assert decoded.bad == []
    assert decoded.rows.to_pylist()[0] == {"a": {"b": 1}, "l": [{"x": 1}]}
    assert decoded.unknown == pa.schema(
        [
            ("a", pa.struct([("c", pa.string())])),
            ("l", list_of(pa.struct([("y", pa.bool_())]))),
            ("new", list_of(pa.float64())),
        ]
    )


def test_unknown_fields_inside_maps_are_reported() -> None:
    schema = pa.schema([("m", map_of(pa.struct([("x", pa.int64())])))])
    decoded = decode([b'{"m":{"k":{"x":1,"y":2}}}'], schema)
    assert decoded.unknown == pa.schema([("m", map_of(pa.struct([("y", pa.int64())])))])


def test_unknown_fields_of_bad_rows_are_not_reported() -> None:
    assert decode([b'{"id":"x","new":1}', b'{"id":1}']).unknown is None


def test_unknown_fields_of_several_types_are_reported_with_the_prevailing_one() -> None:
    decoded = decode([b'{"new":"a"}', b'{"new":1}', b'{"new":"b"}'])
    assert decoded.unknown == pa.schema([("new", pa.string())])
    assert decoded.bad == []


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([b"1", b"2.5"], pa.float64()),
        ([b"1", b"null"], pa.int64()),
        ([b"1", b"18446744073709551615"], pa.decimal128(38, 0)),
        ([b"1" * 50], pa.float64()),
        ([b'"a"', b"1", b"2"], pa.int64()),
        ([b'"a"', b"1"], pa.string()),
        ([b'"2024-01-01T00:00:00Z"'], pa.string()),
        ([b"[]", b"[1]", b"[null, 2.5]"], list_of(pa.float64())),
        ([b"{}", b'{"x":true}'], pa.struct([("x", pa.bool_())])),
        ([b"[]", b"5"], pa.int64()),
    ],
)
def test_a_type_is_inferred(values: list[bytes], type_: pa.DataType) -> None:
    documents = [b'{"f":%b}' % value for value in values]
    sample = pa.array([*documents, None, b"{", b"7"], pa.binary())
    assert value_format({"format": "json"}).infer(sample) == pa.schema([("f", type_)])
    assert decode([*documents]).unknown == pa.schema([("f", type_)])


def test_where_types_meet_the_rarer_rows_are_bad() -> None:
    values = [b'{"f":1}', b'{"f":"a"}', b'{"f":2}']
    schema = value_format({"format": "json"}).infer(pa.array(values, pa.binary()))
    assert [(each.row, each.reason) for each in decode([*values], schema).bad] == [
        (1, 'f: "a" is not of type long')
    ]


def test_nothing_to_infer_from_is_no_columns_and_all_is_reported_later() -> None:
    found = value_format({"format": "json"})
    empty = found.infer(pa.array([None, b"{", b"{}"], pa.binary()))
    assert len(empty) == 0
    decoded = decode([b'{"id":1}', None, b"{"], empty)
    assert decoded.rows.num_rows == len(decoded.good) == 2
    assert decoded.unknown == pa.schema([("id", pa.int64())])


def test_no_values_are_no_rows() -> None:
    decoded = decode([])
    assert (decoded.rows.num_rows, len(decoded.good), decoded.bad) == (0, 0, [])
    assert decoded.rows.schema == COLUMNS


def test_a_format_travels_to_workers() -> None:
    found = pickle.loads(pickle.dumps(value_format({"format": "json", "schema": {"id": "long"}})))
    assert found.schema() == pa.schema([("id", pa.int64())])
    assert found.infer(pa.array([b'{"z":1}'], pa.binary())) == found.schema()
