"""Runs catalogue queries: `pg_catalog`, `information_schema` and functions such as `version()`.

All sessions share `Catalog`, which caches a snapshot of the engine's relations for a few seconds.
`SessionCatalog` is one session's view of it, and runs catalogue queries as an executor.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from neve import runtime
from neve.errors import NeveError
from neve.lake.pgwire.backend import Backend, Column, Relation
from neve.lake.pgwire.catalog.answer import arrow_table
from neve.lake.pgwire.catalog.declared import find_table
from neve.lake.pgwire.catalog.functions import FUNCTIONS
from neve.lake.pgwire.catalog.result_types import columns_of
from neve.lake.pgwire.catalog.rewrite import cast_name, lowered, rewrite, table_name, transformed
from neve.lake.pgwire.catalog.rows import Oids, ShownRelation, shown_relation
from neve.lake.pgwire.catalog.snapshot import Snapshot
from neve.lake.pgwire.dialect import DEFAULT_SCHEMA
from neve.lake.pgwire.lexer import Statement
from neve.lake.pgwire.options import Limits
from neve.lake.pgwire.session_settings import SERVER_VERSION, SessionSettings
from neve.lake.pgwire.sqlstate import (
    FEATURE_NOT_SUPPORTED,
    PROGRAM_LIMIT,
    SYNTAX_ERROR,
    UNDEFINED_TABLE,
    SqlError,
)

_MAY_BE_CATALOG = re.compile(
    r"pg_|information_schema|current_|session_user|\buser\b|\bversion\b|regclass|regtype"
    r"|set_config|has_\w+_privilege|format_type|_description",
    re.IGNORECASE,
)
_IS_CATALOG = re.compile(r"\bpg_catalog\s*\.|\binformation_schema\s*\.", re.IGNORECASE)
_LOCAL_NODES = (
    exp.CurrentUser,
    exp.SessionUser,
    exp.CurrentSchema,
    exp.CurrentSchemas,
    exp.CurrentDatabase,
    exp.CurrentCatalog,
    exp.CurrentVersion,
)
_NEUTRAL_NODES = (exp.Cast, exp.Coalesce, exp.Case, exp.If, exp.Connector, exp.Array, exp.Nullif)
_SESSION_FUNCTIONS = {
    "version",
    "current_setting",
    "set_config",
    "pg_backend_pid",
    "current_schemas",
}


class Catalog:
    """The catalogue of a server. Its methods block, and are called in threads."""

    def __init__(
        self, backend: Backend, limits: Limits, *, database: str, users: Sequence[str]
    ) -> None:
        self._backend = backend
        self._limits = limits
        self.database = database
        self._users = list(users)
        self._oids = Oids()
        self._lock = threading.Lock()
        self._snapshot: Snapshot | None = None
        self._made_at = 0.0

    def rows_of(self, cursor: sqlite3.Cursor) -> list[tuple[Any, ...]]:
        """Fetch all rows. Raises SqlError as soon as a limit is exceeded."""
        rows_max, left = self._limits.catalog_rows_max, self._limits.catalog_bytes_max
        rows: list[tuple[Any, ...]] = []
        for row in cursor:
            left -= sum(len(value) for value in row if isinstance(value, str | bytes))
            if len(rows) == rows_max or left < 0:
                bytes_max = self._limits.catalog_bytes_max
                bound = f"{rows_max} rows" if left >= 0 else f"{bytes_max} bytes"
                raise SqlError(
                    PROGRAM_LIMIT, f"the result has more than {bound}: select fewer rows or columns"
                )
            rows.append(row)
        return rows

    def snapshot(self) -> Snapshot:
        with self._lock:
            now = runtime.monotonic()
            if self._snapshot is None or now - self._made_at >= self._limits.catalog_seconds:
                relations = self._relations()
                self._snapshot = Snapshot(relations, self.database, self._users, self._oids)
                self._made_at = now
            return self._snapshot

    def _relations(self) -> list[ShownRelation]:
        found: dict[tuple[str, str], ShownRelation] = {}
        for relation in self._backend.relations():
            shown = shown_relation(relation, self._columns(relation), self._oids)
            found.setdefault((shown.schema, shown.name), shown)
        return list(found.values())

    def _columns(self, relation: Relation) -> Sequence[Column]:
        """Return a relation's columns; none if it cannot be described, which is not an error."""
        try:
            return relation.columns or self._backend.describe(relation.name)
        except NeveError:
            return ()


@dataclass(frozen=True)
class _Result:
    schema: pa.Schema
    table: pa.Table

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches()


