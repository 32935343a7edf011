"""The catalog that a pipeline's tables are in: SQL (SQLite by default), REST or Glue.

Neve interprets `type`, `uri` and `warehouse`; all other settings go to pyiceberg unchanged. Files
are always read and written with pyarrow.

Without a specification the tables are under `lake/` in the store. The SQLite file is in the same
place if the store is a folder. A bucket cannot hold a SQLite file, so there it is in the user's
data folder, or in `folder`. Such a file belongs to one store: it is refused for tables elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog, load_catalog
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from neve.errors import InvalidError, UnavailableError
from neve.lake.tables.local_catalogs import (
    SQLITE_TIMEOUT_SECONDS,
    SqliteCatalog,
    check_home,
    check_warehouse,
    local_path,
)
from neve.settings import StoreSettings
from neve.store.cloud import s3_endpoint, s3_region
from neve.store.durable import make_private
from neve.store.url import Location, parse

CATALOG_NAME = "neve"
LAKE_PREFIX = "lake"
TYPES = ("sql", "rest", "glue")
_CATALOG_FILE = "catalog.db"
_NAME_CHARACTERS_MAX = 100
_HASH_DIGITS = 16
PYARROW_IO = "pyiceberg.io.pyarrow.PyArrowFileIO"


def catalog_of(
    spec: Mapping[str, Any], store_url: str, *, store: StoreSettings | None = None
) -> Catalog:
    """Open the catalog of a specification, or the default one of the store.

    Raises InvalidError and UnavailableError.
    """
    kind, properties = _properties(spec, store_url, store or StoreSettings())
    file = _sqlite(kind, properties)
    if file is not None and file.is_local:
        check_home(file)
    if file is not None and "uri" not in spec:
        check_warehouse(file)
    return _opened(kind, properties)


def local_catalog(spec: Mapping[str, Any], store_url: str) -> SqliteCatalog | None:
    """Return the SQLite file and folder of a specification; None for any other catalog."""
    found = _sqlite(*_properties(spec, store_url, StoreSettings()))
    return found if found is not None and found.is_local else None


def _properties(
    spec: Mapping[str, Any], store_url: str, store: StoreSettings
) -> tuple[str, dict[str, str]]:
    """Return the catalog's type, and the properties for pyiceberg."""
    given = {name: _text(name, value) for name, value in spec.items()}
    kind = given.pop("type", "sql")
    if kind not in TYPES:
        raise InvalidError(f"unknown catalog type {kind!r}: use one of {', '.join(TYPES)}")
    where = parse(store_url)
    properties = _access(store)
    folder = given.pop("folder", "")
    if kind == "sql":
        properties |= _beside(where, store_url, folder, given, store)
    elif "warehouse" not in given and kind == "glue":
        properties["warehouse"] = _warehouse(where, store_url)
    properties |= given
    if "warehouse" in properties and kind == "sql":
        properties["warehouse"] = _absolute(properties["warehouse"])
    return kind, properties


def _sqlite(kind: str, properties: Mapping[str, str]) -> SqliteCatalog | None:
    if kind != "sql":
        return None
    try:
        url = make_url(properties["uri"])
    except ArgumentError as error:
        raise InvalidError(f"catalog uri {properties['uri']!r} is not a URL: {error}") from error
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return SqliteCatalog(Path(str(url.database)).absolute(), properties["warehouse"])


def _opened(kind: str, properties: dict[str, str]) -> Catalog:
    properties.setdefault("py-io-impl", PYARROW_IO)
    failure: Exception | None = None
    # If two processes create the tables of a SQL catalog at once, the second fails once.
    for _ in range(2):
        try:
            return load_catalog(CATALOG_NAME, type=kind, **properties)
        except Exception as error:
            failure = error
    raise UnavailableError(
        f"{kind} catalog", f"it cannot be opened ({failure}); check the catalog's settings"
    ) from failure


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise InvalidError(f"catalog setting {name} must be a string or a number, not {value!r}")
    return str(value)


# --- the default catalog of a store


def _beside(
    where: Location, url: str, folder: str, given: Mapping[str, str], store: StoreSettings
) -> dict[str, str]:
    found: dict[str, str] = {}
    if "uri" not in given:
        file = catalog_file(url, store, folder)
        make_private(file.parent)
        found["uri"] = f"sqlite:///{file}?timeout={SQLITE_TIMEOUT_SECONDS}"
    if "warehouse" not in given:
        found["warehouse"] = _warehouse(where, url)
    return found


def _absolute(warehouse: str) -> str:
    """Resolve a relative folder: tables store absolute paths."""
    path = local_path(warehouse)
    return warehouse if path is None or path.is_absolute() else str(path.absolute())


def catalog_file(store_url: str, store: StoreSettings, folder: str = "") -> Path:
    """Return the path of the default catalog of a store, which may not exist."""
    where = parse(store_url)
    if folder:
        return Path(folder).absolute() / _CATALOG_FILE
    if where.scheme == "file":
        return where.folder.absolute() / LAKE_PREFIX / _CATALOG_FILE
    _refuse_memory(where, store_url)
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "neve" / LAKE_PREFIX / _folder_name(where, store) / _CATALOG_FILE


def _folder_name(where: Location, store: StoreSettings) -> str:
    """Return a name that no other bucket, prefix or endpoint has: readable text and a hash."""
    place = _place(where)
    endpoint = s3_endpoint(store, os.environ) if where.scheme == "s3" else store.endpoint
    server = urlsplit(endpoint).netloc.rpartition("@")[2].lower()
    digest = hashlib.sha256(f"{place}\n{server}".encode()).hexdigest()
    text = re.sub(r"[^A-Za-z0-9.-]+", "_", place)
    return f"{text[:_NAME_CHARACTERS_MAX]}-{digest[:_HASH_DIGITS]}"


def _warehouse(where: Location, url: str) -> str:
    if where.scheme == "file":
        return str(where.folder.absolute() / LAKE_PREFIX)
    _refuse_memory(where, url)
    if where.scheme == "az":
        raise InvalidError(
            f"{url}: name the catalog's warehouse, such as abfss://container@account/"
        )
    return f"{_place(where)}/{LAKE_PREFIX}"


def _place(where: Location) -> str:
    """Return the URL of a bucket and prefix in one form."""
    return "/".join(part for part in (f"{where.scheme}:/", where.name, where.prefix) if part)


def _refuse_memory(where: Location, url: str) -> None:
    if where.scheme == "memory":
        raise InvalidError(
            f"{url}: a store in memory holds no tables; name the catalog's warehouse"
        )


def _access(store: StoreSettings) -> dict[str, str]:
    """Return pyarrow's properties for the bucket: from settings, then from the environment.

    Credentials always come from the environment. pyiceberg reads neither variable, and asks AWS for
    the region of a bucket if none is given, even for one that does not exist.
    """
    found = {}
    if endpoint := s3_endpoint(store, os.environ):
        found["s3.endpoint"] = endpoint
    if region := s3_region(store, os.environ):
        found["s3.region"] = region
        found["s3.resolve-region"] = "false"
    return found
