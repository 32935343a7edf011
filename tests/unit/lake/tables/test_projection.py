"""What is rewritten stays what it was: null lists are no empty ones, columns are told by id."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, LongType, StringType

from neve.lake.tables import MaintenancePolicy, MaintenanceReport, commit, open_table
from neve.lake.tables.columns import KAFKA_STRUCT
from neve.lake.tables.live_files import live_entries
from neve.lake.tables.maintenance.small_files import merge_small_files
from neve.lake.tables.projection import projected, projected_batches
from unit.lake.tables.table_scene import at, catalog_in, written

INSIDE = pa.struct([("x", pa.int32())])
VALUE = pa.schema(
    [
        ("number", pa.int32()),
        ("list", pa.list_(pa.field("element", INSIDE))),
        ("map", pa.map_(pa.string(), INSIDE)),
        ("deep", pa.struct([("list", pa.list_(pa.field("element", INSIDE)))])),
        ("share", pa.float32()),
    ]
)
ROWS: list[dict[str, Any]] = [
    {"number": 0, "list": [{"x": 1}, None], "map": [("a", {"x": 2})], "deep": {"list": None}},
    {"number": 1, "list": None, "map": None, "deep": None},
    {"number": 2, "list": [], "map": [], "deep": {"list": []}},
    {"number": 3, "list": [{"x": None}], "map": [("b", None)], "deep": {"list": [None]}},
]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with catalog_in(tmp_path) as opened:
        yield opened


def filled(catalog: Catalog) -> Table:
    """The rows in two files."""
    table = open_table(catalog, "lake.nested", VALUE)
    schema = VALUE.append(pa.field("_kafka", KAFKA_STRUCT))
    for first in (0, 2):
        made = [
            {**row, "share": 0.5, "_kafka": {"partition": 0, "offset": row["number"]}}
            for row in ROWS[first : first + 2]
        ]
        batch = pa.RecordBatch.from_pylist(made, schema=schema)
        commit(table, written(table, batch), at(first or None), at(first + 2))
    return table


def in_files(table: Table) -> list[dict[str, Any]]:
    """As Parquet has it: pyiceberg's scan cannot tell a null list from an empty one."""
    found: list[dict[str, Any]] = []
    for each in live_entries(table.refresh()):
        found += pq.ParquetFile(each.data_file.file_path).read().to_pylist()
    return sorted(found, key=lambda row: row["number"])


def test_a_merge_changes_no_value(catalog: Catalog) -> None:
    table = filled(catalog)
    before = in_files(table)
    assert [row["list"] for row in before] == [row["list"] for row in ROWS]
    report = MaintenanceReport()
    merge_small_files(table, MaintenancePolicy(merge_files_least=2), report)
    assert (report.files_merged, report.files_written) == (2, 1)
    assert in_files(table) == before


def test_columns_are_found_by_their_ids_and_widened(catalog: Catalog) -> None:
    table = filled(catalog)
    with table.update_schema() as change:
        change.update_column("number", LongType())
        change.update_column("share", DoubleType())
        change.rename_column("number", "count")
        change.add_column("note", StringType())
        change.delete_column("map")
    (file, *_) = (each.data_file for each in live_entries(table.refresh()))
    batches = projected_batches(table, file)
    assert batches is not None
    found = pa.Table.from_batches(batches)
    assert set(found.schema.names) == {"count", "list", "deep", "share", "note", "_kafka"}
    assert (found.schema.field("count").type, found["note"].null_count) == (pa.int64(), 2)
    assert found["share"].to_pylist() == [0.5, 0.5]


def test_a_slice_is_projected_as_it_is(catalog: Catalog) -> None:
    table = filled(catalog)
    files = [each.data_file.file_path for each in live_entries(table)]
    whole = pa.concat_tables(pq.ParquetFile(path).read() for path in files).sort_by("number")
    (batch,) = whole.combine_chunks().to_batches()
    found = projected(batch.slice(1, 2), table.schema()).to_pylist()
    assert [(row["list"], row["map"], row["deep"]) for row in found] == [
        (row["list"], row["map"], row["deep"]) for row in ROWS[1:3]
    ]


def test_a_file_without_ids_is_pyicebergs_to_read(catalog: Catalog, tmp_path: Path) -> None:
    plain = tmp_path / "plain.parquet"
    pq.write_table(pa.table({"number": [1]}), plain)
    file = DataFile.from_args(file_path=str(plain), file_format=FileFormat.PARQUET)
    assert projected_batches(filled(catalog), file) is None
