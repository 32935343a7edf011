"""Iceberg tables as queries see them: files chosen, deletes applied, types plain."""

from __future__ import annotations

import pickle
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from neve.lake.sql.iceberg.filters import Filters
from neve.lake.sql.iceberg.plan import TablePlan, plan_table
from neve.lake.sql.iceberg.types import converted
from neve.lake.sql.literals import Constants, FromNow, Value
from neve.lake.sql.predicates import AllOf, AnyOf, Compare, OneOf, Predicate
from neve.lake.tables import TopicProgress, commit, open_table, table_ref, write_files
from support.iceberg_deletes import delete_equal, delete_positions

NOW_MS = 1_700_000_000_000
CONSTANTS = Constants(ZoneInfo("UTC"))
IDS = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    found = SqlCatalog("t", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    found.create_namespace("sales")
    yield found
    found.close()


def rows_of(first: int, end: int) -> pa.Table:
    ids = list(range(first, end))
    return pa.table([ids, [f"n{number % 3}" for number in ids]], schema=IDS)


def filled(catalog: SqlCatalog, *ranges: tuple[int, int]) -> Table:
    table = catalog.create_table("sales.orders", IDS, properties={"format-version": "2"})
    for first, end in ranges:
        table.append(rows_of(first, end))
    return table


def read(plan: TablePlan) -> list[dict[str, object]]:
    """What workers would give, in their pickled form."""
    sent: TablePlan = pickle.loads(pickle.dumps(plan))
    batches = [batch for group in sent.groups for batch in sent.read.batches(group)]
    assert all(batch.schema == sent.read.schema() for batch in batches)
    return pa.Table.from_batches(batches, sent.read.schema()).to_pylist()


def ids(table: Table, predicate: Predicate | None = None) -> list[object]:
    wanted = Filters(table.schema(), CONSTANTS, NOW_MS).expression(predicate)
    return sorted(row["id"] for row in read(plan_table(table, ["id"], wanted)))


def test_files_that_a_filter_rules_out_are_not_planned(catalog: SqlCatalog) -> None:
    table = filled(catalog, (0, 10), (10, 20), (20, 30))
    wanted = Filters(table.schema(), CONSTANTS, NOW_MS).expression(Compare("id", ">=", 20))
    plan = plan_table(table, ["id"], wanted)
    assert (plan.files_planned, plan.files_pruned) == (1, 2)
    assert plan.bytes_planned > 0
    assert plan.bytes_pruned > plan.bytes_planned
    assert [row["id"] for row in read(plan)] == list(range(20, 30))


def test_an_empty_table_and_one_without_a_snapshot_have_no_rows(catalog: SqlCatalog) -> None:
    table = catalog.create_table("sales.nothing", IDS)
    assert read(plan_table(table, ["id"], None)) == []
    table.append(IDS.empty_table())
    assert read(plan_table(table, ["id"], None)) == []


def test_rows_deleted_by_position_are_gone(catalog: SqlCatalog) -> None:
    table = filled(catalog, (0, 5), (5, 10))
    files = {task.file.lower_bounds[1]: task.file.file_path for task in table.scan().plan_files()}
    newer = files[max(files)]
    delete_positions(table, {newer: [0, 3]})
    assert ids(table) == [0, 1, 2, 3, 4, 6, 7, 9]
    assert ids(table, Compare("id", ">", 6)) == [7, 9]
    assert plan_table(table, ["id"], None).delete_files == 1


def test_rows_deleted_by_value_are_gone_where_they_are_older(catalog: SqlCatalog) -> None:
    table = filled(catalog, (0, 5))
    delete_equal(table, pa.table({"id": pa.array([1, 3, 99], pa.int64())}), ["id"])
    table.append(rows_of(3, 7))
    assert ids(table) == [0, 2, 3, 4, 4, 5, 6]
    assert ids(table, Compare("id", "<", 4)) == [0, 2, 3]


def test_a_deleting_column_need_not_be_asked_for(catalog: SqlCatalog) -> None:
    table = filled(catalog, (0, 6))
    delete_equal(table, pa.table({"id": pa.array([0, 1], pa.int64())}), ["id"])
    found = read(plan_table(table, ["name"], None))
    assert found == [{"name": "n2"}, {"name": "n0"}, {"name": "n1"}, {"name": "n2"}]


def test_several_columns_delete_together_and_null_equals_null(catalog: SqlCatalog) -> None:
    table = filled(catalog, (0, 4))
    table.append(pa.table([[None, None, 9], ["a", None, None]], schema=IDS))
    gone = pa.table([[0, 1, None], ["n0", "no", None]], schema=IDS)
    delete_equal(table, gone, ["id", "name"])
    found = read(plan_table(table, ["id", "name"], None))
    assert {(row["id"], row["name"]) for row in found} == {
        (1, "n1"),
        (2, "n2"),
        (3, "n0"),
        (None, "a"),
        (9, None),
    }
    delete_equal(table, pa.table({"id": pa.array([None], pa.int64())}), ["id"])
    assert ids(table) == [1, 2, 3, 9]


def test_bounds_of_columns_that_do_not_decide_do_not_prune_deletes(catalog: SqlCatalog) -> None:
    table = filled(catalog, (0, 3))
    delete_equal(table, pa.table([[1], ["zzz"]], schema=IDS), ["id"])
    assert ids(table, Compare("name", "=", "n1")) == []


def test_a_partitions_deletes_leave_other_partitions_alone(catalog: SqlCatalog) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    table = catalog.create_table("sales.parts", schema, partition_spec=spec)
    table.append(pa.table([[1, 1, 2], ["a", "b", "a"]], schema=IDS))
    values = pa.table({"id": pa.array([1], pa.int64())})
    delete_equal(table, values, ["id"], partition=Record("a"))
    found = read(plan_table(table, ["id", "name"], None))
    assert {(row["id"], row["name"]) for row in found} == {(1, "b"), (2, "a")}


def test_columns_that_came_went_and_were_renamed(catalog: SqlCatalog) -> None:
    table = filled(catalog, (0, 3))
    delete_equal(table, pa.table({"id": pa.array([2], pa.int64())}), ["id"])
    with table.update_schema() as update:
        update.rename_column("name", "label")
        update.add_column("extra", DoubleType())
        update.delete_column("id")
    table.append(pa.table({"label": pa.array(["new"]), "extra": pa.array([1.5])}))
    found = read(plan_table(table, ["label", "extra"], None))
    assert sorted(found, key=lambda row: str(row["label"])) == [
        {"label": "n0", "extra": None},
        {"label": "n1", "extra": None},
        {"label": "new", "extra": 1.5},
    ]


def test_null_lists_and_maps_are_no_empty_ones(catalog: SqlCatalog) -> None:
    inner = pa.struct([("x", pa.int64())])
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("list", pa.list_(inner)),
            ("map", pa.map_(pa.string(), inner)),
            ("deep", pa.struct([("list", pa.list_(inner))])),
        ]
    )
    made = [
        {"id": 1, "list": None, "map": None, "deep": {"list": None}},
        {"id": 2, "list": [], "map": [], "deep": {"list": []}},
        {"id": 3, "list": [{"x": 1}, None], "map": [("k", None)], "deep": None},
        {"id": 4, "list": None, "map": None, "deep": {"list": [{"x": 2}]}},
    ]
    table = open_table(catalog, "sales.nested", schema, [])
    files = write_files(table_ref(table), [pa.RecordBatch.from_pylist(made, schema=schema)])
    commit(table, files, {}, {"id": TopicProgress("nested", {0: 4})})
    assert read(plan_table(table, schema.names, None)) == made
    # What pyiceberg writes in a process that has read this way is whole, too.
    table.append(pa.Table.from_pylist([{**row, "id": 10 + row["id"]} for row in made], schema))
    found = read(plan_table(table.refresh(), schema.names, None))
    assert [{**row, "id": row["id"] % 10} for row in found] == made * 2


