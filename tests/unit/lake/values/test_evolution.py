"""What a table may change to take new rows, against what Iceberg itself allows."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.table.name_mapping import MappedField, NameMapping

from neve.errors import InvalidError
from neve.lake.values import Evolution, evolution, evolved, plain_schema
from neve.lake.values.types import LOCAL_TIMESTAMP, TIMESTAMP, list_of, map_of

STRUCT = pa.struct([("x", pa.int32())])
TABLE = pa.schema(
    [
        ("id", pa.int32()),
        ("price", pa.decimal128(10, 2)),
        ("rate", pa.float32()),
        ("at", STRUCT),
        ("list", list_of(STRUCT)),
        ("map", map_of(list_of(STRUCT))),
    ]
)


def test_the_same_columns_or_fewer_change_nothing() -> None:
    assert evolution(TABLE, TABLE) == Evolution()
    assert not evolution(TABLE, pa.schema([("rate", pa.float32())]))
    assert evolved(TABLE, Evolution()) == TABLE


def test_new_fields_are_added_at_any_depth() -> None:
    more = pa.struct([("x", pa.int32()), ("y", pa.string())])
    incoming = pa.schema(
        [("new", TIMESTAMP), ("at", more), ("list", list_of(more)), ("map", map_of(list_of(more)))]
    )
    change = evolution(TABLE, incoming)
    only = pa.struct([("y", pa.string())])
    assert change.add == [
        pa.field("new", TIMESTAMP),
        pa.field("at", only),
        pa.field("list", list_of(only)),
        pa.field("map", map_of(list_of(only))),
    ]
    assert (change.widen, change.refused) == ([], [])
    after = evolved(TABLE, change)
    assert after.names == [*TABLE.names, "new"]
    assert after.field("map").type == map_of(list_of(more))
    assert not evolution(after, incoming)


def test_safe_widenings_are_taken_at_any_depth() -> None:
    incoming = pa.schema(
        [
            ("id", pa.int64()),
            ("price", pa.decimal128(12, 2)),
            ("rate", pa.float64()),
            ("list", list_of(pa.struct([("x", pa.int64())]))),
        ]
    )
    change = evolution(TABLE, incoming)
    assert change.widen == [
        (("id",), pa.int64()),
        (("price",), pa.decimal128(12, 2)),
        (("rate",), pa.float64()),
        (("list", "[]", "x"), pa.int64()),
    ]
    assert (change.add, change.refused) == ([], [])
    after = evolved(TABLE, change)
    assert after.field("list").type == list_of(pa.struct([("x", pa.int64())]))
    assert after.field("at").type == STRUCT
    assert not evolution(after, incoming)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.int64(), pa.int32()),
        (pa.float64(), pa.float32()),
        (pa.float64(), pa.int32()),
        (pa.decimal128(10, 2), pa.decimal128(8, 2)),
        (pa.decimal128(10, 2), pa.decimal128(9, 1)),
        (pa.decimal128(21, 2), pa.int64()),
        (pa.string(), pa.large_string()),
        (TIMESTAMP, pa.timestamp("ms", "UTC")),
    ],
)
def test_what_fits_already_changes_nothing(old: pa.DataType, new: pa.DataType) -> None:
    assert evolution(pa.schema([("f", old)]), pa.schema([("f", new)])) == Evolution()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pa.int64(), pa.string()),
        (pa.string(), pa.int64()),
        (pa.int64(), pa.float64()),
        (pa.float64(), pa.int64()),
        (pa.int32(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 3)),
        (pa.decimal128(10, 2), pa.int64()),
        (STRUCT, list_of(STRUCT)),
        (pa.int64(), STRUCT),
        (map_of(pa.int64()), STRUCT),
        (TIMESTAMP, LOCAL_TIMESTAMP),
    ],
)
def test_anything_else_is_refused_and_the_rest_goes_on(old: pa.DataType, new: pa.DataType) -> None:
    table, incoming = pa.schema([("f", old)]), pa.schema([("f", new), ("g", pa.int64())])
    change = evolution(table, incoming)
    assert [path for path, _ in change.refused] == [("f",)]
    assert "in the table" in change.refused[0][1]
    assert change.add == [pa.field("g", pa.int64())]
    assert evolved(table, change).field("f").type == old


def test_a_conflict_inside_a_struct_is_named_by_its_path() -> None:
    change = evolution(TABLE, pa.schema([("list", list_of(pa.struct([("x", pa.string())])))]))
    assert change.refused == [
        (("list", "[]", "x"), "list[].x is int32 in the table and string in the rows")
    ]


def test_a_field_that_no_table_can_hold_is_refused() -> None:
    incoming = pa.schema([("n", pa.null()), ("e", pa.struct([])), ("u", pa.uint64())])
    change = evolution(TABLE, incoming)
    assert [path for path, _ in change.refused] == [("n",), ("e",), ("u",)]
    assert not change


def test_a_required_column_that_rows_lack_is_refused() -> None:
    table = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    assert evolution(table, pa.schema([("x", pa.int64())])).refused == [
        (("id",), "the table requires it and the rows lack it")
    ]


def test_a_plain_schema_is_one_that_iceberg_holds() -> None:
    found = plain_schema(
        pa.schema(
            [
                pa.field("a", pa.large_string(), nullable=False),
                ("b", pa.large_list(pa.large_binary())),
                ("c", pa.timestamp("ns", "UTC")),
                ("d", pa.timestamp("s")),
                ("e", pa.uint16()),
                ("f", pa.uuid()),
                ("g", pa.time32("ms")),
                ("h", map_of(pa.struct([("x", pa.large_string())]))),
            ]
        )
    )
    assert found.types[:6] == [
        pa.string(),
        list_of(pa.binary()),
        TIMESTAMP,
        LOCAL_TIMESTAMP,
        pa.int32(),
        pa.binary(16),
    ]
    assert all(field.nullable for field in found)
    # pyiceberg itself takes the schema: every type has its place in Iceberg.
    names = NameMapping([_mapped(field, [0]) for field in found])
    assert len(pyarrow_to_schema(found, names).fields) == len(found)


def _mapped(field: pa.Field, counter: list[int]) -> MappedField:
    counter[0] += 1
    number, type_ = counter[0] + 100 * len(field.name), field.type
    inner: list[pa.Field] = []
    if pa.types.is_struct(type_):
        inner = list(type_)
    elif pa.types.is_list(type_):
        inner = [pa.field("element", type_.value_type)]
    elif pa.types.is_map(type_):
        inner = [pa.field("key", type_.key_type), pa.field("value", type_.item_type)]
    fields = [_mapped(each, counter) for each in inner]
    return MappedField(**{"field-id": number, "names": [field.name], "fields": fields})


@pytest.mark.parametrize(
    "type_",
    [pa.null(), pa.uint64(), pa.struct([]), pa.timestamp("us", "Europe/Paris"), pa.duration("s")],
)
def test_a_type_that_no_table_can_hold_is_refused_by_path(type_: pa.DataType) -> None:
    with pytest.raises(InvalidError, match=r"a\[\]\.b"):
        plain_schema(pa.schema([("a", pa.list_(pa.struct([("b", type_)])))]))
