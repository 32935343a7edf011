"""Commands that a session runs itself: transactions, settings, cursors and DISCARD."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pyarrow as pa

from neve.lake.pgwire import wire
from neve.lake.pgwire.commands import Command
from neve.lake.pgwire.encode import data_rows, encoders
from neve.lake.pgwire.portals import Portal, Prepared, SessionPortals
from neve.lake.pgwire.runner import QueryRunner
from neve.lake.pgwire.session_settings import SessionSettings
from neve.lake.pgwire.sqlstate import (
    ACTIVE_TRANSACTION,
    FEATURE_NOT_SUPPORTED,
    NO_TRANSACTION,
    SqlError,
)


class Transaction:
    """The transaction state that clients see: idle, in a block, or in a failed block.

    Nothing is ever written, so the state has no effect on data.
    """

    def __init__(self) -> None:
        self.is_open = False
        self.has_failed = False

    @property
    def status(self) -> bytes:
        if not self.is_open:
            return b"I"
        return b"E" if self.has_failed else b"T"

    def begin(self) -> SqlError | None:
        """Open a block. Returns PostgreSQL's warning if one is open already."""
        if self.is_open:
            return SqlError(
                ACTIVE_TRANSACTION, "there is already a transaction in progress", severity="WARNING"
            )
        self.is_open = True
        return None

    def end(self) -> SqlError | None:
        """Close the block. Returns PostgreSQL's warning if none is open."""
        was_open, self.is_open, self.has_failed = self.is_open, False, False
        if was_open:
            return None
        return SqlError(NO_TRANSACTION, "there is no transaction in progress", severity="WARNING")

    def fail(self) -> None:
        self.has_failed = self.is_open

    def recover(self) -> None:
        """Leave the failed state after ROLLBACK TO a savepoint."""
        self.has_failed = False


class SessionCommands:
    """Runs the commands of one session. Each command returns its command tag."""

    def __init__(
        self,
        runner: QueryRunner,
        portals: SessionPortals,
        transaction: Transaction,
        settings: SessionSettings,
    ) -> None:
        self._runner = runner
        self._out = runner.out
        self._portals = portals
        self._transaction = transaction
        self._settings = settings
        self._reported = settings.reported()
        self._steps: dict[str, Callable[[Portal, Command], Awaitable[str]]] = {
            "begin": self._begin,
            "commit": self._end_transaction,
            "rollback": self._end_transaction,
            "rollback to": self._rollback_to,
            "set": self._set,
            "reset": self._reset,
            "show": self._show,
            "declare": self._declare,
            "fetch": self._fetch,
            "move": self._fetch,
            "close": self._close,
            "deallocate": self._deallocate,
            "discard": self._discard,
        }

    def schema(self, command: Command) -> pa.Schema | None:
        """Return the schema of the command's rows; None if it has no rows."""
        if command.name == "show":
            return _show_schema(command.subject)
        if command.name == "fetch":
            return self._portals.portal(command.subject).schema
        return None

    async def run(self, portal: Portal, command: Command) -> None:
        step = self._steps.get(command.name)
        tag = command.tag if step is None else await step(portal, command)
        self._out.add(wire.command_complete(tag))

    def report_changes(self) -> None:
        """Send ParameterStatus for each reported setting that has changed."""
        now = self._settings.reported()
        for name, value in now.items():
            if self._reported.get(name) != value:
                self._out.add(wire.parameter_status(name, value))
        self._reported = now

    def _notice(self, notice: SqlError | None) -> None:
        if notice is not None:
            self._out.add(wire.error_or_notice(notice))

    # --- transactions

    async def _begin(self, _: Portal, command: Command) -> str:
        self._notice(self._transaction.begin())
        return command.tag

    async def _end_transaction(self, _: Portal, command: Command) -> str:
        had_failed = self._transaction.has_failed
        await self._portals.drop_portals(include_held=False)
        self._notice(self._transaction.end())
        return "ROLLBACK" if had_failed else command.tag

    async def _rollback_to(self, _: Portal, command: Command) -> str:
        self._transaction.recover()
        return command.tag

    # --- settings

    async def _set(self, _: Portal, command: Command) -> str:
        if command.value.lower() == "default":
            self._settings.reset(command.subject)
        else:
            self._notice(self._settings.set(command.subject, command.value))
        return command.tag

    async def _reset(self, _: Portal, command: Command) -> str:
        self._settings.reset(command.subject)
        return command.tag

    async def _show(self, portal: Portal, command: Command) -> str:
        schema = _show_schema(command.subject)
        rows: list[tuple[str, ...]]
        if command.subject.lower() == "all":
            rows = [(name, value, "") for name, value in self._settings.all().items()]
        else:
            rows = [(self._settings.show(command.subject),)]
        arrays = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        columns = encoders(schema, portal.column_formats(schema))
        self._out.add(data_rows(pa.record_batch(arrays, schema=schema), columns))
        return command.tag

    # --- cursors

    async def _declare(self, portal: Portal, command: Command) -> str:
        if not self._transaction.is_open and not command.hold:
            raise SqlError(NO_TRANSACTION, "DECLARE CURSOR can only be used in transaction blocks")
        assert command.query is not None
        prepared = Prepared.one(command.query)
        if prepared.command is not None:
            raise SqlError(FEATURE_NOT_SUPPORTED, "DECLARE CURSOR accepts only a query")
        cursor = Portal(prepared, hold=command.hold)
        cursor.execution = self._runner.execution(command.query, portal.values)
        await self._portals.add_portal(command.subject, cursor)
        try:
            await self._runner.open(cursor)
        except BaseException:
            await self._portals.drop_portal(command.subject)
            raise
        return command.tag

    async def _fetch(self, portal: Portal, command: Command) -> str:
        cursor = self._portals.portal(command.subject)
        if cursor.execution is None:
            raise SqlError(FEATURE_NOT_SUPPORTED, f'"{command.subject}" is not a cursor of a query')
        schema = await self._runner.open(cursor)
        cursor.columns = encoders(schema, portal.column_formats(schema))
        silent = command.name == "move"
        return f"{command.tag} {await self._runner.send(cursor, command.rows, silent=silent)}"

    async def _close(self, _: Portal, command: Command) -> str:
        if not command.subject:
            await self._portals.drop_portals(include_held=True)
        else:
            self._portals.portal(command.subject)
            await self._portals.drop_portal(command.subject)
        return command.tag

    # --- DEALLOCATE and DISCARD

    async def _deallocate(self, _: Portal, command: Command) -> str:
        if command.tag == "DEALLOCATE ALL":
            self._portals.drop_all_prepared()
        else:
            self._portals.prepared(command.subject)
            self._portals.drop_prepared(command.subject)
        return command.tag

    async def _discard(self, _: Portal, command: Command) -> str:
        if command.subject == "all":
            await self._portals.drop_portals(include_held=True)
            self._portals.drop_all_prepared()
            self._settings.reset("all")
        return command.tag


def _show_schema(name: str) -> pa.Schema:
    if name.lower() == "all":
        names = ["name", "setting", "description"]
    else:
        names = ["TimeZone" if name.lower() == "timezone" else name.lower()]
    return pa.schema([(each, pa.string()) for each in names])
