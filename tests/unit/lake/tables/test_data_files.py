"""Files that workers write: readable, described and placed as the table wants them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from neve.errors import InvalidError
from neve.lake.tables import commit, open_table, table_ref, write_files
from neve.lake.tables import data_files as data_files_module
from neve.lake.tables.live_files import bounds_of
from unit.lake.tables.table_scene import (
    DAY_US,
    START_US,
    VALUE,
    at,
    catalog_in,
    held,
    once,
    rows,
    table_in,
    written,
)


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    with catalog_in(tmp_path_factory.mktemp("catalog")) as opened:
        yield opened


def test_what_crosses_to_workers_and_back_can_be_pickled(catalog: Catalog) -> None:
    table = open_table(catalog, "lake.pickled", VALUE)
    ref = table_ref(table)
    _ = ref.schema, ref.spec, ref.settings
    sent = pickle.loads(pickle.dumps(ref))
    assert sent == ref
    files = pickle.loads(pickle.dumps(write_files(sent, iter([rows(0, 10)]))))
    commit(table, files, {}, at(10))
    assert held(table) == once(0, 10)


def test_workers_are_not_told_where_the_catalog_is(catalog: Catalog) -> None:
    ref = table_ref(open_table(catalog, "lake.hidden", VALUE))
    assert "uri" in catalog.properties
    assert "uri" not in dict(ref.io_properties)
    assert "sqlite" not in repr(ref)


def test_one_file_for_each_day_with_its_value_and_bounds(catalog: Catalog) -> None:
    table = open_table(catalog, "lake.days", VALUE)
    files = written(table, rows(0, 150), rows(150, 250))
    assert [(file.data_file.partition[0], file.rows) for file in files] == [
        (20_000, 100),
        (20_001, 100),
        (20_002, 50),
    ]
    assert "/data/kafka_timestamp_day=2024-10-04/" in files[0].path
    file = files[1].data_file
    assert bounds_of(table, file, "_kafka.offset") == (100, 199)
    assert bounds_of(table, file, "_kafka.timestamp") == (
        START_US + DAY_US,
        START_US + 2 * DAY_US - DAY_US // 100,
    )
    assert bounds_of(table, file, "text") == ("text 100", "text 199")
    assert file.null_value_counts[table.schema().find_field("number").field_id] == 0
    assert file.split_offsets is not None
    assert file.split_offsets[0] >= 4
    assert file.file_size_in_bytes == Path(file.file_path).stat().st_size


def test_files_carry_the_table_s_field_ids(catalog: Catalog) -> None:
    table = open_table(catalog, "lake.ids", VALUE)
    (file,) = written(table, rows(0, 1))
    schema = pq.read_schema(file.path)
    assert schema.field("text").metadata[b"PARQUET:field_id"] == b"2"
    inside = schema.field("_kafka").type.field("offset")
    wanted = table.schema().find_field("_kafka.offset").field_id
    assert inside.metadata[b"PARQUET:field_id"] == str(wanted).encode()


def test_no_rows_make_no_file(catalog: Catalog) -> None:
    table = open_table(catalog, "lake.none", VALUE)
    assert written(table) == []
    assert written(table, rows(0, 0)) == []


def test_absent_columns_are_null_and_unknown_ones_refused(catalog: Catalog) -> None:
    table = open_table(catalog, "lake.absent", VALUE)
    files = written(table, rows(0, 3).drop_columns(["text"]))
    commit(table, files, {}, at(3))
    assert table.scan().to_arrow()["text"].to_pylist() == [None] * 3
    other = pa.RecordBatch.from_pydict({"colour": ["red"]})
    with pytest.raises(InvalidError, match="no column colour"):
        written(table, other)


def test_names_that_parquet_readers_stumble_over_are_read_back(catalog: Catalog) -> None:
    inner = pa.struct([("x.y", pa.int32()), ("wide", pa.list_(pa.struct([("a b", pa.string())])))])
    value = pa.schema([("a.b", pa.int64()), ("1-ö", pa.string()), ("in", inner)])
    table = open_table(catalog, "lake.names", value, ["_kafka.partition"])
    row = {"a.b": 7, "1-ö": "z", "in": {"x.y": 3, "wide": [{"a b": "q"}, None]}}
    batch = pa.RecordBatch.from_pylist(
        [row, row], schema=pa.schema([*value, rows(0, 2).schema.field("_kafka")])
    ).set_column(3, "_kafka", rows(0, 2)["_kafka"])
    commit(table, written(table, batch.slice(0, 1), batch.slice(1, 1)), {}, at(2))
    found = table.scan().to_arrow().to_pylist()
    assert [{name: each[name] for name in row} for each in found] == [row, row]


VALUES = {
    "whole": (pa.int64(), [5, -7, None]),
    "text": (pa.string(), ["ünï", "", None]),
    "flag": (pa.bool_(), [True, False, None]),
    "money": (pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-0.01"), None]),
    "day": (pa.date32(), [date(1969, 12, 31), date(2024, 2, 29), None]),
    "at": (
        pa.timestamp("us", tz="UTC"),
        [datetime(1969, 12, 31, 23, 59, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC), None],
    ),
    "raw": (pa.binary(), [b"\x00\xff", b"", None]),
}
CASES = [
    *[
        (f"{each}({name})", name)
        for each in ("year", "month", "day", "hour")
        for name in ("day", "at")
    ],
    *[(f"bucket(4, {name})", name) for name in ("whole", "text", "money", "day", "at", "raw")],
    *[(f"truncate(3, {name})", name) for name in ("whole", "text", "money", "raw")],
    *[(name, name) for name in ("whole", "text", "flag", "money", "day", "at")],
]


@pytest.mark.parametrize(
    ("partition_by", "column"),
    [case for case in CASES if case != ("hour(day)", "day")],
    ids=lambda case: str(case),
)
def test_partition_values_are_iceberg_s_own(
    catalog: Catalog, partition_by: str, column: str
) -> None:
    kind, values = VALUES[column]
    value = pa.schema([(column, kind)])
    name = f"lake.p_{partition_by.translate(str.maketrans('(), ', '____'))}"
    table = open_table(catalog, name, value, [partition_by])
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind)], [column])
    files = written(table, batch)
    field = table.schema().find_field(column)
    single = table.spec().fields[0].transform.transform(field.field_type)
    plain = [_stored(each) for each in values]
    expected = list(dict.fromkeys(single(each) for each in plain))
    assert [file.data_file.partition[0] for file in files] == expected
    commit(table, files, {}, at(1))
    found = table.refresh().scan().to_arrow()[column].to_pylist()
    assert sorted(map(str, found)) == sorted(map(str, values))


def _stored(value: object) -> object:
    """As Iceberg's functions take dates and times: numbers."""
    if isinstance(value, datetime):
        return round((value - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1_000_000)
    return (value - date(1970, 1, 1)).days if isinstance(value, date) else value


def test_several_partition_columns_split_by_their_combination(catalog: Catalog) -> None:
    table = open_table(
        catalog, "lake.several", VALUE, ["day(_kafka.timestamp)", "bucket(2, number)"]
    )
    files = written(table, rows(0, 120))
    assert len({tuple(file.data_file.partition) for file in files}) == len(files) == 4
    commit(table, files, {}, at(120))
    assert held(table) == once(0, 120)
    some = table.scan(row_filter="number == 7").to_arrow()
    assert some["number"].to_pylist() == [7]


# --- bounds


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files_module, "ROW_GROUP_BYTES", 4_000)
    monkeypatch.setattr(data_files_module, "BUFFERED_BYTES_MAX", 6_000)
    monkeypatch.setattr(data_files_module, "OPEN_PARTITIONS_MAX", 2)


