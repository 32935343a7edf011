"""The server: accepts and limits connections, routes cancel requests, and shuts down."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from neve import runtime
from neve.errors import InvalidError
from neve.lake.pgwire.backend import Backend
from neve.lake.pgwire.catalog.catalog import Catalog
from neve.lake.pgwire.client_limits import AddressLimiter
from neve.lake.pgwire.connection import Connection
from neve.lake.pgwire.execution import ServerThreads
from neve.lake.pgwire.options import Limits, ServeOptions, Tls
from neve.lake.pgwire.runner import ServerState
from neve.lake.pgwire.scram import Passwords
from neve.lake.pgwire.sqlstate import (
    ADMIN_SHUTDOWN,
    CRASH_SHUTDOWN,
    TOO_MANY_CONNECTIONS,
    fatal,
)
from neve.lake.pgwire.startup import Security, Startup
from neve.lake.pgwire.transport import ClientTransport
from neve.serving import logs

log = logging.getLogger("neve.sql")
_CONTROL_THREADS = 4
_STOP_SECONDS = 10.0


class PostgresServer:
    """A PostgreSQL server: `await start()`, later `await close()`. `start` sets `port`."""

    def __init__(
        self,
        backend: Backend,
        *,
        host: str = "127.0.0.1",
        port: int = 5432,
        users: Mapping[str, str] | None = None,
        trust: bool = False,
        tls: Tls | None = None,
        limits: Limits | None = None,
        database: str = "neve",
    ) -> None:
        self.host, self.port = host, port
        self._limits = limits or Limits()
        if not users and not trust:
            raise InvalidError(
                "no users are configured, so no client could log in: configure at least one"
            )
        self._security = Security(
            None if trust else Passwords(users or {}),
            None if tls is None else tls.context(),
            None if tls is None else tls.certificate.read_text(encoding="ascii", errors="replace"),
            tls is not None and tls.required,
        )
        queries = runtime.ThreadPool(self._limits.queries_max, "neve-sql")
        control = runtime.ThreadPool(_CONTROL_THREADS, "neve-sql-control")
        per_address = AddressLimiter(self._limits.queries_per_address_max)
        threads = ServerThreads(queries, control, per_address)
        catalog = Catalog(backend, self._limits, database=database, users=list(users or {}))
        self._state = ServerState(backend, catalog, threads, self._limits)
        self._connections: dict[int, Connection] = {}
        self._tasks = runtime.Tasks()
        self._processes = 0
        self._listener: asyncio.Server | None = None

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            self._listener = await loop.create_server(
                lambda: ClientTransport(self._connected), self.host, self.port
            )
        except OSError as error:
            self._state.threads.close()
            raise InvalidError(
                f"cannot listen on {self.host}:{self.port} ({error.strerror or error}): "
                "choose another address or port"
            ) from error
        self.port = int(self._listener.sockets[0].getsockname()[1])

    async def close(self, failure: str = "") -> None:
        """Stop listening, close all connections and wait for them.

        `failure` is the reason that clients get if the engine has failed.
        """
        reason = fatal(ADMIN_SHUTDOWN, "terminating connection due to administrator command")
        if failure:
            reason = fatal(CRASH_SHUTDOWN, f"terminating connection: {failure}")
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections.values()):
            connection.stop(reason)
        with contextlib.suppress(TimeoutError):
            async with runtime.deadline(_STOP_SECONDS):
                await self._tasks.join()
        await self._tasks.close()
        self._state.threads.close()

    @property
    def failure(self) -> str:
        """The reason why the server cannot run queries any more; empty while it can."""
        stuck = len(self._state.threads.stuck)
        if stuck < self._limits.queries_max:
            return ""
        return f"all {stuck} query threads are blocked by cancelled queries that do not end"

    @property
    def clients(self) -> int:
        """Number of clients that are logged in."""
        return sum(each.logged_in for each in self._connections.values())

    def _connected(self, transport: ClientTransport) -> None:
        limits = self._limits
        if not self._admit(transport.address()):
            transport.abort()
            return
        self._processes = self._processes % 0x7FFFFFFF + 1
        process = self._processes
        secret = int.from_bytes(runtime.token(4), "big")
        startup = Startup(transport, self._security, limits, self._cancel, self._check_clients)
        connection = Connection(transport, self._state, startup, process, secret)
        self._connections[process] = connection
        self._tasks.start(self._run(connection), name=f"postgres client {process}")

    def _admit(self, address: str) -> bool:
        """Return True if a client may connect.

        If a limit is reached, closes the oldest connection that has not logged in.
        """
        limits = self._limits
        mine = [each for each in self._connections.values() if each.address == address]
        starting = [each for each in self._connections.values() if not each.logged_in]
        if len(mine) >= limits.connections_per_address_max:
            logs.event(
                log, logging.WARNING, "too many connections from one address", address=address
            )
            return self._close_oldest(each for each in mine if not each.logged_in)
        if len(starting) >= limits.starting_max:
            (most, _), *_ = Counter(each.address for each in starting).most_common(1)
            logs.event(log, logging.WARNING, "too many connections without log-in", address=most)
            return self._close_oldest(each for each in starting if each.address == most)
        return True

    def _close_oldest(self, connections: Iterable[Connection]) -> bool:
        """Close the first connection. Returns False if there is none."""
        oldest = next(iter(connections), None)
        if oldest is None:
            return False
        del self._connections[oldest.process]
        oldest.abort()
        return True

    async def _run(self, connection: Connection) -> None:
        try:
            await connection.run()
        finally:
            self._connections.pop(connection.process, None)

    def _check_clients(self) -> None:
        """Raise if too many clients are logged in. Called after authentication."""
        if self.clients > self._limits.connections_max:
            raise fatal(TOO_MANY_CONNECTIONS, "sorry, too many clients already")

    def _cancel(self, process: int, secret: int) -> None:
        connection = self._connections.get(process)
        known = 0 if connection is None else connection.secret
        fits = hmac.compare_digest(secret.to_bytes(4, "big"), known.to_bytes(4, "big"))
        if connection is not None and fits:
            connection.cancel()


@asynccontextmanager
async def serve(backend: Backend, options: ServeOptions) -> AsyncIterator[PostgresServer]:
    """Run a server within an `async with` block."""
    server = PostgresServer(
        backend,
        host=options.host,
        port=options.port,
        users=options.users,
        trust=options.trust,
        tls=options.tls,
        limits=options.limits,
        database=options.database,
    )
    await server.start()
    try:
        yield server
    finally:
        await server.close()
