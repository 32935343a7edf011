"""Plans the data files that a query reads of a table, with their delete files.

pyiceberg plans data files and position deletes, and rejects tables with equality deletes. So the
equality deletes are hidden from it. They are assigned here to every older data file: of the same
partition, or of all partitions if the delete file has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neve.lake.sql.iceberg.read import FileTask, TableRead

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.manifest import DataFile, ManifestEntry
    from pyiceberg.table import FileScanTask, Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

TASK_BYTES = 128 * 1024 * 1024
"""The size of one task: large, because starting a Python task costs about 150 ms."""
FILE_BYTES_MIN = 4 * 1024 * 1024
"""A smaller file counts as this size, for the cost of opening it."""


@dataclass(frozen=True)
class TablePlan:
    """What is read of a table; each group is one Spark task."""

    read: TableRead
    groups: tuple[tuple[FileTask, ...], ...] = ()
    files_pruned: int = 0
    bytes_pruned: int = 0
    snapshot_id: int | None = None

    @property
    def files_planned(self) -> int:
        return sum(len(group) for group in self.groups)

    @property
    def bytes_planned(self) -> int:
        return sum(task.data_bytes for group in self.groups for task in group)

    @property
    def delete_files(self) -> int:
        found = {
            file.file_path
            for group in self.groups
            for task in group
            for file in (*task.scan.delete_files, *task.equality_deletes)
        }
        return len(found)


@dataclass
class _Seen:
    """Collects the sequence numbers of files while pyiceberg plans."""

    sequence_numbers: dict[str, int] = field(default_factory=dict)

    def note(self, entry: ManifestEntry) -> bool:
        """Store an entry's sequence number. Returns False for equality deletes, to hide them."""
        from pyiceberg.manifest import DataFileContent

        self.sequence_numbers[entry.data_file.file_path] = entry.sequence_number or 0
        return entry.data_file.content != DataFileContent.EQUALITY_DELETES


def plan_table(
    table: Table, columns: Sequence[str], row_filter: BooleanExpression | None
) -> TablePlan:
    """Plan the current snapshot of a table."""
    from pyiceberg.expressions import AlwaysTrue

    condition = row_filter if row_filter is not None else AlwaysTrue()
    read = TableRead(_without_history(table.metadata), table.io, tuple(columns), condition)
    snapshot = table.current_snapshot()
    if snapshot is None:
        return TablePlan(read)
    seen = _Seen()
    scans = _planned(table, condition, seen.note)
    deletes = _EqualityDeletes(table, snapshot)
    tasks = [FileTask(scan, deletes.of(scan.file, seen.sequence_numbers)) for scan in scans]
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    bytes_planned = sum(task.data_bytes for task in tasks)
    return TablePlan(
        read,
        _grouped(tasks),
        max(0, int(summary.get("total-data-files", 0)) - len(tasks)),
        max(0, int(summary.get("total-files-size", 0)) - bytes_planned),
        snapshot.snapshot_id,
    )


def _planned(
    table: Table, condition: BooleanExpression, wanted: Callable[[ManifestEntry], bool]
) -> list[FileScanTask]:
    from pyiceberg.table import ManifestGroupPlanner

    snapshot = table.current_snapshot()
    assert snapshot is not None
    planner = ManifestGroupPlanner(
        table_metadata=table.metadata, io=table.io, row_filter=condition, case_sensitive=True
    )
    return list(planner.plan_files(snapshot.manifests(table.io), wanted))


class _EqualityDeletes:
    """All equality deletes of a snapshot. They are not pruned by their bounds, which may be those
    of columns that do not decide which rows are deleted.
    """

    def __init__(self, table: Table, snapshot: Snapshot) -> None:
        from pyiceberg.manifest import DataFileContent, ManifestContent

        self._global_specs = {n for n, spec in table.specs().items() if not spec.fields}
        self._found = [
            (entry.sequence_number or 0, entry.data_file)
            for manifest in snapshot.manifests(table.io)
            if manifest.content == ManifestContent.DELETES
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            if entry.data_file.content == DataFileContent.EQUALITY_DELETES
        ]

    def of(self, file: DataFile, sequence_numbers: dict[str, int]) -> tuple[DataFile, ...]:
        """Return the deletes for a data file: newer ones, for its partition or for all."""
        age = sequence_numbers[file.file_path]
        return tuple(
            deletes
            for number, deletes in self._found
            if number > age and (deletes.spec_id in self._global_specs or _beside(deletes, file))
        )


def _beside(deletes: DataFile, file: DataFile) -> bool:
    return bool(deletes.spec_id == file.spec_id and deletes.partition == file.partition)


def _grouped(tasks: Sequence[FileTask]) -> tuple[tuple[FileTask, ...], ...]:
    groups: list[tuple[FileTask, ...]] = []
    group: list[FileTask] = []
    size = 0
    for task in tasks:
        cost = max(task.data_bytes, FILE_BYTES_MIN)
        if group and size + cost > TASK_BYTES:
            groups.append(tuple(group))
            group, size = [], 0
        group.append(task)
        size += cost
    return tuple([*groups, tuple(group)] if group else groups)


def _without_history(metadata: TableMetadata) -> TableMetadata:
    """Return the metadata that a worker needs: schemas and partition specs, no old snapshots."""
    return metadata.model_copy(
        update={"snapshots": [], "snapshot_log": [], "metadata_log": [], "refs": {}}
    )
