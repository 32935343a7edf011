"""One client after its log-in: a state machine over its messages.

Owns the session's statements, portals, settings and transaction state. Messages are handled one at
a time in the order they came; `interrupt` may be called between, by whoever has a reason to end
what runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pyarrow as pa

from neve.lake.pgwire import wire
from neve.lake.pgwire.options import Limits
from neve.lake.pgwire.parameters import decode
from neve.lake.pgwire.portals import HeldBytes, Portal, Prepared, SessionPortals, expanded
from neve.lake.pgwire.runner import Runner
from neve.lake.pgwire.session_commands import SessionCommands
from neve.lake.pgwire.session_settings import SessionSettings
from neve.lake.pgwire.sqlstate import (
    FAILED_TRANSACTION,
    FEATURE_NOT_SUPPORTED,
    PROTOCOL_VIOLATION,
    SqlError,
    from_exception,
)
from neve.lake.pgwire.transaction import Transaction
from neve.lake.pgwire.transport import Disconnected
from neve.lake.pgwire.types import described

_PASSES_WHILE_FAILED = ("rollback", "rollback to", "commit")


class Session:
    """Give it every message of its client, in order; False from `handle` ends it."""

    def __init__(
        self, runner: Runner, settings: SessionSettings, limits: Limits, held: HeldBytes
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
        await self._ready()

    async def close(self) -> None:
        self._portals.drop_all_prepared()
        await self._portals.drop_portals(held_too=True)

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
            await self._ready()
        elif kind not in b"dcf":  # what is left of a COPY is to be ignored
            raise wire.violation(f"invalid frontend message type {kind[0]}")
        return True

    # --- the simple protocol

    async def _simple(self, body: bytes) -> None:
        try:
            found = await self._runner.read(wire.parse_query(body))
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
        await self._end_of_implicit()
        await self._ready()

    async def _run_simple(self, prepared: Prepared) -> None:
        self._check_state(prepared)
        if prepared.types:
            raise SqlError("42P02", "there is no parameter $1")
        portal = Portal(prepared)
        try:
            self._start(portal)
            await self._tell_rows(portal, quiet=True)
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
        await self._out.relieve()

    async def _parse(self, body: bytes) -> None:
        asked = wire.parse_parse(body)
        found = await self._runner.read(asked.query)
        prepared = Prepared.of(found, asked.types)
        self._check_state(prepared)
        self._portals.add_prepared(asked.name, prepared)
        self._out.add(wire.PARSE_COMPLETE)

    async def _bind(self, body: bytes) -> None:
        asked = wire.parse_bind(body)
        prepared = self._portals.prepared(asked.statement)
        self._check_state(prepared)
        if len(asked.values) != len(prepared.types):
            raise SqlError(
                PROTOCOL_VIOLATION,
                f"bind message supplies {len(asked.values)} parameters, but prepared statement "
                f'"{asked.statement}" requires {len(prepared.types)}',
            )
        formats = expanded(asked.formats, len(asked.values))
        values = [
            decode(value, oid, form)
            for value, oid, form in zip(asked.values, prepared.types, formats, strict=True)
        ]
        portal = Portal(prepared, asked.result_formats, values)
        await self._portals.add_portal(asked.portal, portal)
        self._start(portal)
        self._out.add(wire.BIND_COMPLETE)

    async def _describe(self, body: bytes) -> None:
        asked = wire.parse_target(body)
        if asked.kind == b"P":
            portal = self._portals.portal(asked.name)
            self._check_state(portal.prepared)
            await self._tell_rows(portal)
            return
        prepared = self._portals.prepared(asked.name)
        self._check_state(prepared)
        self._out.add(wire.parameter_description(prepared.types))
        schema = await self._schema_of(prepared)
        if schema is None:
            self._out.add(wire.NO_DATA)
            return
        prepared.described = described(schema)
        if prepared.types:  # the size of a numeric may follow from values that are not known yet
            prepared.described = [replace(each, modifier=-1) for each in prepared.described]
        self._out.add(wire.row_description(prepared.described, [wire.TEXT] * len(schema)))

    async def _execute(self, body: bytes) -> None:
        asked = wire.parse_execute(body)
        portal = self._portals.portal(asked.portal)
        self._check_state(portal.prepared)
        await self._run(portal, asked.rows_max)

    async def _close(self, body: bytes) -> None:
        asked = wire.parse_target(body)
        if asked.kind == b"P":
            await self._portals.drop_portal(asked.name)
        else:
            self._portals.drop_prepared(asked.name)
        self._out.add(wire.CLOSE_COMPLETE)

    async def _sync(self) -> None:
        await self._end_of_implicit()
        await self._ready()

    # --- portals

    def _start(self, portal: Portal) -> None:
        """Give a portal its query, if it has one; nothing is asked of the engine yet."""
        prepared = portal.prepared
        if prepared.statement is not None and prepared.command is None:
            portal.execution = self._runner.execution(prepared.statement, portal.values)

    async def _tell_rows(self, portal: Portal, *, quiet: bool = False) -> None:
        """A RowDescription; NoData where there are no rows, unless that goes without saying."""
        if portal.execution is not None:
            schema = await self._runner.open(portal)
        else:
            schema = await self._schema_of(portal.prepared)
        portal.is_described = True
        if schema is not None:
            formats = portal.column_formats(schema)
            self._out.add(wire.row_description(described(schema), formats))
        elif not quiet:
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

    # --- transactions and answers

    def _check_state(self, prepared: Prepared) -> None:
        if not self._transaction.has_failed or prepared.statement is None:
            return
        if prepared.command is None or prepared.command.name not in _PASSES_WHILE_FAILED:
            raise SqlError(
                FAILED_TRANSACTION,
                "current transaction is aborted, commands ignored until end of transaction block",
            )

    async def _end_of_implicit(self) -> None:
        """Outside of a transaction block, every round ends the portals that it opened."""
        if not self._transaction.is_open:
            await self._portals.drop_portals(held_too=False)

    def _fail(self, failure: BaseException) -> None:
        """Tell the client, unless the connection is to end with it."""
        if isinstance(failure, SqlError) and failure.severity == "FATAL":
            raise failure
        self._transaction.fail()
        self._out.add(wire.report(from_exception(failure)))

    async def _ready(self) -> None:
        self._commands.settle()
        self._out.add(wire.ready(self._transaction.status))
        await self._out.flush()
