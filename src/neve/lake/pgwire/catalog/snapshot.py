"""A snapshot of the catalogue: an in-memory SQLite database that is copied for each query.

Because each query has its own copy, it can be cancelled alone and cannot affect others. SQLite may
only read the copy: it rejects other files and other statements, and has limits on lengths.
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from neve.lake.pgwire.catalog.declared import TABLES
from neve.lake.pgwire.catalog.functions import register
from neve.lake.pgwire.catalog.rows import (
    SCHEMA_OIDS,
    Oids,
    ShownRelation,
    all_rows,
    system_relations,
)
from neve.lake.pgwire.dialect import DEFAULT_SCHEMA
from neve.lake.pgwire.types import PgType

_READS = (
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
)
_LENGTH_MAX = 16 * 1024 * 1024
_STEPS_BETWEEN_CANCEL_CHECKS = 10_000
_VISIBLE = (DEFAULT_SCHEMA, "pg_catalog")
_NUMBERS = ("bool", "int2", "int4", "int8", "oid", "xid", "regclass", "regtype")


def _affinity(shown: PgType) -> str:
    if shown.name in _NUMBERS:
        return "INTEGER"
    return "REAL" if shown.name.startswith("float") else "TEXT"


class Snapshot:
    """Built once from the engine's relations, then only copied."""

    def __init__(
        self, relations: Sequence[ShownRelation], database: str, users: Sequence[str], oids: Oids
    ) -> None:
        self._source = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._source.close)  # a query may still be copying it
        self._names: dict[int, str] = {}
        self._oids: dict[str, int] = {}
        self._visible: set[int] = set()
        self._create()
        self._fill(relations, database, users, oids)
        for relation in [*system_relations(), *relations]:
            self._remember(relation)
        self._schemas = dict(SCHEMA_OIDS)
        self._schemas |= {r.schema: oids.of(f"schema {r.schema}") for r in relations} | SCHEMA_OIDS

    def _create(self) -> None:
        for table in TABLES.values():
            columns = ", ".join(
                f'"{name}" {_affinity(kind)}' for name, kind in table.columns.items()
            )
            self._source.execute(f'CREATE TABLE "{table.key}" ({columns})')

    def _fill(
        self, relations: Sequence[ShownRelation], database: str, users: Sequence[str], oids: Oids
    ) -> None:
        for key, row in all_rows(relations, database, users, oids):
            names = ", ".join(f'"{name}"' for name in row)
            marks = ", ".join("?" * len(row))
            insert = f'INSERT INTO "{key}" ({names}) VALUES ({marks})'  # noqa: S608 (our names)
            self._source.execute(insert, tuple(row.values()))
        for column in ("attrelid",):
            self._source.execute(
                f'CREATE INDEX "by_{column}" ON "pg_catalog.pg_attribute" ({column})'
            )
        self._source.commit()

    def _remember(self, relation: ShownRelation) -> None:
        qualified = f"{relation.schema}.{relation.name}"
        self._oids[qualified] = relation.oid
        is_visible = relation.schema in _VISIBLE
        if is_visible:
            self._oids.setdefault(relation.name, relation.oid)
            self._visible.add(relation.oid)
        self._names[relation.oid] = relation.name if is_visible else qualified

    def copy(
        self, is_cancelled: Callable[[], bool], of_session: dict[str, Callable[..., Any]]
    ) -> sqlite3.Connection:
        """Create a connection for one query, with the functions `of_session`.

        Its query fails soon after `is_cancelled` returns True. The caller closes the connection.
        """
        copied = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._source.backup(copied)
        copied.execute("PRAGMA case_sensitive_like = ON")
        # The first use creates a virtual table, which the authorizer below would reject.
        copied.execute("SELECT 1 FROM json_each('[]')")
        register(copied, self._functions(), of_session)
        copied.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LENGTH_MAX)
        copied.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        copied.set_progress_handler(lambda: int(is_cancelled()), _STEPS_BETWEEN_CANCEL_CHECKS)
        copied.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY
        )
        return copied

    def _functions(self) -> dict[str, Callable[[Any], Any]]:
        return {
            "neve_class": self.relation_oid,
            "to_regclass": self.relation_oid,
            "neve_class_name": lambda oid: self._names.get(_oid(oid), _text(oid)),
            "neve_schema": lambda name: self._schemas.get(str(name)),
            "to_regnamespace": lambda name: self._schemas.get(str(name)),
            "neve_schema_name": self._schema_name,
            "pg_table_is_visible": lambda oid: int(_oid(oid) in self._visible),
        }

    def relation_oid(self, name: Any) -> int | None:
        """Return the oid of a relation by its name with or without schema; None if unknown."""
        if name is None:
            return None
        text = str(name)
        if text.isdigit():
            return int(text)
        return self._oids.get(text.replace('"', "")) or self._oids.get(text.lower())

    def _schema_name(self, oid: Any) -> str | None:
        named = {number: name for name, number in self._schemas.items()}
        return named.get(_oid(oid), _text(oid))


def _oid(oid: Any) -> int:
    try:
        return int(oid)
    except (TypeError, ValueError):
        return -1


def _text(oid: Any) -> str | None:
    return None if oid is None else str(oid)
