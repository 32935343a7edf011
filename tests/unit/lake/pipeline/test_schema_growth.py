"""Which fields of values become columns, and what several parts of a batch ask for together."""

from __future__ import annotations

import pyarrow as pa
import pytest

from neve.lake.pipeline import schema_growth
from neve.lake.pipeline.schema_growth import FIELDS_MAX, columns_for, room_for, united
from neve.lake.values.json_shape import BIG_INTEGER


def schema(**kinds: pa.DataType) -> pa.Schema:
    return pa.schema(list(kinds.items()))


def test_many_fields_are_not_tried_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    can_stand = schema_growth._can_stand

    def counted(columns: pa.Schema) -> bool:
        tried.append(len(columns))
        return can_stand(columns)

    monkeypatch.setattr(schema_growth, "_can_stand", counted)
    names = [f"field-{number}" for number in range(100)]
    wanted = pa.schema([(name, pa.int64()) for name in [*names, "_kafka"]])
    change = room_for(schema(id=pa.int64()), wanted)
    assert [each.name for each in change.add] == names
    assert [path for path, _ in change.refused] == [("_kafka",)]
    assert len(tried) < 20


def test_fields_without_a_name_are_left_out_wherever_they_are() -> None:
    inside = pa.struct([("", pa.int64()), ("x", pa.int64())])
    only = pa.struct([("", pa.int64())])
    found = columns_for(
        pa.schema([("a", inside), ("b", pa.list_(inside)), ("c", pa.list_(only)), ("", inside)])
    )
    kept = pa.struct([("x", pa.int64())])
    assert found == pa.schema([("a", kept), ("b", pa.list_(pa.field("element", kept)))])


def test_a_field_that_would_be_written_like_another_is_left_out() -> None:
    found = columns_for(pa.schema([("a-b", pa.int64()), ("a_x2Db", pa.int64())]))
    assert found.names == ["a-b"]


@pytest.mark.parametrize(
    ("first", "then", "both"),
    [
        (pa.int64(), pa.float64(), pa.float64()),
        (pa.float64(), pa.int64(), pa.float64()),
        (pa.int64(), BIG_INTEGER, BIG_INTEGER),
        (BIG_INTEGER, pa.float64(), pa.float64()),
        (pa.string(), pa.int64(), pa.string()),
        (pa.int64(), pa.string(), pa.int64()),
    ],
)
def test_what_is_asked_for_together(
    first: pa.DataType, then: pa.DataType, both: pa.DataType
) -> None:
    def nested(kind: pa.DataType) -> pa.DataType:
        return pa.list_(pa.field("element", pa.struct([("x", kind)])))

    asked = [schema(a=first, b=nested(first)), schema(a=then, b=nested(then), c=pa.bool_())]
    assert united(asked) == schema(a=both, b=nested(both), c=pa.bool_())


def test_a_table_has_so_many_fields_at_most() -> None:
    names = [f"n{number}" for number in range(2 * FIELDS_MAX)]
    found = columns_for(pa.schema([(name, pa.int64()) for name in names]))
    assert found.names == names[:FIELDS_MAX]
    assert room_for(found, schema(n0=pa.int64())).refused == []


# --- names that differ only in case


def added(schema: pa.Schema, *wanted: pa.Field) -> list[pa.Field]:
    return list(room_for(schema, pa.schema(list(wanted))).add)


def names_of(schema: pa.Schema, *wanted: pa.Field) -> list[str]:
    return [each.name for each in added(schema, *wanted)]


def test_of_names_that_differ_only_in_case_the_first_gets_the_column() -> None:
    first, then = pa.field("userId", pa.int64()), pa.field("userid", pa.string())
    assert names_of(pa.schema([]), first, then) == ["userId"]
    assert names_of(pa.schema([]), then, first) == ["userid"]
    assert names_of(pa.schema([then]), first, pa.field("other", pa.int64())) == ["other"]


def test_it_is_the_same_inside_of_structs() -> None:
    both = pa.struct([("x", pa.int64()), ("X", pa.int64())])
    one = pa.struct([("x", pa.int64())])
    assert added(pa.schema([]), pa.field("a", both)) == [pa.field("a", one)]
    deep = added(pa.schema([]), pa.field("a", pa.map_(pa.string(), pa.list_(both))))
    assert deep[0].type.item_type.value_type == one
    nested = pa.schema([pa.field("a", one)])
    more = pa.struct([("X", pa.int64()), ("y", pa.int64())])
    assert added(nested, pa.field("a", more)) == [pa.field("a", pa.struct([("y", pa.int64())]))]
    assert names_of(nested, pa.field("x", pa.int64())) == ["x"]


def test_a_table_that_has_such_columns_keeps_them_and_grows() -> None:
    both = pa.schema([("id", pa.int64()), ("ID", pa.int64())])
    assert names_of(both, pa.field("new", pa.int64()), pa.field("Id", pa.int64())) == ["new"]
