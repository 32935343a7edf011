"""What a session does itself: transactions, settings, cursors, forgetting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pyarrow as pa

from neve.lake.pgwire import wire
from neve.lake.pgwire.commands import Command
from neve.lake.pgwire.encode import data_rows, encoders
from neve.lake.pgwire.portals import Portal, Prepared, SessionPortals
from neve.lake.pgwire.runner import Runner
from neve.lake.pgwire.session_settings import SessionSettings
from neve.lake.pgwire.sqlstate import FEATURE_NOT_SUPPORTED, NO_TRANSACTION, SqlError
from neve.lake.pgwire.transaction import Transaction


class SessionCommands:
    """Carries out one session's commands; answers with the tag that the client is told."""

    def __init__(
        self,
        runner: Runner,
        portals: SessionPortals,
        transaction: Transaction,
        settings: SessionSettings,
    ) -> None:
        self._runner = runner
        self._out = runner.out
        self._portals = portals
        self._transaction = transaction
        self._settings = settings
        self._told = settings.reported()
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
        """What the command's rows look like; None where it has none."""
        if command.name == "show":
            return _show_schema(command.subject)
        if command.name == "fetch":
            return self._portals.portal(command.subject).schema
        return None

    async def run(self, portal: Portal, command: Command) -> None:
        step = self._steps.get(command.name)
        tag = command.tag if step is None else await step(portal, command)
        self._out.add(wire.command_complete(tag))

    def settle(self) -> None:
        """Tell the client which of the reported settings have changed."""
        now = self._settings.reported()
        for name, value in now.items():
            if self._told.get(name) != value:
                self._out.add(wire.parameter_status(name, value))
        self._told = now

    def _notice(self, notice: SqlError | None) -> None:
        if notice is not None:
            self._out.add(wire.report(notice))

    # --- transactions

    async def _begin(self, _: Portal, command: Command) -> str:
        self._notice(self._transaction.begin())
        return command.tag

    async def _end_transaction(self, _: Portal, command: Command) -> str:
        had_failed = self._transaction.has_failed
        await self._portals.drop_portals(held_too=False)
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
            raise SqlError(FEATURE_NOT_SUPPORTED, "a cursor needs a query")
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
            await self._portals.drop_portals(held_too=True)
        else:
            self._portals.portal(command.subject)
            await self._portals.drop_portal(command.subject)
        return command.tag

    # --- forgetting

    async def _deallocate(self, _: Portal, command: Command) -> str:
        if command.tag == "DEALLOCATE ALL":
            self._portals.drop_all_prepared()
        else:
            self._portals.prepared(command.subject)
            self._portals.drop_prepared(command.subject)
        return command.tag

    async def _discard(self, _: Portal, command: Command) -> str:
        if command.subject == "all":
            await self._portals.drop_portals(held_too=True)
            self._portals.drop_all_prepared()
            self._settings.reset("all")
        return command.tag


def _show_schema(name: str) -> pa.Schema:
    if name.lower() == "all":
        names = ["name", "setting", "description"]
    else:
        names = ["TimeZone" if name.lower() == "timezone" else name.lower()]
    return pa.schema([(each, pa.string()) for each in names])
