"""Rows as JSON, CSV and cells."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

from neve.lake.sql.rendering import cells, csv_header, csv_lines, json_lines, unique_names

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("price", pa.decimal128(9, 2)),
        ("share", pa.float64()),
        ("ok", pa.bool_()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("key", pa.string()),
    ]
)
MOMENT = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
FULL = [
    b"k",
    MOMENT,
    date(2024, 1, 2),
    Decimal("1.50"),
    0.5,
    True,
    [{"key": "h", "value": b"\xff"}],
]
BATCH = pa.RecordBatch.from_arrays(
    [
        pa.array([value, None], field.type)
        for value, field in zip([*FULL, [("a", 1)], 'say "x", y'], SCHEMA, strict=True)
    ],
    schema=SCHEMA,
)


def test_json_is_one_object_a_line() -> None:
    first, second = json_lines(BATCH).splitlines()
    assert json.loads(first) == {
        "key": "k",
        "at": "2024-01-02T03:04:05Z",
        "day": "2024-01-02",
        "price": 1.5,
        "share": 0.5,
        "ok": True,
        "headers": [{"key": "h", "value": {"base64": "/w=="}}],
        "counts": {"a": 1},
        "key_2": 'say "x", y',
    }
    assert set(json.loads(second).values()) == {None}


def test_csv_leaves_null_empty() -> None:
    assert csv_header(SCHEMA).startswith(b"key,at,day,")
    first, second = csv_lines(BATCH).decode().splitlines()
    assert first == (
        "k,2024-01-02T03:04:05Z,2024-01-02,1.50,0.5,true,"
        '"[{""key"":""h"",""value"":{""base64"":""/w==""}}]","{""a"":1}","say ""x"", y"'
    )
    assert second == "," * 8


def test_cells_show_null_and_bytes() -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"text", b"\xff", None], pa.binary())], names=["value"]
    )
    assert cells(batch) == [["text"], ["base64:/w=="], ["NULL"]]


def test_names_are_made_unique() -> None:
    assert unique_names(["a", "a", "a_2", "a"]) == ["a", "a_2", "a_2_2", "a_3"]


def test_moments_beyond_python_s_years_are_shown() -> None:
    far = 1_700_000_000_000_000 * 1000
    kafka = pa.struct([("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC"))])
    named = pa.map_(pa.string(), pa.timestamp("us", "UTC"))
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([far, 0, None], pa.timestamp("us", "UTC")),
            pa.array([{"offset": 1, "timestamp": far}, None, {"offset": 2}], kafka),
            pa.array([[3_000_000], [], None], pa.list_(pa.date32())),
            pa.array([[("x", far), ("y", None)], [], None], named),
        ],
        names=["at", "_kafka", "days", "named"],
    )
    first, second, third = (json.loads(line) for line in json_lines(batch).splitlines())
    assert first == {
        "at": "55840-11-08T22:13:20Z",
        "_kafka": {"offset": 1, "timestamp": "55840-11-08T22:13:20Z"},
        "days": ["10183-09-21"],
        "named": {"x": "55840-11-08T22:13:20Z", "y": None},
    }
    assert second == {"at": "1970-01-01T00:00:00Z", "_kafka": None, "days": [], "named": {}}
    assert third == {
        "at": None, "_kafka": {"offset": 2, "timestamp": None}, "days": None, "named": None
    }  # fmt: skip
    assert cells(batch)[0][0] == "55840-11-08T22:13:20Z"
    assert csv_lines(batch.slice(1)).startswith(b"1970-01-01T00:00:00Z,,[],{}\n")
    assert len(cells(batch.slice(1))) == 2
