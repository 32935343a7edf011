"""One client after its log-in: handles its messages.

A session owns its prepared statements, portals, settings and transaction state. It handles messages
one at a time, in order. `interrupt` may be called meanwhile to cancel the running query.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pyarrow as pa

from neve.lake.pgwire import wire
from neve.lake.pgwire.options import Limits
from neve.lake.pgwire.parameters import decode
from neve.lake.pgwire.portals import HeldBytes, Portal, Prepared, SessionPortals, expand_formats
from neve.lake.pgwire.runner import QueryRunner
from neve.lake.pgwire.session_commands import SessionCommands, Transaction
from neve.lake.pgwire.session_settings import SessionSettings
from neve.lake.pgwire.sqlstate import (
    FAILED_TRANSACTION,
    FEATURE_NOT_SUPPORTED,
    PROTOCOL_VIOLATION,
    SqlError,
    from_exception,
)
from neve.lake.pgwire.transport import Disconnected
from neve.lake.pgwire.types import column_descriptions

_PASSES_WHILE_FAILED = ("rollback", "rollback to", "commit")


class Session:
    """The session of one client. `handle` returns False when the client terminates it."""

    def __init__(
        self, runner: QueryRunner, settings: SessionSettings, limits: Limits, held: HeldBytes
    ) -> None:
        self._runner = runner
        self._out = runner.out
        self._portals = SessionPortals(limits, held)
        self._transaction = Transaction()
        self._skipping = False
        self._commands = SessionCommands(runner, self._portals, self._transaction, settings)
        self._extended: dict[bytes, Callable[[bytes], Awaitable[None]]] = {
            b"P": self._parse,
            b"B": self._bind,
            b"D": self._describe,
            b"E": self._execute,
            b"C": self._close,
        }

    def interrupt(self, reason: SqlError) -> None:
        self._runner.interrupt(reason)

    async def start(self) -> None:
        await self._send_ready()

    async def close(self) -> None:
        self._portals.drop_all_prepared()
        await self._portals.drop_portals(include_held=True)

    async def handle(self, kind: bytes, body: bytes) -> bool:
        if kind == b"X":
            return False
        if kind == b"Q":
            self._skipping = False
            await self._simple(body)
        elif kind == b"S":
            self._skipping = False
            await self._sync()
        elif kind == b"H":
            await self._out.flush()
        elif kind in self._extended:
            await self._step(self._extended[kind], body)
        elif kind == b"F":
            self._fail(SqlError(FEATURE_NOT_SUPPORTED, "function calls are not supported"))
            await self._send_ready()
        elif kind not in b"dcf":  # the rest of a COPY is ignored
            raise wire.protocol_violation(f"invalid frontend message type {kind[0]}")
        return True

    # --- the simple protocol

    async def _simple(self, body: bytes) -> None:
        try:
            found = await self._runner.parse(wire.parse_query(body))
            if not found:
                self._out.add(wire.EMPTY_QUERY)
            await self._portals.drop_portal("")
            self._portals.drop_prepared("")
            for statement in found:
                await self._run_simple(Prepared.one(statement))
        except Disconnected:
            raise
        except Exception as failure:
            self._fail(failure)
        await self._end_implicit_transaction()
        await self._send_ready()

    async def _run_simple(self, prepared: Prepared) -> None:
        self._check_state(prepared)
        if prepared.types:
            raise SqlError("42P02", "there is no parameter $1")
        portal = Portal(prepared)
        try:
            self._start(portal)
            await self._send_row_description(portal, or_no_data=False)
            await self._run(portal, 0)
        finally:
            await portal.close()

    # --- the extended protocol

    async def _step(self, step: Callable[[bytes], Awaitable[None]], body: bytes) -> None:
        if self._skipping:
            return
        try:
            await step(body)
        except Disconnected:
            raise
        except Exception as failure:
            self._fail(failure)
            self._skipping = True
        await self._out.flush_if_large()

    async def _parse(self, body: bytes) -> None:
        request = wire.parse_parse(body)
        found = await self._runner.parse(request.query)
        prepared = Prepared.of(found, request.types)
        self._check_state(prepared)
        self._portals.add_prepared(request.name, prepared)
        self._out.add(wire.PARSE_COMPLETE)

    async def _bind(self, body: bytes) -> None:
        request = wire.parse_bind(body)
        prepared = self._portals.prepared(request.statement)
        self._check_state(prepared)
        if len(request.values) != len(prepared.types):
            raise SqlError(
                PROTOCOL_VIOLATION,
                f"bind message supplies {len(request.values)} parameters, but prepared statement "
                f'"{request.statement}" requires {len(prepared.types)}',
            )
        formats = expand_formats(request.formats, len(request.values))
        values = [
            decode(value, oid, form)
            for value, oid, form in zip(request.values, prepared.types, formats, strict=True)
        ]
        portal = Portal(prepared, request.result_formats, values)
        await self._portals.add_portal(request.portal, portal)
        self._start(portal)
        self._out.add(wire.BIND_COMPLETE)

    async def _describe(self, body: bytes) -> None:
        request = wire.parse_target(body)
        if request.kind == b"P":
            portal = self._portals.portal(request.name)
            self._check_state(portal.prepared)
            await self._send_row_description(portal)
            return
        prepared = self._portals.prepared(request.name)
        self._check_state(prepared)
        self._out.add(wire.parameter_description(prepared.types))
        schema = await self._schema_of(prepared)
        if schema is None:
            self._out.add(wire.NO_DATA)
            return
        prepared.described = column_descriptions(schema)
        if prepared.types:  # precision and scale of a numeric may depend on the values
            prepared.described = [replace(each, modifier=-1) for each in prepared.described]
        self._out.add(wire.row_description(prepared.described, [wire.TEXT] * len(schema)))

    async def _execute(self, body: bytes) -> None:
        request = wire.parse_execute(body)
        portal = self._portals.portal(request.portal)
        self._check_state(portal.prepared)
        await self._run(portal, request.rows_max)

    async def _close(self, body: bytes) -> None:
        request = wire.parse_target(body)
        if request.kind == b"P":
            await self._portals.drop_portal(request.name)
        else:
            self._portals.drop_prepared(request.name)
        self._out.add(wire.CLOSE_COMPLETE)

    async def _sync(self) -> None:
        await self._end_implicit_transaction()
        await self._send_ready()

    # --- portals

    def _start(self, portal: Portal) -> None:
        """Create the portal's execution if it has a query, without calling the engine."""
        prepared = portal.prepared
        if prepared.statement is not None and prepared.command is None:
            portal.execution = self._runner.execution(prepared.statement, portal.values)

    async def _send_row_description(self, portal: Portal, *, or_no_data: bool = True) -> None:
        """Send RowDescription. Without rows send NoData, or nothing if `or_no_data` is False."""
        if portal.execution is not None:
            schema = await self._runner.open(portal)
        else:
            schema = await self._schema_of(portal.prepared)
        portal.is_described = True
        if schema is not None:
            formats = portal.column_formats(schema)
            self._out.add(wire.row_description(column_descriptions(schema), formats))
        elif or_no_data:
            self._out.add(wire.NO_DATA)

    async def _schema_of(self, prepared: Prepared) -> pa.Schema | None:
        if prepared.statement is None:
            return None
        if prepared.command is not None:
            return self._commands.schema(prepared.command)
        return await self._runner.schema_of(prepared)

    async def _run(self, portal: Portal, rows_max: int) -> None:
        if portal.prepared.statement is None:
            self._out.add(wire.EMPTY_QUERY)
        elif portal.prepared.command is not None:
            await self._commands.run(portal, portal.prepared.command)
        else:
            await self._runner.run(portal, rows_max)

    # --- transactions and responses

    def _check_state(self, prepared: Prepared) -> None:
        if not self._transaction.has_failed or prepared.statement is None:
            return
        if prepared.command is None or prepared.command.name not in _PASSES_WHILE_FAILED:
            raise SqlError(
                FAILED_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            )

    async def _end_implicit_transaction(self) -> None:
        """Outside a transaction block, close the portals that are not WITH HOLD."""
        if not self._transaction.is_open:
            await self._portals.drop_portals(include_held=False)

    def _fail(self, failure: BaseException) -> None:
        """Send an error to the client. A fatal error is raised, and ends the connection."""
        if isinstance(failure, SqlError) and failure.severity == "FATAL":
            raise failure
        self._transaction.fail()
        self._out.add(wire.error_or_notice(from_exception(failure)))

    async def _send_ready(self) -> None:
        self._commands.report_changes()
        self._out.add(wire.ready(self._transaction.status))
        await self._out.flush()
