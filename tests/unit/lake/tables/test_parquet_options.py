"""Dictionaries go to the columns whose values repeat, wherever they lie."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from neve.lake.tables.parquet_options import SLICE_ROWS, SLICES, dictionary_columns
from neve.lake.values.types import list_of, map_of


def table_of(count: int) -> pa.Table:
    """Each kind of column twice: with values that repeat, and with values that do not."""
    inner = pa.struct([("few", pa.string()), ("many", pa.int64())])
    return pa.table(
        {
            "few": pa.array([f"color {row % 3}" for row in range(count)]),
            "many": pa.array([f"order {row}" for row in range(count)]),
            "nothing": pa.nulls(count, pa.int64()),
            "struct": pa.array(
                [{"few": "x", "many": row} if row % 2 else None for row in range(count)], inner
            ),
            "list": pa.array(
                [[{"few": "y", "many": row}] * (row % 3 > 0) for row in range(count)],
                list_of(inner),
            ),
            "map": pa.array(
                [[("key", row)] if row % 2 else None for row in range(count)], map_of(pa.int64())
            ),
        }
    )


EXPECTED = {
    "few",
    "nothing",
    "struct.few",
    "list.list.element.few",
    "map.key_value.key",
}


@pytest.mark.parametrize("count", [100, SLICES * SLICE_ROWS + 1, 50_000])
def test_columns_whose_values_repeat_are_chosen(count: int) -> None:
    assert set(dictionary_columns(table_of(count))) == EXPECTED


def test_the_paths_are_those_of_the_file(tmp_path: Path) -> None:
    rows = table_of(10_000)
    path = tmp_path / "file.parquet"
    pq.write_table(rows, path, use_dictionary=dictionary_columns(rows))
    columns = pq.ParquetFile(path).metadata.row_group(0)
    with_dictionary = {
        column.path_in_schema
        for column in map(columns.column, range(columns.num_columns))
        if column.has_dictionary_page
    }
    assert with_dictionary == EXPECTED


def test_values_that_are_alike_only_beside_each_other_do_not_mislead() -> None:
    rows = pa.table({"run": pa.array([row // 400 for row in range(40_000)], pa.int64())})
    assert dictionary_columns(rows) == ["run"]
    mixed = pa.table({"run": pa.array([*([0] * 600), *range(39_400)], pa.int64())})
    assert dictionary_columns(mixed) == []
