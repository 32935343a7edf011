"""Options and limits of the server."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from neve.errors import InvalidError

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on what clients may use."""

    connections_max: int = 64
    """Clients logged in at a time. Further clients get an error and are disconnected."""
    starting_max: int = 32
    """Connections that have not logged in, in addition to `connections_max`; includes cancel
    requests. A further connection closes the oldest one of the address with the most of them."""
    connections_per_address_max: int = 32
    """Connections from one address, logged in or not."""
    queries_max: int = 16
    """Queries that run at a time; further queries wait."""
    queries_per_address_max: int = 12
    """Queries from one address that run at a time."""
    login_seconds: float = 30.0
    """Time from connecting to the end of the log-in, including TLS."""
    stall_seconds: float = 600.0
    """A client that reads nothing of a response for this long is disconnected."""
    statement_seconds: float = 600.0
    """Maximum duration of a statement; `statement_timeout` can only lower it. 0: no limit."""
    cancel_seconds: float = 60.0
    """Time for a cancelled query to end before its connection is closed."""
    message_bytes_max: int = 16 * MIB
    """Size of one message after log-in."""
    login_message_bytes_max: int = 8 * KIB
    """Size of one message before log-in."""
    statements_max: int = 1_000
    """Prepared statements of one connection."""
    statement_bytes_max: int = 32 * MIB
    """Size of texts and values of prepared statements, portals and cursors of one connection."""
    statement_bytes_total_max: int = 64 * MIB
    """The same for all connections together."""
    portals_max: int = 64
    """Open portals and cursors of one connection."""
    chunk_bytes: int = 256 * KIB
    """Approximate size of the chunks in which a result is encoded and sent."""
    catalog_rows_max: int = 200_000
    """Rows in the result of a catalogue query."""
    catalog_bytes_max: int = 64 * MIB
    """Size of texts in the result of a catalogue query; expressions can make them long."""
    catalog_seconds: float = 5.0
    """Time for which the list of relations is cached."""


@dataclass(frozen=True, kw_only=True)
class Tls:
    """The server's certificate. With `required`, clients without TLS are rejected."""

    certificate: Path
    key: Path
    required: bool = False

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise InvalidError(
                f"cannot load certificate {self.certificate} with key {self.key}: {error}; "
                "expected a PEM certificate and its unencrypted PEM key"
            ) from error
        return context


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Address, users, TLS and limits of a server."""

    host: str = "127.0.0.1"
    port: int = 5432
    users: Mapping[str, str] = field(default_factory=dict)
    """User name to password, or to a verifier in PostgreSQL's format (SCRAM-SHA-256$…)."""
    trust: bool = False
    """Accept every user without a password. Only for an address that is not shared."""
    tls: Tls | None = None
    limits: Limits = Limits()
    database: str = "neve"
    """The name of the only database. Clients may connect with any database name."""

    def __post_init__(self) -> None:
        if not self.users and not self.trust:
            raise InvalidError(
                "no users are configured, so no client could log in: configure at least one user "
                "with a password, or set trust to accept every user without one"
            )
