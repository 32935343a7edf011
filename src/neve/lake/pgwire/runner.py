"""Runs the queries of a session on the engine or the catalogue, and sends their rows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from neve.lake.pgwire import wire
from neve.lake.pgwire.backend import Backend
from neve.lake.pgwire.catalog.catalog import Catalog, SessionCatalog
from neve.lake.pgwire.dialect import translate
from neve.lake.pgwire.execution import Execution, Query, ServerThreads
from neve.lake.pgwire.lexer import Statement, statements
from neve.lake.pgwire.options import Limits
from neve.lake.pgwire.parameters import placeholder
from neve.lake.pgwire.portals import HeldBytes, Portal, Prepared
from neve.lake.pgwire.session_settings import SessionSettings
from neve.lake.pgwire.sqlstate import FEATURE_NOT_SUPPORTED, QUERY_CANCELED, SqlError
from neve.lake.pgwire.transport import SendBuffer
from neve.lake.pgwire.types import column_descriptions
from neve.lake.pgwire.wire import ColumnDescription

_PARSE_ON_LOOP_CHARACTERS_MAX = 16 * 1024


@dataclass(frozen=True)
class ServerState:
    """The engine, catalogue, threads and limits that the sessions of a server share."""

    backend: Backend
    catalog: Catalog
    threads: ServerThreads
    limits: Limits
    held: HeldBytes = field(default_factory=HeldBytes)


class QueryRunner:
    """Runs the queries of one session, one at a time. `interrupt` cancels the current one."""

    def __init__(
        self,
        state: ServerState,
        out: SendBuffer,
        settings: SessionSettings,
        *,
        user: str,
        process: int,
        address: str,
    ) -> None:
        self.out = out
        self._state = state
        self._settings = settings
        self._catalog = SessionCatalog(state.catalog, settings, user=user, process=process)
        self._process = process
        self._address = address
        self._count = 0
        self._running: Execution | None = None

    def interrupt(self, reason: SqlError) -> None:
        if self._running is not None:
            self._running.interrupt(reason)

    async def parse(self, sql: str) -> list[Statement]:
        """Split a text into statements; in a thread if it is long."""
        if len(sql) <= _PARSE_ON_LOOP_CHARACTERS_MAX:
            return statements(sql)
        return await self._state.threads.queries.offload(statements, sql)

    def execution(self, statement: Statement, values: Sequence[Any]) -> Execution:
        """Create the execution of a query, without calling the engine."""
        self._count += 1
        limits = self._state.limits
        return Execution(
            lambda: self._query(statement, values),
            self._state.threads,
            f"pg-{self._process}-{self._count}",
            address=self._address,
            cancel_seconds=limits.cancel_seconds,
            chunk_bytes=limits.chunk_bytes,
        )

    def _query(self, statement: Statement, values: Sequence[Any]) -> Query:
        offset = statement.offset
        if self._catalog.handles(statement):
            return Query(self._catalog, statement.text, values, lambda position: offset + position)
        translated = translate(statement)
        ordered = [values[number] for number in translated.order]
        return Query(
            self._state.backend,
            translated.sql,
            ordered,
            lambda at: offset + translated.position(at),
        )

    async def schema_of(self, prepared: Prepared) -> pa.Schema:
        """Return the schema of a query whose values are not bound, using placeholders."""
        assert prepared.statement is not None
        execution = self.execution(prepared.statement, [placeholder(oid) for oid in prepared.types])
        self._running = execution
        with _StatementTimeout(execution, self._settings.statement_seconds):
            try:
                return await execution.schema()
            finally:
                self._running = None
                await execution.close()

    async def open(self, portal: Portal) -> pa.Schema:
        """Start a portal's query if it has not started. Returns the schema of its rows."""
        assert portal.execution is not None
        self._running = portal.execution
        with _StatementTimeout(portal.execution, self._settings.statement_seconds):
            try:
                return await portal.open()
            finally:
                self._running = None

    async def run(self, portal: Portal, rows_max: int) -> None:
        """Send up to `rows_max` rows (0: all), then CommandComplete or PortalSuspended."""
        schema = await self.open(portal)
        sent = portal.prepared.described
        if (
            sent is not None
            and not portal.is_described
            and not _fits(column_descriptions(schema), sent)
        ):
            raise SqlError(FEATURE_NOT_SUPPORTED, "cached plan must not change result type")
        count = await self.send(portal, rows_max)
        if portal.is_finished:
            self.out.add(wire.command_complete(f"SELECT {count}"))
        else:
            self.out.add(wire.PORTAL_SUSPENDED)

    async def send(self, portal: Portal, rows_max: int, *, silent: bool = False) -> int:
        """Read rows of an open portal, and send them unless `silent`. Returns their number."""
        sent = 0
        execution = portal.execution
        if execution is None or portal.is_finished:
            return 0
        self._running = execution
        with _StatementTimeout(execution, self._settings.statement_seconds):
            try:
                while not rows_max or sent < rows_max:
                    chunk = await execution.next(portal.columns, rows_max and rows_max - sent)
                    if chunk is None:
                        portal.is_finished = True
                        break
                    sent += chunk.rows
                    if not silent:
                        self.out.add(chunk.data)
                        await self.out.flush_if_large()
            finally:
                self._running = None
        return sent


def _fits(columns: Sequence[ColumnDescription], sent: Sequence[ColumnDescription]) -> bool:
    """Return True if a client with the row description `sent` can read `columns`.

    Names may differ.
    """
    return [column.type_oid for column in columns] == [each.type_oid for each in sent] and all(
        each.modifier in (-1, column.modifier) for column, each in zip(columns, sent, strict=True)
    )


class _StatementTimeout:
    """Interrupts an execution that takes longer than the session's statement_timeout."""

    def __init__(self, execution: Execution, seconds: float) -> None:
        self._execution = execution
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        if self._seconds:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds, self._expire)

    def _expire(self) -> None:
        reason = SqlError(QUERY_CANCELED, "canceling statement due to statement timeout")
        self._execution.interrupt(reason)

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
