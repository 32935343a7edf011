"""The `value:` part of a pipeline: what it takes, and what it refuses by name."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from neve.errors import InvalidError
from neve.lake.values import value_format
from neve.lake.values.types import TIMESTAMP, list_of, map_of

NOTATION = (
    "{id: long, name: string, price: decimal(10,2), at: timestamp, tags: [string], "
    "address: {street: string, paid: decimal(5, 1)}, by: map({n: int}), 'n': [[double]]}"
).replace("'", '"')
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("at", TIMESTAMP),
        ("tags", list_of(pa.string())),
        ("address", pa.struct([("street", pa.string()), ("paid", pa.decimal128(5, 1))])),
        ("by", map_of(pa.struct([("n", pa.int32())]))),
        ("n", list_of(list_of(pa.float64()))),
    ]
)


def schema_of(given: Any, **options: Any) -> pa.Schema:
    found = value_format({"format": "json", "schema": given}, **options).schema()
    assert found is not None
    return found


# --- raw and string


def test_raw_values_are_one_column_of_bytes() -> None:
    found = pickle.loads(pickle.dumps(value_format({"format": "raw"})))
    values = pa.array([b"\xff", None, b""], pa.binary())
    decoded = found.decode(values, found.infer(values))
    assert decoded.rows.to_pylist() == [{"value": b"\xff"}, {"value": None}, {"value": b""}]
    assert decoded.good.to_pylist() == [0, 1, 2]


def test_text_that_is_not_utf_8_is_a_bad_row() -> None:
    found = pickle.loads(pickle.dumps(value_format({"format": "string"})))
    values = pa.array([b"x", b"a\xffb", None, b"\xed\xa0\x80", "é".encode(), b""], pa.binary())
    decoded = found.decode(values.slice(0), found.schema())
    assert decoded.rows["value"].to_pylist() == ["x", None, "é", ""]
    assert decoded.good.to_pylist() == [0, 2, 4, 5]
    assert [(each.row, each.reason) for each in decoded.bad] == [
        (1, "not UTF-8: byte 1 is 0xff"),
        (3, "not UTF-8: byte 0 is 0xed"),
    ]


def test_text_of_good_rows_alone_is_taken_as_it_is() -> None:
    found = value_format({"format": "string"})
    decoded = found.decode(pa.array([b"a", None], pa.binary()), found.schema())
    assert (decoded.rows["value"].to_pylist(), decoded.bad) == (["a", None], [])


@pytest.mark.parametrize("name", ["raw", "string"])
def test_another_column_than_value_is_refused(name: str) -> None:
    with pytest.raises(InvalidError, match="one column"):
        value_format({"format": name}).decode(pa.array([], pa.binary()), COLUMNS)


# --- the short notation


def test_the_notation_as_text_and_as_yaml_reads_it() -> None:
    assert schema_of(NOTATION) == COLUMNS
    as_yaml = yaml.safe_load(NOTATION.replace("map({n: int})", '"map({n: int})"'))
    assert "5)" not in as_yaml["address"].values()
    assert schema_of(as_yaml) == COLUMNS
    block = yaml.safe_load("id: long\nprice: decimal(10,2)\ntags: [string]\n")
    assert schema_of(block).types == [pa.int64(), pa.decimal128(10, 2), list_of(pa.string())]


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("{a: decimal(10,2), b: long}", pa.decimal128(10, 2)),
        ("{a: [decimal(10,2)], b: long}", list_of(pa.decimal128(10, 2))),
        ("{a: [[decimal(10, 2)]], b: long}", list_of(list_of(pa.decimal128(10, 2)))),
        ("{a: map(decimal(10,2)), b: long}", map_of(pa.decimal128(10, 2))),
        ("{a: [map(decimal(10,2))], b: long}", list_of(map_of(pa.decimal128(10, 2)))),
        ('{a: "decimal(10,2)", b: long}', pa.decimal128(10, 2)),
        ('{a: "map(decimal(10,2))", b: long}', map_of(pa.decimal128(10, 2))),
    ],
)
def test_types_that_yaml_splits_at_a_comma_are_joined(text: str, type_: pa.DataType) -> None:
    columns = pa.schema([("a", type_), ("b", pa.int64())])
    assert schema_of(yaml.safe_load(text)) == columns
    assert schema_of(text) == columns


def test_equal_parts_that_yaml_merges_are_refused_with_the_way_out() -> None:
    text = "{a: decimal(10,2), b: long, c: decimal(12,2)}"
    with pytest.raises(InvalidError, match=r"c: 'decimal\(12' is only a part .* in quotes"):
        schema_of(yaml.safe_load(text))
    quoted = text.replace("decimal(12,2)", '"decimal(12,2)"')
    assert schema_of(yaml.safe_load(quoted)).types[2] == pa.decimal128(12, 2)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("{id: lang}", "id: 'lang' is not a type; valid types: boolean, int, long"),
        ("{a: {b: [bytes]}}", r"a\.b\[\]: 'bytes' is not a type"),
        ("{id: long", "end too early"),
        ("{id: long}}", "cannot be read at '}'"),
        ("{id long}", "cannot be read at 'long'"),
        ("{id: long, id: int}", "have id twice"),
        ("[long]", "must stand in braces"),
        ("{a: decimal(39,2)}", "1 to 38 digits"),
        ("{a: decimal(3,4)}", "1 to 38 digits"),
        ("{a: decimal(3)}", "is not a type"),
        ("{a: [string, long]}", "cannot be read at ','"),
        ({"a": ["string", "long"]}, "is not a type"),
        ({"a": {}}, "a has no fields"),
        ({}, "has no fields"),
        ({"a": 5}, "a: 5 is not a type"),
        ({"a": None}, "a: None is not a type"),
        (5, "5 must be columns"),
    ],
)
def test_what_is_no_notation_is_refused(given: Any, reason: str) -> None:
    with pytest.raises(InvalidError, match=reason):
        schema_of(given)


def test_an_arrow_schema_is_taken_in_plain_form() -> None:
    assert schema_of(pa.schema([pa.field("a", pa.large_string(), nullable=False)])) == pa.schema(
        [("a", pa.string())]
    )


# --- JSON Schema


def test_a_json_schema_gives_columns() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Order",
        "type": "object",
        "required": ["id"],
        "additionalProperties": False,
        "properties": {
            "id": {"type": "integer", "minimum": 0},
            "small": {"type": "integer", "format": "int32"},
            "price": {"type": ["number", "null"]},
            "any": {"type": ["integer", "number"]},
            "ok": {"type": "boolean"},
            "state": {"type": "string", "enum": ["new", "done"]},
            "mail": {"type": "string", "format": "email"},
            "at": {"type": "string", "format": "date-time"},
            "day": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
            "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "$defs": {"Line": {"properties": {"sku": {"type": "string"}}}},
    }
    assert schema_of(schema) == schema_of(json.dumps(schema))
    assert schema_of(schema) == pa.schema(
        [
            ("id", pa.int64()),
            ("small", pa.int32()),
            ("price", pa.float64()),
            ("any", pa.float64()),
            ("ok", pa.bool_()),
            ("state", pa.string()),
            ("mail", pa.string()),
            ("at", TIMESTAMP),
            ("day", pa.date32()),
            ("lines", list_of(pa.struct([("sku", pa.string())]))),
            ("labels", map_of(pa.string())),
        ]
    )


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ({"allOf": []}, "f: allOf is not supported"),
        ({"type": "object", "patternProperties": {}}, "f: patternProperties is not supported"),
        ({"type": "array", "prefixItems": []}, "f: prefixItems is not supported"),
        ({"type": ["string", "integer"]}, "f: type .* a column has one type"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "f: anyOf of 2 types"),
        ({"type": "array"}, "f: an array must say what its items are"),
        ({"type": "object"}, "f: an object without properties"),
        ({}, "f: type None"),
        (True, "f: True says nothing"),
        ({"type": "text"}, "f: 'text' is not a type"),
        ({"$ref": "#"}, "f: # is not in this JSON Schema"),
        ({"$ref": "#/$defs/Gone"}, "f: #/\\$defs/Gone is not in"),
        ({"$ref": "#/properties/f"}, "f: #/properties/f refers to itself"),
        ({"$ref": "https://x/y"}, "f: https://x/y is not in"),
        (
            {"type": "object", "properties": {"a": {}}, "additionalProperties": {}},
            "a struct or a map, not both",
        ),
    ],
)
def test_what_a_column_cannot_follow_is_refused_by_name(field: Any, reason: str) -> None:
    with pytest.raises(InvalidError, match=reason):
        schema_of({"type": "object", "properties": {"f": field}})


def test_an_endless_json_schema_is_refused() -> None:
    schema = {"type": "object", "properties": {"f": {"$ref": "#/properties"}}}
    tree = {"type": "object", "properties": {"child": {"$ref": "#/$defs/T"}}}
    with pytest.raises(InvalidError, match="refers to itself"):
        schema_of({**tree, "$defs": {"T": tree}})
    with pytest.raises(InvalidError):
        schema_of(schema)


# --- files and mistakes


def test_a_schema_is_read_from_a_file_beside_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "columns").write_text(NOTATION, encoding="utf-8")
    assert schema_of("columns", folder=tmp_path) == COLUMNS
    avro = {"type": "record", "name": "R", "fields": [{"name": "f", "type": "long"}]}
    (tmp_path / "row.avsc").write_text(json.dumps(avro), encoding="utf-8-sig")
    found = value_format({"format": "avro", "schema": "row.avsc"}, folder=tmp_path)
    assert found.schema() == pa.schema([("f", pa.int64())])
    with pytest.raises(InvalidError, match="nowhere cannot be read"):
        schema_of("nowhere", folder=tmp_path)


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({}, "value.format: None is none of raw, string, json, avro"),
        ({"format": "xml"}, "'xml' is none of"),
        ({"format": ["json"]}, "is none of"),
        ({"format": "raw", "schema": {}}, "value.schema: not an option of format raw"),
        ({"format": "json", "registry": "http://x"}, "value.registry: not an option"),
        ({"format": "json", "schem": {}}, "value.schem: not an option"),
        ({"format": "avro"}, "either a schema or a registry"),
        ({"format": "avro", "schema": {}, "registry": "http://x"}, "either a schema or a registry"),
    ],
)
def test_a_wrong_spec_is_refused_by_name(spec: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidError, match=reason):
        value_format(spec)
