"""The catalog that a pipeline's tables are in: SQL (SQLite by default), REST or Glue.

`type`, `uri` and `warehouse` are Neve's words; whatever else a specification holds goes to
pyiceberg as it is. Files are read and written with pyarrow in every case.

Without a specification the catalog stands beside the bucket: tables under `lake/` in the store
itself, and the SQLite file in the same place if the store is a folder. A bucket cannot hold a
SQLite file, so there it stands in this user's data folder, or where `folder` says.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog

from neve.errors import InvalidError, UnavailableError
from neve.settings import StoreSettings
from neve.store.url import Location, parse

CATALOG_NAME = "neve"
LAKE_PREFIX = "lake"
TYPES = ("sql", "rest", "glue")
# Two pipelines take turns on one SQLite file; a commit holds it for milliseconds.
SQLITE_TIMEOUT_SECONDS = 60
PYARROW_IO = "pyiceberg.io.pyarrow.PyArrowFileIO"


def catalog_of(
    spec: Mapping[str, Any], store_url: str, *, store: StoreSettings | None = None
) -> Catalog:
    """The catalog that a specification names, or the default one beside the store."""
    given = {name: _text(name, value) for name, value in spec.items()}
    kind = given.pop("type", "sql")
    if kind not in TYPES:
        raise InvalidError(f"catalog type {kind!r} is not known: use one of {', '.join(TYPES)}")
    where = parse(store_url)
    properties = _access(store or StoreSettings())
    folder = given.pop("folder", "")
    if kind == "sql":
        properties |= _beside(where, store_url, folder, given)
    elif "warehouse" not in given and kind == "glue":
        properties["warehouse"] = _warehouse(where, store_url)
    return _opened(kind, {**properties, **given})


def _opened(kind: str, properties: dict[str, str]) -> Catalog:
    properties.setdefault("py-io-impl", PYARROW_IO)
    failure: Exception | None = None
    # Two who make the tables of a SQL catalog at once: the second fails, and then finds them made.
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
        raise InvalidError(f"catalog setting {name} must be a text or a number, not {value!r}")
    return str(value)


# --- beside the bucket


def _beside(where: Location, url: str, folder: str, given: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    if "uri" not in given:
        file = catalog_file(url, folder)
        file.parent.mkdir(parents=True, exist_ok=True)
        found["uri"] = f"sqlite:///{file}?timeout={SQLITE_TIMEOUT_SECONDS}"
    if "warehouse" not in given:
        found["warehouse"] = _warehouse(where, url)
    return found


def catalog_file(store_url: str, folder: str = "") -> Path:
    """Where the default catalog of a store is, or would be."""
    return _catalog_folder(parse(store_url), store_url, folder) / "catalog.db"


def _catalog_folder(where: Location, url: str, folder: str) -> Path:
    if folder:
        return Path(folder).absolute()
    if where.scheme == "file":
        return where.folder.absolute() / LAKE_PREFIX
    _refuse_memory(where, url)
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "neve" / LAKE_PREFIX / re.sub(r"[^A-Za-z0-9.-]+", "_", url)


def _warehouse(where: Location, url: str) -> str:
    if where.scheme == "file":
        return str(where.folder.absolute() / LAKE_PREFIX)
    _refuse_memory(where, url)
    if where.scheme == "az":
        raise InvalidError(
            f"{url}: name the catalog's warehouse, such as abfss://container@account/"
        )
    return "/".join(
        part for part in (f"{where.scheme}:/", where.name, where.prefix, "lake") if part
    )


def _refuse_memory(where: Location, url: str) -> None:
    if where.scheme == "memory":
        raise InvalidError(
            f"{url}: a store in memory holds no tables; name the catalog's warehouse"
        )


def _access(store: StoreSettings) -> dict[str, str]:
    """How pyarrow reaches the bucket. Credentials come from the environment on both ways."""
    found = {}
    if store.endpoint:
        found["s3.endpoint"] = store.endpoint
    if store.region:
        found["s3.region"] = store.region
    return found