class SessionCatalog:
    """An executor of catalogue queries, with the user and settings of one session."""

    def __init__(
        self, catalog: Catalog, settings: SessionSettings, *, user: str, process: int
    ) -> None:
        self._catalog = catalog
        self._settings = settings
        self._user = user
        self._process = process
        self._running: dict[str, bool] = {}
        self._parsed: tuple[str, exp.Expr] | None = None  # kept by `handles` for `execute`

    def handles(self, statement: Statement) -> bool:
        """Return True if a statement queries only the catalogue or the session."""
        if not _MAY_BE_CATALOG.search(statement.text):
            return False
        try:
            tree = _parse(statement.text)
        except SqlError:
            return bool(_IS_CATALOG.search(statement.text))
        self._parsed = (statement.text, tree)
        if not isinstance(tree, exp.Query):
            return False
        common = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
        tables = [
            table
            for table in tree.find_all(exp.Table)
            if isinstance(table.this, exp.Identifier | exp.Anonymous)
            and (table.db or table_name(table) not in common)
        ]
        if tables:
            return any(find_table(table.db, table_name(table)) for table in tables)
        return _is_local(tree)

    def execute(self, sql: str, parameters: Sequence[Any] = (), *, tag: str) -> _Result:
        self._running[tag] = True
        try:
            return self._run(sql, parameters, tag)
        except sqlite3.Error as error:
            raise SqlError(
                FEATURE_NOT_SUPPORTED,
                f"this catalogue query is not supported: {error}",
            ) from error
        finally:
            self._running.pop(tag, None)

    def cancel(self, tag: str) -> None:
        if tag in self._running:
            self._running[tag] = False

    def _run(self, sql: str, parameters: Sequence[Any], tag: str) -> _Result:
        parsed, self._parsed = self._parsed, None
        tree = parsed[1] if parsed is not None and parsed[0] == sql else _parse(sql)
        tree = transformed(tree, lowered)
        columns = columns_of(tree)
        snapshot = self._catalog.snapshot()
        rewritten = rewrite(tree, self._constants())
        _check_names(rewritten, snapshot)
        sqlite_sql = rewritten.sql(dialect="sqlite")
        own = {"current_setting": self._setting, "set_config": lambda _name, value, *_: value}
        copied = snapshot.copy(lambda: not self._running.get(tag, False), own)
        try:
            cursor = copied.execute(sqlite_sql, [_sqlite_value(value) for value in parameters])
            rows = self._catalog.rows_of(cursor)
            names = [column[0] for column in cursor.description or ()]
        finally:
            copied.close()
        table = arrow_table(columns, names, rows)
        return _Result(table.schema, table)

    def _setting(self, name: Any, *_: Any) -> str | None:
        return self._settings.all().get(str(name).lower())

    def _constants(self) -> dict[str, Any]:
        user, database = self._user, self._catalog.database
        found: dict[str, Any] = {f"setting {k}": v for k, v in self._settings.all().items()}
        found |= dict.fromkeys(("current_user", "session_user", "user", "current_role"), user)
        found |= dict.fromkeys(("current_database", "current_catalog"), database)
        found |= {"current_schema": DEFAULT_SCHEMA, "pg_backend_pid": self._process}
        found |= {"getdatabaseencoding": "UTF8", "pg_client_encoding": "UTF8"}
        return found | {"version": f"PostgreSQL {SERVER_VERSION}, answered by Neve"}


def _parse(sql: str) -> exp.Expr:
    try:
        return sqlglot.parse_one(sql, read="postgres")
    except Exception as error:  # the parser raises many kinds of exceptions for other dialects
        raise SqlError(
            SYNTAX_ERROR, f"cannot parse the catalogue query: {str(error)[:500]}"
        ) from error


def _check_names(tree: exp.Expr, snapshot: Snapshot) -> None:
    """Raise SqlError if a name that is cast to regclass is not the name of a relation."""
    for call in tree.find_all(exp.Anonymous):
        given = call.expressions[0] if call.name == "neve_class" else None
        if isinstance(given, exp.Literal) and snapshot.relation_oid(given.name) is None:
            raise SqlError(UNDEFINED_TABLE, f'relation "{given.name}" does not exist')


def _is_local(tree: exp.Expr) -> bool:
    """Return True if a query without tables uses functions of the session and no others."""
    asks = False
    for node in tree.walk():
        if isinstance(node, _LOCAL_NODES):
            asks = True
        elif isinstance(node, exp.Column):
            if node.name.lower() not in ("user", "current_role"):
                return False
            asks = True
        elif isinstance(node, exp.Anonymous):
            name = str(node.name).lower()
            if name not in FUNCTIONS and name not in _SESSION_FUNCTIONS:
                return False
            asks = True
        elif isinstance(node, exp.Cast) and cast_name(node).startswith("reg"):
            asks = True
        elif isinstance(node, exp.Func) and not isinstance(node, _NEUTRAL_NODES):
            return False
    return asks


def _sqlite_value(value: Any) -> Any:
    if isinstance(value, list):
        import json

        return json.dumps(value, default=str)
    if value is None or isinstance(value, int | float | str | bytes):
        return value
    return str(value)
