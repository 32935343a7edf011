"""Values with a field that no column can be made for are told from those that fit."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.lake.values import Decoded, decode_strictly, value_format
from neve.lake.values.json_format import JsonFormat

SCHEMA = pa.schema([("a", pa.int64())])
FORMAT = value_format({"format": "json"})
VALUES = {"good": b'{"a": 1}', "wider": b'{"a": 1, "b": 2}', "broken": b"{", "null": None}


@settings(deadline=None)
@given(st.lists(st.sampled_from(sorted(VALUES)), max_size=40))
def test_each_value_is_judged_by_itself(kinds: list[str]) -> None:
    decoded = decode_strictly(
        FORMAT, pa.array([VALUES[kind] for kind in kinds], pa.binary()), SCHEMA
    )
    good = [row for row, kind in enumerate(kinds) if kind in ("good", "null")]
    assert decoded.good.to_pylist() == good
    assert decoded.rows["a"].to_pylist() == [1 if kinds[row] == "good" else None for row in good]
    assert [each.row for each in decoded.bad] == [
        row for row in range(len(kinds)) if row not in good
    ]
    assert decoded.unknown is None


def test_the_reason_names_the_field() -> None:
    decoded = decode_strictly(FORMAT, pa.array([VALUES["wider"]], pa.binary()), SCHEMA)
    assert decoded.bad[0].reason == "the table has no column for b, and cannot get one"


def test_many_such_values_are_not_asked_for_in_ever_smaller_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    decode = JsonFormat.decode

    def counted(self: JsonFormat, values: pa.BinaryArray, schema: pa.Schema) -> Decoded:
        asked.append(len(values))
        return decode(self, values, schema)

    monkeypatch.setattr(JsonFormat, "decode", counted)
    values = pa.array([VALUES["wider"], VALUES["good"]] * 500, pa.binary())
    decoded = decode_strictly(FORMAT, values, SCHEMA)
    assert (len(decoded.bad), decoded.rows.num_rows) == (500, 500)
    assert asked == [1000]


def test_a_field_that_asks_for_no_column_is_no_fault() -> None:
    values = pa.array([b'{"a": 1, "b": null, "c": {}, "d": [[]]}', VALUES["wider"]], pa.binary())
    decoded = decode_strictly(FORMAT, values, SCHEMA)
    assert (decoded.good.to_pylist(), [each.row for each in decoded.bad]) == ([0], [1])
