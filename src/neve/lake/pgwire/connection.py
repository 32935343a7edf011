"""One client connection: log-in, message loop, errors and closing."""

from __future__ import annotations

import contextlib
import logging

from neve import runtime
from neve.lake.pgwire import wire
from neve.lake.pgwire.runner import QueryRunner, ServerState
from neve.lake.pgwire.session import Session
from neve.lake.pgwire.session_settings import SessionSettings
from neve.lake.pgwire.sqlstate import (
    ADMIN_SHUTDOWN,
    INVALID_PARAMETER_VALUE,
    QUERY_CANCELED,
    SqlError,
    fatal,
)
from neve.lake.pgwire.startup import Startup
from neve.lake.pgwire.transport import ClientTransport, Disconnected, SendBuffer

_LOG = logging.getLogger(__name__)
_NOT_SETTINGS = ("user", "database", "options", "replication")


class Connection:
    """A client connection. The server owns it and runs `run` in a task."""

    def __init__(
        self,
        transport: ClientTransport,
        state: ServerState,
        startup: Startup,
        process: int,
        secret: int,
    ) -> None:
        self._transport = transport
        self.address = transport.address()
        self._state = state
        self._startup = startup
        self.process = process
        self.secret = secret
        self.logged_in = False
        self._session: Session | None = None
        self._stopping = False
        transport.on_lost = self._lost

    def cancel(self) -> None:
        self._interrupt(SqlError(QUERY_CANCELED, "canceling statement due to user request"))

    def stop(self, reason: SqlError) -> None:
        """Interrupt the running query, send `reason` to the client and close the connection."""
        self._stopping = True
        self._interrupt(reason)
        self._transport.write(wire.error_or_notice(reason))
        self._transport.close()

    def abort(self) -> None:
        """Close the connection without sending anything, to make room for another client."""
        self._transport.abort()

    def _lost(self) -> None:
        self._interrupt(fatal(ADMIN_SHUTDOWN, "the client has disconnected"))

    def _interrupt(self, reason: SqlError) -> None:
        if self._session is not None:
            self._session.interrupt(reason)

    async def run(self) -> None:
        try:
            await self._serve()
        except (Disconnected, OSError):
            pass
        except SqlError as error:
            self._transport.write(wire.error_or_notice(error))
        except Exception:
            _LOG.exception("connection failed: process=%d", self.process)
            self._transport.write(
                wire.error_or_notice(
                    fatal("XX000", "internal error: see the server's log for the cause")
                )
            )
        finally:
            await self._end()

    async def _serve(self) -> None:
        try:
            async with runtime.deadline(self._state.limits.login_seconds):
                parameters = await self._startup.negotiate()
                await self._startup.authenticate(parameters["user"])
        except TimeoutError:
            raise fatal("57014", "canceling authentication due to timeout") from None
        self._session = await self._begin(parameters)
        await self._session.start()
        while not self._stopping and await self._message(self._session):
            pass

    async def _begin(self, parameters: dict[str, str]) -> Session:
        user = parameters["user"]
        limits = self._state.limits
        settings = SessionSettings(
            user, statement_timeout_ms=round(limits.statement_seconds * 1000)
        )
        for name, value in [*parameters.items(), *_options(parameters.get("options", ""))]:
            if name not in _NOT_SETTINGS:
                _set_at_startup(settings, name, value)
        self.logged_in = True
        self._startup.on_login()
        out = SendBuffer(self._transport, limits.stall_seconds)
        for name, value in settings.reported().items():
            out.add(wire.parameter_status(name, value))
        out.add(wire.backend_key(self.process, self.secret))
        runner = QueryRunner(
            self._state, out, settings, user=user, process=self.process, address=self.address
        )
        return Session(runner, settings, limits, self._state.held)

    async def _message(self, session: Session) -> bool:
        header = await self._transport.read(wire.HEADER_BYTES)
        kind, size = wire.body_length(header, self._state.limits.message_bytes_max)
        return await session.handle(kind, await self._transport.read(size))

    async def _end(self) -> None:
        with contextlib.suppress(Exception):
            if self._session is not None:
                await self._session.close()
        self._transport.close()


def _set_at_startup(settings: SessionSettings, name: str, value: str) -> None:
    try:
        settings.startup(name, value)
    except SqlError as error:
        raise fatal(INVALID_PARAMETER_VALUE, error.message) from error


def _options(text: str) -> list[tuple[str, str]]:
    """Parse libpq's `options`: `-c name=value` and `--name=value`."""
    found: list[tuple[str, str]] = []
    words = text.replace("-c ", "-c").split()
    for word in words:
        for mark in ("--", "-c"):
            if word.startswith(mark) and "=" in word:
                name, _, value = word.removeprefix(mark).partition("=")
                found.append((name.replace("-", "_"), value))
                break
    return found
