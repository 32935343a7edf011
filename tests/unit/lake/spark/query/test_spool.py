"""What a task makes of its rows: few stay in memory, many go to a file, too many are refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from neve.lake.spark.query.spool import MIB, ResultLimits, Spooler, read_messages
from neve.lake.sql.errors import ResultTooLargeError

SCHEMA = pa.schema([("text", pa.string())])


def batches(count: int, size: int) -> list[pa.RecordBatch]:
    return [pa.record_batch([["x" * size]], schema=SCHEMA) for _ in range(count)]


def handed_over(spooler: Spooler, rows: list[pa.RecordBatch]) -> list[dict[str, object]]:
    return [row for batch in spooler(iter(rows)) for row in batch.to_pylist()]


@pytest.mark.parametrize(("count", "in_file"), [(1, False), (3, False), (12, True)])
def test_rows_come_back_as_they_were(tmp_path: Path, count: int, in_file: bool) -> None:
    rows = batches(count, MIB)
    (place,) = Spooler(str(tmp_path), ResultLimits())(iter(rows))
    data, file = (column[0].as_py() for column in place.columns)
    assert (file is not None, data is None) == (in_file, in_file)
    messages = read_messages(data, file)
    assert [pa.ipc.read_record_batch(each, SCHEMA) for each in messages] == rows
    assert list(tmp_path.iterdir()) == []


def test_a_partition_without_rows_hands_nothing_over(tmp_path: Path) -> None:
    assert handed_over(Spooler(str(tmp_path), ResultLimits()), []) == []


def test_rows_of_other_machines_stay_in_memory() -> None:
    (row,) = handed_over(Spooler(None, ResultLimits()), batches(12, MIB))
    assert row["file"] is None


@pytest.mark.parametrize(
    ("limits", "folder", "told"),
    [
        (ResultLimits(row_bytes_max=MIB), True, "--row-bytes-max"),
        (ResultLimits(partition_bytes_max=20 * MIB), True, "--partition-bytes-max"),
        (ResultLimits(collected_bytes_max=10 * MIB), False, "other machines"),
    ],
)
def test_what_is_too_large_is_refused(
    tmp_path: Path, limits: ResultLimits, folder: bool, told: str
) -> None:
    spooler = Spooler(str(tmp_path) if folder else None, limits)
    with pytest.raises(ResultTooLargeError, match=told):
        handed_over(spooler, batches(4, 6 * MIB))
