"""A SQLite catalog with tables in a folder remembers where it was made.

Iceberg's metadata names every file by its absolute path. A catalog that was moved names files that
are gone; one that was copied names those of the original, and would write among them. So it is
opened only where it was made, and `relocating` gives it another place.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from neve.errors import InvalidError, UnavailableError

# Two pipelines take turns on one SQLite file; a commit holds it for milliseconds.
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
class LocalCatalog:
    """A SQLite file, and where its tables are, both as they are named now."""

    file: Path
    warehouse: str


@dataclass(frozen=True)
class Home:
    """Where a catalog was made: its own folder, and that of its tables."""

    folder: str
    warehouse: str

    def is_of(self, catalog: LocalCatalog) -> bool:
        """Whether the catalog is still there, by whatever path it is reached."""
        return same_folder(self.folder, str(catalog.file.parent))


def local_path(location: str) -> Path | None:
    """A location in this machine's file system; None for one that is elsewhere."""
    for scheme in _SCHEMES:
        if location.startswith(scheme):
            return Path(location.removeprefix(scheme))
    return None if "://" in location else Path(location)


def same_folder(first: str, second: str) -> bool:
    """Whether two locations are one folder, by whatever path or link they are reached."""
    one, other = local_path(first), local_path(second)
    if one is None or other is None:
        return first == second
    try:
        return one == other or one.samefile(other)
    except OSError:
        return False  # one of them is not there


def check_home(catalog: LocalCatalog) -> None:
    """Refuse a catalog that was made elsewhere; a new one learns its place."""
    with connected(catalog) as database:
        home = read_home(database)
        if home is None:
            home = _adopted(database, catalog)
    if home.is_of(catalog):
        return
    raise InvalidError(
        f"the catalog {catalog.file} was made in {home.folder}, and its tables name their files "
        f"by paths under {home.warehouse}: used from here, it would read and change those. Use it "
        "where it was made; or, if the tables were moved or copied together with it, run neve lake "
        "relocate once (with --store FOLDER, or -f PIPELINE), which gives this one paths of its own"
    )


def _adopted(database: sqlite3.Connection, catalog: LocalCatalog) -> Home:
    """Write down where a catalog is that does not know it: it is new, or of an earlier Neve."""
    below = catalog.warehouse.rstrip("/") + "/"
    rows = table_rows(database)
    if rows and not any(row.metadata_location.startswith(below) for row in rows):
        raise InvalidError(
            f"the catalog {catalog.file} has tables elsewhere ({rows[0].metadata_location}), and "
            "does not say where it was made: open it once where that was"
        )
    database.execute(_CREATE)
    found = (str(catalog.file.parent), catalog.warehouse)
    database.execute("INSERT OR IGNORE INTO neve_home VALUES (1, ?, ?)", found)
    return read_home(database) or Home(*found)


@contextlib.contextmanager
def connected(catalog: LocalCatalog) -> Iterator[sqlite3.Connection]:
    """The catalog's database; what is done in it takes effect at the end, together."""
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


def move_home(database: sqlite3.Connection, catalog: LocalCatalog) -> None:
    """From now on the catalog belongs where it is."""
    database.execute(
        "UPDATE neve_home SET folder = ?, warehouse = ?",
        (str(catalog.file.parent), catalog.warehouse),
    )


@dataclass(frozen=True)
class TableRow:
    """A table as pyiceberg's SQL catalog lists it."""

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
