"""`neve sql --serve`: the SQL engine behind PostgreSQL's wire protocol."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from neve import runtime
from neve.cli.output import UsageError, complain
from neve.errors import InvalidError
from neve.serving import logs
from neve.serving.addresses import parse_address

if TYPE_CHECKING:
    from neve.lake.pgwire.options import ServeOptions
    from neve.lake.pgwire.server import PostgresServer
    from neve.lake.spark.query.engine import Engine
    from neve.settings import Settings


@Parameter(name="*")
@dataclass(frozen=True)
class ServeFlags:
    """The flags of `--serve`."""

    serve: Annotated[
        str | None,
        Parameter(help="Serve PostgreSQL clients on HOST:PORT; port 0 selects a free port."),
    ] = None
    users: Annotated[
        Path | None,
        Parameter(help="File of users: lines of name:password or name:SCRAM-verifier."),
    ] = None
    trust: Annotated[
        bool,
        Parameter(
            negative="", help="Accept every client without a password. For trusted networks."
        ),
    ] = False
    tls_cert: Annotated[Path | None, Parameter(help="TLS certificate, PEM.")] = None
    tls_key: Annotated[
        Path | None, Parameter(help="Key of the certificate, PEM, not encrypted.")
    ] = None
    tls_required: Annotated[bool, Parameter(negative="", help="Reject clients without TLS.")] = (
        False
    )

    statement_seconds: Annotated[
        float, Parameter(help="Timeout of a statement in seconds; 0: no limit.")
    ] = 600.0
    connections_per_address_max: Annotated[
        int, Parameter(help="Maximum connections per address. Raise it for a pool or a proxy.")
    ] = 32

    def options(self) -> ServeOptions | None:
        """Return the server's options; None without --serve."""
        if self.serve is None:
            if self.users or self.trust or self.tls_cert or self.tls_key or self.tls_required:
                raise UsageError("--users, --trust and --tls-… need --serve HOST:PORT")
            return None
        from neve.lake.pgwire.options import Limits, ServeOptions, Tls

        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError("--tls-cert and --tls-key must be given together")
        if self.tls_required and self.tls_cert is None:
            raise UsageError("--tls-required needs --tls-cert and --tls-key")
        tls = None
        if self.tls_cert is not None and self.tls_key is not None:
            tls = Tls(certificate=self.tls_cert, key=self.tls_key, required=self.tls_required)
        where = parse_address("--serve", self.serve)
        return ServeOptions(
            host=where.host,
            port=where.port,
            users=_users(self.users),
            trust=self.trust,
            tls=tls,
            limits=Limits(
                statement_seconds=self.statement_seconds,
                connections_per_address_max=self.connections_per_address_max,
            ),
        )


NO_SERVER = ServeFlags()
EXIT_ENGINE_LOST = 5
_WATCH_SECONDS = 1.0
_OPEN_TO_OTHERS = 0o077
log = logging.getLogger("neve.sql")


def _users(file: Path | None) -> dict[str, str]:
    if file is None:
        return {}
    try:
        if file.stat().st_mode & _OPEN_TO_OTHERS:
            complain(
                f"warning: {file} contains passwords and is readable by others: chmod 600 {file}"
            )
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError(f"cannot read {file}: {error}") from error
    found = {}
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            name, colon, password = line.partition(":")
            if not colon or not name.strip() or not password:
                raise InvalidError(f"{file}, line {number}: must be name:password")
            found[name.strip()] = password
    return found


async def serve_postgres(engine: Engine, options: ServeOptions) -> int:
    """Serve until SIGINT, SIGTERM or a failure of the engine. Returns the exit code."""
    from neve.lake.pgwire.server import serve

    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, ended.set)
    async with serve(engine, options) as server:
        host = f"[{server.host}]" if ":" in server.host else server.host
        print(f"neve sql is ready: postgres {host}:{server.port}", flush=True)
        failure = await _failure(engine, server, ended)
        if failure:
            log.error("%s: the server stops", failure)
            await server.close(failure)
            return EXIT_ENGINE_LOST
    return 0


async def _failure(engine: Engine, server: PostgresServer, ended: asyncio.Event) -> str:
    """Wait until no query can be answered, and return why; empty if the server was asked to end."""
    while not ended.is_set():
        failure = await runtime.offload(engine.failure) or server.failure
        if failure:
            return failure
        with contextlib.suppress(TimeoutError):
            async with runtime.deadline(_WATCH_SECONDS):
                await ended.wait()
    return ""


def run_server(engine: Engine, options: ServeOptions, settings: Settings) -> int:
    """Serve, for synchronous callers."""
    logs.configure(settings.logs)
    # Errors of queries and of the server already report a lost connection to the JVM.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    return runtime.run(serve_postgres(engine, options))
