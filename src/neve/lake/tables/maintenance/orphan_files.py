"""Removes files that belong to no snapshot and are too old to be waiting for one.

The listing comes first and the table is read after it, so whatever was committed by then is known;
what is committed later is younger than `outcomes.FILE_AGE_MAX_MS`, and an orphan is at least twice
as old.

Only files below the table's own location are looked at, and of those only its own: another catalog
may have made a table in the same place, whose files no snapshot of this one names either. Data
files and manifests carry the table's mark in their names, a version of the metadata says whose it
is. What other programs left behind is theirs to remove.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow.fs as pafs
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table

from neve import runtime
from neve.lake.tables.commit_attempt import refreshed
from neve.lake.tables.file_names import mark_of
from neve.lake.tables.maintenance.policy import MaintenancePolicy, MaintenanceReport
from neve.lake.tables.maintenance.reachable_files import ReachableFiles

FOLDERS = ("data", "metadata")
METADATA_SUFFIX = ".metadata.json"
SUFFIXES = (".parquet", ".avro", METADATA_SUFFIX)


def remove_orphans(table: Table, policy: MaintenancePolicy, report: MaintenanceReport) -> None:
    """Delete old files under the table's folders that nothing in it refers to."""
    if not isinstance(table.io, PyArrowFileIO):
        return  # another way to the files offers no listing
    place = _Place(table.io, refreshed(table))
    oldest_ms = runtime.now_ms() - policy.orphan_age_ms
    old = [each for each in place.files() if _written_ms(each) < oldest_ms]
    if not old:
        return
    needed = {place.plain(path) for path in _needed(refreshed(table))}
    for file in sorted(old, key=lambda each: each.path):
        if file.path not in needed and place.is_own(file):
            place.system.delete_file(file.path)
            report.orphans_deleted += 1
            report.bytes_deleted += file.size or 0


def _needed(table: Table) -> set[str]:
    metadata = table.metadata
    paths = ReachableFiles(table.io).of(metadata.snapshots)
    paths.add(table.metadata_location)
    paths.update(each.metadata_file for each in metadata.metadata_log)
    paths.update(each.statistics_path for each in metadata.statistics)
    paths.update(each.statistics_path for each in metadata.partition_statistics)
    return paths


def _written_ms(file: Any) -> int:
    return int(file.mtime_ns or 0) // 1_000_000 if file.mtime_ns else runtime.now_ms()


class _Place:
    """The folders of a table, as pyarrow's file systems name them."""

    def __init__(self, io: PyArrowFileIO, table: Table) -> None:
        self._io = io
        self._uuid = str(table.metadata.table_uuid)
        location = table.location().rstrip("/")
        scheme, bucket, self._root = io.parse_location(location, io.properties)
        self.system = io.fs_by_scheme(scheme, bucket)

    def plain(self, path: str) -> str:
        return str(self._io.parse_location(path, self._io.properties)[2])

    def files(self) -> Iterator[Any]:
        for folder in FOLDERS:
            wanted = pafs.FileSelector(
                f"{self._root}/{folder}", allow_not_found=True, recursive=True
            )
            for found in self.system.get_file_info(wanted):
                if found.type == pafs.FileType.File and found.path.endswith(SUFFIXES):
                    yield found

    def is_own(self, file: Any) -> bool:
        """Whether a writer of this very table made the file."""
        if file.path.endswith(METADATA_SUFFIX):
            return self._table_of(file.path) == self._uuid
        return mark_of(self._uuid) in file.base_name

    def _table_of(self, path: str) -> str | None:
        """Whose metadata it is; None where it does not say so."""
        try:
            with self.system.open_input_stream(path) as file:
                return str(json.loads(file.read())["table-uuid"])
        except (FileNotFoundError, KeyError, TypeError, ValueError):
            return None
