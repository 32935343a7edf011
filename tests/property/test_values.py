"""Values against a plain reading of them: the same rows, the same bad ones, nothing moved."""

from __future__ import annotations

import io
from datetime import UTC
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neve.lake.values import json_format, value_format
from neve.lake.values.avro_decoding import AvroDecoder, _NotFastError
from neve.lake.values.json_fast import FastJson
from neve.lake.values.json_reference import ReferenceJsonDecoder
from support.values_oracle import (
    FLAT,
    NUMBERS,
    SIMPLE,
    SIMPLE_VALUES,
    VALUES,
    WITH_MAP,
    oracle,
    plain,
    read,
    simple_sure,
    sure,
)

QUICK = settings(
    max_examples=50, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


def check_json(values: list[bytes | None], schema: pa.Schema) -> None:
    decoded = value_format({"format": "json"}).decode(pa.array(values, pa.binary()), schema)
    decoded.rows.validate(full=True)
    rows, bad = oracle(values, schema)
    assert [each.row for each in decoded.bad] == bad
    assert decoded.good.to_pylist() == [row for row, _ in rows]
    assert repr(plain(decoded.rows.to_pylist())) == repr(plain([found for _, found in rows]))


@pytest.fixture(params=[1, 4, 512], ids=lambda rows: f"judged by {rows}")
def judged_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small runs make the fast path, the sieve and the judge meet within a few rows."""
    monkeypatch.setattr(json_format, "JUDGED_ROWS_MAX", request.param)
    monkeypatch.setattr(json_format, "_PARTS", 2)


@pytest.mark.usefixtures("judged_rows")
@QUICK
@given(VALUES)
def test_json_rows_are_those_of_a_plain_reading(values: list[bytes | None]) -> None:
    check_json(values, FLAT)


@QUICK
@given(st.lists(sure, min_size=1, max_size=20))
def test_json_that_fits_is_read_without_a_judge(values: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(ReferenceJsonDecoder, "row")
        check_json([*values], FLAT)


@pytest.mark.usefixtures("judged_rows")
@pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "no kernel"])
@QUICK
@given(SIMPLE_VALUES)
def test_simple_json_is_that_of_a_plain_reading(kernel: bool, values: list[bytes | None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if not kernel:
            patch.setattr(json_format, "_flat_reader", lambda _: None)
        check_json(values, SIMPLE)


@QUICK
@given(st.lists(simple_sure, min_size=1, max_size=20))
def test_ordinary_json_is_read_by_the_kernel_alone(values: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(ReferenceJsonDecoder, "row")
        patch.delattr(FastJson, "rows")
        check_json([*values], SIMPLE)


@QUICK
@given(VALUES)
def test_json_with_maps_is_that_of_a_plain_reading(values: list[bytes | None]) -> None:
    check_json(values, WITH_MAP)


@QUICK
@given(VALUES)
def test_no_field_is_lost_unreported(values: list[bytes | None]) -> None:
    """What a good row carries and the schema lacks is named, unless it says nothing."""
    schema = pa.schema([("a", pa.int64())])
    decoded = value_format({"format": "json"}).decode(pa.array(values, pa.binary()), schema)
    reported = set(decoded.unknown.names) if decoded.unknown is not None else set()
    carried = set()
    for row in decoded.good.to_pylist():
        found = None if values[row] is None else read(values[row])
        carried |= {name for name, each in (found or {}).items() if has_statement(each)}
    assert reported == carried - {"a"}


@QUICK
@given(VALUES | st.lists(NUMBERS, max_size=6))
def test_unknown_fields_have_the_types_that_inference_gives(values: list[bytes | None]) -> None:
    schema = pa.schema([("a", pa.int64())])
    found = value_format({"format": "json"})
    decoded = found.decode(pa.array(values, pa.binary()), schema)
    good = pa.array([values[row] for row in decoded.good.to_pylist()], pa.binary())
    inferred = {each.name: each.type for each in found.infer(good) if each.name != "a"}
    unknown = {each.name: each.type for each in decoded.unknown or pa.schema([])}
    assert in_one_order(unknown) == in_one_order(inferred)


def in_one_order(types: dict[str, pa.DataType]) -> Any:
    def ordered(type_: pa.DataType) -> Any:
        if pa.types.is_struct(type_):
            return in_one_order({each.name: each.type for each in type_})
        return [ordered(type_.value_type)] if pa.types.is_list(type_) else type_

    return [(name, ordered(types[name])) for name in sorted(types)]


def has_statement(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value
    return any(map(has_statement, inner)) if isinstance(value, (dict, list)) else value is not None


@QUICK
@given(st.lists(sure, max_size=12))
def test_inferred_columns_take_every_value_that_they_were_inferred_from(
    values: list[bytes],
) -> None:
    found = value_format({"format": "json"})
    sample = pa.array(values, pa.binary())
    decoded = found.decode(sample, found.infer(sample))
    assert decoded.bad == []
    assert decoded.unknown is None
    for value, row in zip(values, decoded.rows.to_pylist(), strict=True):
        said = {name: each for name, each in read(value).items() if has_statement(each)}
        assert {name for name, each in row.items() if has_statement(each)} == set(said)


# --- Avro

AVRO = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "i", "type": "int"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "b", "type": "boolean"},
        {"name": "raw", "type": "bytes"},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "m", "type": {"type": "map", "values": "long"}},
        {"name": "l", "type": {"type": "array", "items": ["null", "string"]}},
        {"name": "t", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {
            "name": "p",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
    ],
}
PARSED = fastavro.parse_schema(AVRO)
RECORDS = st.fixed_dictionaries(
    {
        "n": st.integers(-(2**63), 2**63 - 1),
        "i": st.integers(-(2**31), 2**31 - 1),
        "s": st.none() | st.text(max_size=4),
        "b": st.booleans(),
        "raw": st.binary(max_size=4),
        "e": st.sampled_from("AB"),
        "m": st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=2),
        "l": st.lists(st.none() | st.text(max_size=2), max_size=2),
        "t": st.datetimes(timezones=st.just(UTC)),
        "p": st.integers(-999_999_999, 999_999_999).map(lambda cents: Decimal(cents).scaleb(-2)),
    }
)


def written(record: Any) -> bytes:
    target = io.BytesIO()
    fastavro.schemaless_writer(target, PARSED, record)
    return target.getvalue()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    value = bytearray(written(draw(RECORDS)))
    place = draw(st.integers(0, len(value)))
    end = draw(st.sampled_from([place, min(place + 1, len(value)), len(value)]))
    value[place:end] = draw(st.binary(max_size=3))
    return bytes(value)


@QUICK
@given(st.lists(RECORDS | st.none(), max_size=10))
def test_avro_records_come_back(records: list[Any]) -> None:
    found = value_format({"format": "avro", "schema": AVRO})
    values = pa.array([None if each is None else written(each) for each in records], pa.binary())
    decoded = found.decode(values, found.schema())
    nothing = dict.fromkeys(found.schema().names)
    wanted = [{**each, "m": list(each["m"].items())} if each else nothing for each in records]
    assert decoded.bad == []
    assert plain(decoded.rows.to_pylist()) == plain(wanted)


@QUICK
@given(st.lists(RECORDS.map(written) | damaged(), max_size=10))
def test_both_avro_decoders_say_the_same(values: list[bytes]) -> None:
    found = value_format({"format": "avro", "schema": AVRO})
    both = found.decode(pa.array(values, pa.binary()), found.schema())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AvroDecoder, "_fast", not_fast)
        judged = found.decode(pa.array(values, pa.binary()), found.schema())
    assert both.bad == judged.bad
    assert both.good.equals(judged.good)
    assert both.rows.equals(judged.rows)


def not_fast(_self: AvroDecoder, _values: pa.BinaryArray) -> pa.StructArray:
    raise _NotFastError("asked not to be")