def test_every_type_is_one_that_spark_has(catalog: SqlCatalog) -> None:
    schema = Schema(
        NestedField(1, "u", UUIDType()),
        NestedField(2, "t", TimeType()),
        NestedField(3, "f", FixedType(2)),
        NestedField(4, "ts", TimestamptzType()),
        NestedField(5, "ntz", TimestampType()),
        NestedField(6, "d", DecimalType(9, 2)),
        NestedField(7, "l", ListType(8, StringType(), False)),
        NestedField(9, "m", MapType(10, StringType(), 11, LongType(), False)),
        NestedField(12, "s", StructType(NestedField(13, "x", StringType()))),
    )
    table = catalog.create_table("sales.types", schema)
    moment, number = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC), uuid.uuid4()
    row = {
        "u": number.bytes,
        "t": time(1, 2, 3),
        "f": b"ab",
        "ts": moment,
        "ntz": moment.replace(tzinfo=None),
        "d": Decimal("1.25"),
        "l": ["a"],
        "m": [("k", 1)],
        "s": {"x": "y"},
    }
    table.append(pa.Table.from_pylist([row, dict.fromkeys(row)], schema=table.schema().as_arrow()))
    plan = plan_table(table, list(row), None)
    kinds = {field.name: field.type for field in plan.read.schema()}
    assert kinds["u"] == kinds["t"] == pa.string()
    assert kinds["f"] == pa.binary()
    assert kinds["ts"] == pa.timestamp("us", "UTC")
    assert kinds["ntz"] == pa.timestamp("us")
    assert kinds["l"] == pa.list_(pa.field("element", pa.string()))
    found = read(plan)
    assert found[0] == {**row, "u": str(number), "t": "01:02:03.000000"}
    assert found[1] == dict.fromkeys(row)


