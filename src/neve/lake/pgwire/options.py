"""Everything that can be set about a server, and every bound it keeps, named once."""

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
    """What clients may take up."""

    connections_max: int = 64
    """Clients logged in at once; the next one is told so and closed."""
    starting_max: int = 32
    """Connections that are not logged in yet, beyond those; cancel requests are among them. One
    more closes the oldest of the address that has most of them."""
    connections_per_address_max: int = 32
    """Connections of one address, logged in or not."""
    queries_max: int = 16
    """Queries that do something at the same moment; others wait their turn."""
    queries_per_address_max: int = 12
    """How many of those may be of one address."""
    login_seconds: float = 30.0
    """From the connection to the end of the log-in, TLS included."""
    stall_seconds: float = 600.0
    """A client that takes nothing of its answer for so long is closed, and its query ended."""
    statement_seconds: float = 600.0
    """The longest that a statement may run: `statement_timeout` can only be less; 0: no limit."""
    cancel_seconds: float = 60.0
    """How long a cancelled query may take to end before its connection is given up."""
    message_bytes_max: int = 16 * MIB
    """One message of a client that is logged in."""
    login_message_bytes_max: int = 8 * KIB
    """One message of a client that is not."""
    statements_max: int = 1_000
    """Prepared statements of one connection."""
    statement_bytes_max: int = 32 * MIB
    """Texts and values of all prepared statements, portals and cursors of one connection."""
    statement_bytes_total_max: int = 64 * MIB
    """The same of all connections together."""
    portals_max: int = 64
    """Open portals and cursors of one connection."""
    chunk_bytes: int = 256 * KIB
    """About so much of a result is encoded and sent at a time."""
    catalog_rows_max: int = 200_000
    """Rows of an answer about the catalogue."""
    catalog_bytes_max: int = 64 * MIB
    """Its text and bytes, which a question can make longer than anything in the catalogue."""
    catalog_seconds: float = 5.0
    """How long the list of relations is kept before the engine is asked again."""


@dataclass(frozen=True, kw_only=True)
class Tls:
    """The server's certificate; `required` refuses clients that come without TLS."""

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
                f"the certificate {self.certificate} with key {self.key} cannot be used "
                f"({error}): give a PEM certificate and its unencrypted key"
            ) from error
        return context


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """Where to listen, for whom, and within which limits."""

    host: str = "127.0.0.1"
    port: int = 5432
    users: Mapping[str, str] = field(default_factory=dict)
    """Name to password, or to a verifier as PostgreSQL stores it (SCRAM-SHA-256$…)."""
    trust: bool = False
    """Let everybody in without a password. Only for an address that nobody else reaches."""
    tls: Tls | None = None
    limits: Limits = Limits()
    database: str = "neve"
    """The one database there is, as clients are told; they may ask for any name."""

    def __post_init__(self) -> None:
        if not self.users and not self.trust:
            raise InvalidError(
                "no users were given, so nobody could log in: name at least one with a password, "
                "or say that passwords are not asked for (trust)"
            )
