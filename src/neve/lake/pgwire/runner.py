"""Runs the queries of one session, on the engine or on the catalogue, and sends their rows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from neve.lake.pgwire import wire
from neve.lake.pgwire.dialect import translate
from neve.lake.pgwire.execution import Execution, Query
from neve.lake.pgwire.lexer import Statement, statements
from neve.lake.pgwire.parameters import stand_in
from neve.lake.pgwire.portals import Portal, Prepared
from neve.lake.pgwire.server_state import ServerState
from neve.lake.pgwire.session_settings import SessionSettings
from neve.lake.pgwire.sqlstate import FEATURE_NOT_SUPPORTED, QUERY_CANCELED, SqlError
from neve.lake.pgwire.transport import SendBuffer
from neve.lake.pgwire.types import described
from neve.lake.pgwire.wire import Described

_READ_AT_ONCE_CHARACTERS = 16 * 1024


class Runner:
    """One session's. At most one query is at work at a time; `interrupt` ends that one."""

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
        self._catalog = state.catalog_for(user, process, settings)
        self._process = process
        self._address = address
        self._count = 0
        self._running: Execution | None = None

    def interrupt(self, reason: SqlError) -> None:
        if self._running is not None:
            self._running.interrupt(reason)

    async def read(self, sql: str) -> list[Statement]:
        """The statements of a text; a long one is not read on the loop."""
        if len(sql) <= _READ_AT_ONCE_CHARACTERS:
            return statements(sql)
        return await self._state.threads.queries.offload(statements, sql)

    def execution(self, statement: Statement, values: Sequence[Any]) -> Execution:
        """A query that is ready to run; nothing is asked of the engine yet."""
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
        if self._catalog.answers(statement):
            return Query(self._catalog, statement.text, values, lambda place: offset + place)
        written = translate(statement)
        ordered = [values[number] for number in written.order]
        return Query(
            self._state.backend, written.sql, ordered, lambda at: offset + written.position(at)
        )

    async def schema_of(self, prepared: Prepared) -> pa.Schema:
        """What a query's rows look like before its values are known: with others in their place."""
        assert prepared.statement is not None
        execution = self.execution(prepared.statement, [stand_in(oid) for oid in prepared.types])
        self._running = execution
        with _Alarm(execution, self._settings.statement_seconds):
            try:
                return await execution.schema()
            finally:
                self._running = None
                await execution.close()

    async def open(self, portal: Portal) -> pa.Schema:
        """Begin a portal's query if it has not begun; what its rows look like."""
        assert portal.execution is not None
        self._running = portal.execution
        with _Alarm(portal.execution, self._settings.statement_seconds):
            try:
                return await portal.open()
            finally:
                self._running = None

    async def run(self, portal: Portal, rows_max: int) -> None:
        """Execute: rows up to a number (0: all), then the word for how it ended."""
        schema = await self.open(portal)
        told = portal.prepared.described
        if told is not None and not portal.is_described and not _fits(described(schema), told):
            raise SqlError(FEATURE_NOT_SUPPORTED, "cached plan must not change result type")
        sent = await self.send(portal, rows_max)
        if portal.is_finished:
            self.out.add(wire.command_complete(f"SELECT {sent}"))
        else:
            self.out.add(wire.PORTAL_SUSPENDED)

    async def send(self, portal: Portal, rows_max: int, *, silent: bool = False) -> int:
        """Rows of an open portal, to the client unless silent; how many. Marks its end."""
        sent = 0
        execution = portal.execution
        if execution is None or portal.is_finished:
            return 0
        self._running = execution
        with _Alarm(execution, self._settings.statement_seconds):
            try:
                while not rows_max or sent < rows_max:
                    chunk = await execution.next(portal.columns, rows_max and rows_max - sent)
                    if chunk is None:
                        portal.is_finished = True
                        break
                    sent += chunk.rows
                    if not silent:
                        self.out.add(chunk.data)
                        await self.out.relieve()
            finally:
                self._running = None
        return sent


def _fits(columns: Sequence[Described], told: Sequence[Described]) -> bool:
    """Whether a client that was told the one can read the other; names do not matter for that."""
    return [column.type_oid for column in columns] == [each.type_oid for each in told] and all(
        each.modifier in (-1, column.modifier) for column, each in zip(columns, told, strict=True)
    )


class _Alarm:
    """Ends an execution that takes longer than the session's statement_timeout."""

    def __init__(self, execution: Execution, seconds: float) -> None:
        self._execution = execution
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        if self._seconds:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds, self._ring)

    def _ring(self) -> None:
        reason = SqlError(QUERY_CANCELED, "canceling statement due to statement timeout")
        self._execution.interrupt(reason)

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
