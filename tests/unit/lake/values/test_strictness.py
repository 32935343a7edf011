"""Values with a field that no column can be made for are told from those that fit."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from neve.lake.values import decode_strictly, value_format

SCHEMA = pa.schema([("a", pa.int64())])
FORMAT = value_format({"format": "json"})
VALUES = {"good": b'{"a": 1}', "wider": b'{"a": 1, "b": 2}', "broken": b"{", "null": None}


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
