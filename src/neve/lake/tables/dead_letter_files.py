"""Reads the table of dead letters, and removes some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from neve.errors import InvalidError
from neve.lake.tables.columns import DEAD_LETTER_SCHEMA
from neve.lake.tables.commit_attempt import Attempt, attempt, propose
from neve.lake.tables.commit_outcome import stale_reason
from neve.lake.tables.data_files import write_files
from neve.lake.tables.live_files import LiveFile, live_entries
from neve.lake.tables.table_ref import WrittenFile, table_ref

RECORD_ID = ["topic_id", "partition", "offset"]
"""The columns that identify the record of a letter."""
BATCH_ROWS = 8192

Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
RecordId: TypeAlias = tuple[str, int, int]
"""Topic id, partition, offset."""


def rewrite(
    letters: Table,
    files: Sequence[WrittenFile],
    *,
    stays: Callable[[pa.RecordBatch], Mask],
    stays_whole: Callable[[DataFile], bool],
) -> Attempt:
    """Add the files, and remove the letters from all other files for which `stays` is false.

    `stays` gets batches with the columns of RECORD_ID, or with all columns. `stays_whole` may
    decide from a file's bounds that all of its letters stay, which saves reading it. `files` that
    an earlier attempt added are not added again. Nothing is proposed if a file has become so old
    that it may have been removed as an orphan.
    """
    ours = {file.path for file in files}
    live = list(live_entries(letters))
    touched = [
        entry
        for entry in live
        if entry.data_file.file_path not in ours
        and not stays_whole(entry.data_file)
        and any(not stays(ids).all() for ids in _batches(letters, entry.data_file, RECORD_ID))
    ]
    _refuse_deletes(letters, touched)
    removed = [entry.data_file for entry in touched]
    rest = (
        batch.filter(pa.array(stays(batch)))
        for file in removed
        for batch in _batches(letters, file, None)
    )
    there = {entry.data_file.file_path for entry in live}
    new = [file for file in files if file.path not in there]
    new += write_files(table_ref(letters), rest)
    if stale_reason(letters, new):
        return Attempt.REFUSED
    added = [file.entry() for file in new]
    return attempt(letters, propose(letters, None, add=added, remove=removed))


def letter_batches(letters: Table) -> Iterator[pa.RecordBatch]:
    """Yield all letters of the table as this object has it, file by file."""
    live = list(live_entries(letters))
    _refuse_deletes(letters, live)
    for entry in live:
        for batch in _batches(letters, entry.data_file, None):
            yield _as_neve_writes(batch)


def record_ids(batch: pa.RecordBatch) -> Iterator[RecordId]:
    """Return the ids of the records of these letters."""
    return zip(*(batch.column(name).to_pylist() for name in RECORD_ID), strict=True)


def _as_neve_writes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert letters that other programs wrote, with large types or columns in another order."""
    columns = [
        _of_type(batch.column(field.name), field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in DEAD_LETTER_SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=DEAD_LETTER_SCHEMA)


def _of_type(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    return column if column.type == wanted else column.cast(wanted)


def _refuse_deletes(letters: Table, entries: Sequence[LiveFile]) -> None:
    if any(entry.has_deletes for entry in entries):
        raise InvalidError(
            f"table {'.'.join(letters.name())} has delete files that Neve did not write; rewrite "
            "its data files with the engine that wrote them"
        )


def _batches(letters: Table, file: DataFile, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
    with letters.io.new_input(file.file_path).open() as stream:
        yield from pq.ParquetFile(stream).iter_batches(BATCH_ROWS, columns=columns)