def schema_of_filters() -> Schema:
    return Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "name", StringType()),
        NestedField(3, "score", DoubleType()),
        NestedField(4, "ts", TimestamptzType()),
        NestedField(5, "day", DateType()),
        NestedField(6, "price", DecimalType(5, 2)),
        NestedField(7, "Mixed", LongType()),
    )


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("score", 5),  # Spark holds NaN to be greater than any number
        ("id", "x"),
        ("id", Decimal("1.5")),
        ("id", 2**64),
        ("name", 5),
        ("price", Decimal("1.234")),
        ("price", 123456),
        ("day", "2024-1-1"),
        ("ts", "yesterday"),
        ("missing", 5),
    ],
)
def test_what_could_mean_something_else_is_not_pushed(column: str, value: Value) -> None:
    filters = Filters(schema_of_filters(), CONSTANTS, NOW_MS)
    assert filters.expression(Compare(column, ">", value)) is None
    assert filters.expression(AnyOf((Compare(column, ">", value), Compare("id", ">", 1)))) is None
    kept = filters.expression(AllOf((Compare(column, ">", value), Compare("id", ">", 1))))
    assert kept == filters.expression(Compare("id", ">", 1))
    assert kept is not None


@pytest.mark.parametrize(
    ("predicate", "told"),
    [
        (Compare("id", "=", "7"), "7"),
        (Compare("mixed", "<", 7), "Mixed"),
        (OneOf("name", ("a", "b")), "a"),
        (Compare("day", "<=", date(2024, 1, 2)), "2024-01-02"),
        (Compare("ts", ">", "2024-01-02"), "2024-01-02T00:00:00.000000+00:00"),
        (Compare("ts", ">", FromNow(timedelta(hours=-1))), "2023-11-14T21:13:20"),
        (Compare("price", ">", 3), "3.00"),
    ],
)
def test_what_means_the_same_is_pushed(predicate: Predicate, told: str) -> None:
    found = Filters(schema_of_filters(), CONSTANTS, NOW_MS).expression(predicate)
    assert told in repr(found)


def test_an_upper_bound_of_the_clock_is_not_pushed() -> None:
    filters = Filters(schema_of_filters(), CONSTANTS, NOW_MS)
    assert filters.expression(Compare("ts", "<", FromNow(timedelta(hours=-1)))) is None


@pytest.mark.parametrize("kind", [pa.uuid(), pa.binary(16)])
def test_uuids_inside_other_values_are_text(kind: pa.DataType) -> None:
    some = pa.array([uuid.UUID(int=5).bytes, None], kind)
    text = str(uuid.UUID(int=5))
    gone = pa.array([False, True, False])
    offsets = pa.array([0, 1, 1, 2], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, some, mask=gone)
    maps = pa.MapArray.from_arrays(offsets, pa.array(["a", "b"]), some, mask=gone)
    structs = pa.StructArray.from_arrays(
        [some, pa.array([1, 2])], names=["u", "n"], mask=pa.array([False, True])
    )
    inner = pa.struct([("u", pa.string()), ("n", pa.int64())])
    of_lists = converted(lists, pa.list_(pa.string()))
    assert of_lists.to_pylist() == [[text], None, [None]]
    assert converted(lists.slice(1), pa.list_(pa.string())).to_pylist() == [None, [None]]
    of_maps = converted(maps, pa.map_(pa.string(), pa.string()))
    assert of_maps.to_pylist() == [[("a", text)], None, [("b", None)]]
    assert converted(structs, inner).to_pylist() == [{"u": text, "n": 1}, None]
    for made in (of_lists, of_maps, converted(structs, inner)):
        made.validate(full=True)


def test_columns_that_differ_in_case_only_prune_nothing() -> None:
    schema = Schema(
        NestedField(1, "Id", LongType(), required=False),
        NestedField(2, "id", LongType(), required=False),
        NestedField(3, "n", LongType(), required=False),
    )
    filters = Filters(schema, Constants(ZoneInfo("UTC")), 0)
    assert filters.expression(Compare("id", ">", 5)) is None
    assert filters.expression(Compare("n", ">", 5)) is not None
