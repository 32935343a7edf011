"""Rewrites the paths of a local catalog that was moved or copied.

Iceberg refers to files by absolute paths: table metadata to manifest lists, these to manifests, and
these to data files. A relocation writes all three again beside the old ones, with new names and
paths, and then one transaction points the catalog at them. If it is killed before that, nothing has
changed. The replaced files become orphans. Data files are not changed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fastavro
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.serializers import FromInputFile

from neve.errors import DamagedError, InvalidError, UnsupportedError
from neve.lake.tables.catalogs import local_catalog
from neve.lake.tables.file_names import commit_uuid
from neve.lake.tables.local_catalogs import (
    Home,
    SqliteCatalog,
    TableRow,
    connected,
    local_path,
    move_home,
    read_home,
    same_folder,
    table_rows,
)

POSITION_DELETES = 1
_VERSION = re.compile(r"(\d+)-.*")
_MOVE_TABLE = (
    "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = NULL "
    "WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?"
)


def relocate_tables(spec: Mapping[str, Any], store_url: str) -> list[str]:
    """Relocate the catalog of a specification to its current place. Returns its tables."""
    local = local_catalog(spec, store_url)
    if local is None:
        raise InvalidError(
            "only a SQLite catalog with tables in a folder can be relocated; the paths of this "
            "one's tables are valid everywhere"
        )
    return relocate(local)


def relocate(catalog: SqliteCatalog) -> list[str]:
    """Relocate a catalog to its current place. Returns its tables; none if it is there already.

    Nothing else may use the catalog meanwhile. The original of a copy is not changed.
    """
    with connected(catalog) as database:
        home = read_home(database)
        if home is None or home.is_of(catalog):
            return []
        rows = table_rows(database)
    _check(catalog, home, rows)
    moved = [(row, _Relocation(home, catalog).table(row)) for row in rows]
    with connected(catalog) as database:
        for row, location in moved:
            where = (row.catalog_name, row.namespace, row.name, row.metadata_location)
            if database.execute(_MOVE_TABLE, (location, *where)).rowcount != 1:
                raise InvalidError(
                    f"table {row} was changed meanwhile: stop what uses {catalog.file}, and run "
                    "this again"
                )
        move_home(database, catalog)
    return [str(row) for row in rows]


def _check(catalog: SqliteCatalog, home: Home, rows: list[TableRow]) -> None:
    if rows and same_folder(home.warehouse, catalog.warehouse):
        raise InvalidError(
            f"the tables of {catalog.file} are still to be in {home.warehouse}, which is where "
            "those of the catalog are that this one was copied from: copy the tables too, and name "
            "their place as the catalog's warehouse"
        )
    for row in rows:
        if not row.metadata_location.startswith(home.warehouse.rstrip("/") + "/"):
            raise InvalidError(
                f"table {row} is at {row.metadata_location}, outside of {home.warehouse}, and so "
                "was not moved with its catalog: drop it from the catalog where it was made"
            )


class _Relocation:
    """Rewrites one table for the paths of the new warehouse. Writes each object once."""

    def __init__(self, home: Home, catalog: SqliteCatalog) -> None:
        self._old = home.warehouse.rstrip("/")
        self._new = catalog.warehouse.rstrip("/")
        self._written: dict[str, tuple[str, int]] = {}
        self._commit = ""

    def table(self, row: TableRow) -> str:
        """Write the table's metadata for the new place. Returns its path."""
        source = self._moved(row.metadata_location)
        try:
            metadata = FromInputFile.table_metadata(PyArrowFileIO().new_input(source))
        except OSError as error:
            raise DamagedError(source, f"it cannot be read ({error}): was all of it moved?") from (
                error
            )
        self._commit = str(commit_uuid(metadata.table_uuid))
        found = json.loads(metadata.model_dump_json())
        lists = [self._manifest_list(each["manifest-list"]) for each in found["snapshots"]]
        content = self._with_paths(found)
        for snapshot, path in zip(content["snapshots"], lists, strict=True):
            snapshot["manifest-list"] = path
        version = _VERSION.fullmatch(Path(source).name)
        number = 0 if version is None else int(version[1]) + 1
        name = f"{number:05d}-{self._commit}.metadata.json"
        target = f"{source.rpartition('/')[0]}/{name}"
        _write(target, lambda file: file.write(json.dumps(content).encode()))
        return target

    def _manifest_list(self, path: str) -> str:
        def change(entry: dict[str, Any]) -> dict[str, Any]:
            place, length = self._manifest(entry["manifest_path"])
            return {**entry, "manifest_path": place, "manifest_length": length}

        return self._rewritten(path, change)[0]

    def _manifest(self, path: str) -> tuple[str, int]:
        def change(entry: dict[str, Any]) -> dict[str, Any]:
            file = entry["data_file"]
            if file.get("content", 0) == POSITION_DELETES:
                raise UnsupportedError(
                    f"{path} lists position deletes, which name data files by their paths: rewrite "
                    "the table's data files without deletes where it was made, and copy it again"
                )
            return {**entry, "data_file": {**file, "file_path": self._moved(file["file_path"])}}

        return self._rewritten(path, change)

    def _rewritten(
        self, path: str, change: Callable[[dict[str, Any]], dict[str, Any]]
    ) -> tuple[str, int]:
        """Rewrite an Avro file with changed entries. Returns the new path and its length."""
        if path not in self._written:
            source = self._moved(path)
            with _local(source).open("rb") as file:
                reader: Any = fastavro.reader(file)
                entries = [change(entry) for entry in reader]
            about = {k: v for k, v in reader.metadata.items() if not k.startswith("avro.")}
            schema = json.loads(reader.metadata["avro.schema"])
            target = f"{source.rpartition('/')[0]}/{self._commit}-r{len(self._written)}.avro"
            size = _write(
                target,
                lambda file: fastavro.writer(
                    file, schema, entries, codec=reader.codec, metadata=about
                ),
            )
            self._written[path] = target, size
        return self._written[path]

    def _with_paths(self, content: Any) -> Any:
        if isinstance(content, dict):
            return {name: self._with_paths(each) for name, each in content.items()}
        if isinstance(content, list):
            return [self._with_paths(each) for each in content]
        return self._moved(content) if isinstance(content, str) else content

    def _moved(self, path: str) -> str:
        """Replace the old warehouse in a path; other text is returned unchanged."""
        if path == self._old or path.startswith(self._old + "/"):
            return self._new + path[len(self._old) :]
        return path


def _local(location: str) -> Path:
    path = local_path(location)
    assert path is not None, "a local catalog has local tables"
    return path


def _write(location: str, write: Callable[[Any], object]) -> int:
    """Write and sync a file. Returns its length."""
    with _local(location).open("xb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
        return file.tell()
