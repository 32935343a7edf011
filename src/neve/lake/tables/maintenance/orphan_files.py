"""Removes files that no snapshot refers to and that are too old to be committed.

It lists the files before it reads the table, so it knows everything that was committed by then.
Files committed later are younger than `commit_outcome.FILE_AGE_MAX_MS`, and an orphan is at least
twice as old.

Only the table's own files below its location are removed: another catalog may have a table in the
same place, whose files no snapshot of this one refers to. Data files and manifests have the table's
mark in their names, metadata files contain its UUID. Files of other programs are left alone.
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
    """Delete old, unreferenced files in the table's folders."""
    if not isinstance(table.io, PyArrowFileIO):
        return  # other implementations cannot list files
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
    """The folders of a table in pyarrow's file system."""

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
        """Return True if the file belongs to this table."""
        if file.path.endswith(METADATA_SUFFIX):
            return self._table_of(file.path) == self._uuid
        return mark_of(self._uuid) in file.base_name

    def _table_of(self, path: str) -> str | None:
        """Return the table UUID in a metadata file; None if it has none."""
        try:
            with self.system.open_input_stream(path) as file:
                return str(json.loads(file.read())["table-uuid"])
        except (FileNotFoundError, KeyError, TypeError, ValueError):
            return None
