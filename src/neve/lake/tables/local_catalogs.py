"""A SQLite catalog stores where it was created and where its tables are.

Iceberg's metadata has absolute paths of all files. A moved catalog refers to missing files; a
copied one refers to files of the original, and would write among them. So a catalog is opened only
where it was created; `relocation` gives it another place.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from neve.errors import InvalidError, UnavailableError

# Two pipelines share one SQLite file; a commit locks it for milliseconds.
SQLITE_TIMEOUT_SECONDS = 60
_SCHEMES = ("file://", "file:")
_CREATE = (
    "CREATE TABLE IF NOT EXISTS neve_home "
    "(id INTEGER PRIMARY KEY CHECK (id = 1), folder TEXT NOT NULL, warehouse TEXT NOT NULL)"
)
_TABLES = (
    "SELECT catalog_name, table_namespace, table_name, metadata_location FROM iceberg_tables "
    "WHERE metadata_location IS NOT NULL ORDER BY 1, 2, 3"
)


@dataclass(frozen=True)
class SqliteCatalog:
    """A SQLite file and the place of its tables, by their current paths."""

    file: Path
    warehouse: str

    @property
    def is_local(self) -> bool:
        """Whether the tables are in a folder, not in a bucket."""
        return local_path(self.warehouse) is not None


@dataclass(frozen=True)
class Home:
    """Where a catalog was created: its own folder, and that of its tables."""

    folder: str
    warehouse: str

    def is_of(self, catalog: SqliteCatalog) -> bool:
        """Return True if the catalog's file is still in this folder, by any path or link."""
        return same_folder(self.folder, str(catalog.file.parent))


def local_path(location: str) -> Path | None:
    """Return a location as a local path; None if it is not local."""
    for scheme in _SCHEMES:
        if location.startswith(scheme):
            return Path(location.removeprefix(scheme))
    return None if "://" in location else Path(location)


def same_folder(first: str, second: str) -> bool:
    """Return True if two locations are the same folder, by any path or link."""
    one, other = local_path(first), local_path(second)
    if one is None or other is None:
        return first == second
    try:
        return one == other or one.samefile(other)
    except OSError:
        return False  # one of them does not exist


def check_home(catalog: SqliteCatalog) -> None:
    """Raise InvalidError for a catalog created elsewhere. Stores the place of a new one."""
    home = _home_of(catalog)
    if home.is_of(catalog):
        return
    raise InvalidError(
        f"the catalog {catalog.file} was made in {home.folder}, and its tables refer to files "
        f"under {home.warehouse}: used from here, it would read and change those. Use it where it "
        "was made; or, if the tables were moved or copied together with it, run neve lake relocate "
        "once (with --store FOLDER, or -f PIPELINE) to rewrite the paths"
    )


def check_warehouse(catalog: SqliteCatalog) -> None:
    """Raise InvalidError for a catalog of other tables. Stores the place of a new one."""
    home = _home_of(catalog)
    if not same_folder(home.warehouse.rstrip("/"), catalog.warehouse.rstrip("/")):
        raise InvalidError(
            f"the catalog {catalog.file} is for tables under {home.warehouse}, not "
            f"{catalog.warehouse}: name another folder for the catalog of this store, or the uri "
            "of a database that both are to share"
        )


def _home_of(catalog: SqliteCatalog) -> Home:
    with connected(catalog) as database:
        return read_home(database) or _adopted(database, catalog)


def _adopted(database: sqlite3.Connection, catalog: SqliteCatalog) -> Home:
    """Store the place of a catalog that is new or from an earlier Neve."""
    below = catalog.warehouse.rstrip("/") + "/"
    rows = table_rows(database)
    if rows and not any(row.metadata_location.startswith(below) for row in rows):
        raise InvalidError(
            f"the catalog {catalog.file} has tables elsewhere ({rows[0].metadata_location}), and "
            "does not record where it was created: open it once in that place"
        )
    database.execute(_CREATE)
    found = (str(catalog.file.parent), catalog.warehouse)
    database.execute("INSERT OR IGNORE INTO neve_home VALUES (1, ?, ?)", found)
    return read_home(database) or Home(*found)


@contextlib.contextmanager
def connected(catalog: SqliteCatalog) -> Iterator[sqlite3.Connection]:
    """Open the catalog's database in one transaction, committed at the end."""
    try:
        with (
            contextlib.closing(
                sqlite3.connect(catalog.file, timeout=SQLITE_TIMEOUT_SECONDS)
            ) as database,
            database,
        ):
            yield database
    except sqlite3.Error as error:
        raise UnavailableError(
            "sql catalog", f"{catalog.file} cannot be opened ({error}); check the path"
        ) from error


def read_home(database: sqlite3.Connection) -> Home | None:
    if not _has_table(database, "neve_home"):
        return None
    row = database.execute("SELECT folder, warehouse FROM neve_home").fetchone()
    return None if row is None else Home(*row)


def move_home(database: sqlite3.Connection, catalog: SqliteCatalog) -> None:
    """Store the current place of the catalog."""
    database.execute(
        "UPDATE neve_home SET folder = ?, warehouse = ?",
        (str(catalog.file.parent), catalog.warehouse),
    )


@dataclass(frozen=True)
class TableRow:
    """A row of pyiceberg's SQL catalog."""

    catalog_name: str
    namespace: str
    name: str
    metadata_location: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"


def table_rows(database: sqlite3.Connection) -> list[TableRow]:
    if not _has_table(database, "iceberg_tables"):
        return []
    return [TableRow(*row) for row in database.execute(_TABLES)]


def _has_table(database: sqlite3.Connection, name: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return database.execute(query, (name,)).fetchone() is not None