@pytest.mark.usefixtures("tight")
def test_a_file_ends_at_the_target_size(catalog: Catalog) -> None:
    small = {"write.target-file-size-bytes": "4000"}
    table = open_table(catalog, "lake.sizes", VALUE, [], properties=small)
    files = written(table, rows(0, 1000))
    assert len(files) >= 3
    assert all(file.bytes < 20_000 for file in files)
    assert pq.read_metadata(files[0].path).num_row_groups > 1
    commit(table, files, {}, at(1000))
    assert held(table) == once(0, 1000)
    placed = [bounds_of(table, file.data_file, "_kafka.offset") for file in files]
    assert placed == sorted(placed)


@pytest.mark.usefixtures("tight")
def test_open_partitions_and_buffers_are_bounded(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = open_table(catalog, "lake.bounds", VALUE)
    most_open = most_buffered = 0
    real = data_files_module._TaskWriter._relieve

    def seen(self: data_files_module._TaskWriter, values: tuple[object, ...]) -> None:
        nonlocal most_open, most_buffered
        real(self, values)
        most_open = max(most_open, len(self._open))
        most_buffered = max(most_buffered, sum(each.buffered_bytes for each in self._open.values()))
        assert self._buffered_bytes == sum(each.buffered_bytes for each in self._open.values())

    monkeypatch.setattr(data_files_module._TaskWriter, "_relieve", seen)
    mixed = [rows(day * 100 + n, day * 100 + n + 20) for n in (0, 40, 80) for day in range(5)]
    files = written(table, *mixed)
    assert most_open == 2
    assert 0 < most_buffered <= 6_000
    assert sum(file.rows for file in files) == 300
    commit(table, files, {}, at(500))
    assert len(held(table)) == 300


def test_a_failing_source_leaves_nothing_open(catalog: Catalog) -> None:
    table = open_table(catalog, "lake.failing", VALUE)

    def broken() -> Iterator[pa.RecordBatch]:
        yield rows(0, 10)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        write_files(table_ref(table), broken())


def test_a_task_run_twice_touches_no_file_of_the_other(catalog: Catalog) -> None:
    table: Table = open_table(catalog, "lake.twice", VALUE)
    first, second = written(table, rows(0, 10)), written(table, rows(0, 10))
    assert {file.path for file in first}.isdisjoint(file.path for file in second)
    assert table_in(catalog).spec() == table.spec()
