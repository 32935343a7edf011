"""The private parts of pyiceberg that Neve uses, all in this module.

pyproject.toml bounds pyiceberg to the versions that have them:

| private part | why the public one is not enough |
| --- | --- |
| `_pyarrow_to_schema_without_ids` | the public conversion needs field ids or a name mapping |
| `_FastAppendFiles`, `_OverwriteFiles`, `_commit` | a transaction commits onto a newer table |
| `Table._do_commit` | same; it sends updates with requirements chosen by the caller |
| `_read_all_delete_files`, `_record_batches_from_scan_tasks_and_deletes` | the public scan holds \
all batches of a file in memory |

`neve.lake.sql.iceberg.nulls` also replaces the class `ArrowProjectionVisitor`, which is public.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    ArrowScan,
    _pyarrow_to_schema_without_ids,
    _read_all_delete_files,
)
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.table.update.snapshot import _FastAppendFiles, _OverwriteFiles

AppendFiles = _FastAppendFiles
OverwriteFiles = _OverwriteFiles
Updates = tuple[TableUpdate, ...]
Requirements = tuple[TableRequirement, ...]


def schema_without_ids(columns: pa.Schema) -> Schema:
    """Convert Arrow columns to an Iceberg schema without assigned field ids."""
    return _pyarrow_to_schema_without_ids(columns)


def snapshot_updates(producer: _FastAppendFiles | _OverwriteFiles) -> tuple[Updates, Requirements]:
    """Write the manifests of a new snapshot. Returns the updates that would commit it."""
    return producer._commit()


def send_commit(table: Table, updates: Updates, requirements: Requirements) -> None:
    """Send updates to the catalog. Afterwards `table` has the metadata that it returned.

    Raises CommitFailedException if a requirement is not met.
    """
    table._do_commit(updates, requirements)


def scan_batches(
    scan: ArrowScan, io: FileIO, tasks: Sequence[FileScanTask]
) -> Iterator[pa.RecordBatch]:
    """Read planned files, one batch in memory at a time."""
    deletes = _read_all_delete_files(io, tasks)
    yield from scan._record_batches_from_scan_tasks_and_deletes(tasks, deletes)
