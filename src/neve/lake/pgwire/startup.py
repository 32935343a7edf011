"""The start of a connection: encryption, cancel requests, parameters and authentication."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from neve.lake.pgwire import wire
from neve.lake.pgwire.client_limits import LoginThrottle
from neve.lake.pgwire.options import Limits
from neve.lake.pgwire.scram import Exchange, Passwords
from neve.lake.pgwire.sqlstate import (
    FEATURE_NOT_SUPPORTED,
    INVALID_AUTHORIZATION,
    PROTOCOL_VIOLATION,
    TOO_MANY_CONNECTIONS,
    SqlError,
    fatal,
)
from neve.lake.pgwire.transport import ClientTransport, Disconnected
from neve.serving import logs

AUTHENTICATION_OK, SASL, SASL_CONTINUE, SASL_FINAL = 0, 10, 11, 12
_ENCRYPTION_REQUESTS_MAX = 4
log = logging.getLogger("neve.sql")


@dataclass(frozen=True)
class Security:
    """Authentication and TLS of a server. Without passwords every user is accepted."""

    passwords: Passwords | None
    tls: ssl.SSLContext | None
    certificate: str | None
    tls_required: bool
    throttle: LoginThrottle = field(default_factory=LoginThrottle)


class Startup:
    """The start of one connection. `on_login` may raise to reject an authenticated client."""

    def __init__(
        self,
        transport: ClientTransport,
        security: Security,
        limits: Limits,
        on_cancel: Callable[[int, int], None],
        on_login: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._address = transport.address()
        self._security = security
        self._limits = limits
        self._on_cancel = on_cancel
        self.on_login = on_login

    async def negotiate(self) -> dict[str, str]:
        """Return the startup parameters. Raises Disconnected after a cancel request."""
        for _ in range(_ENCRYPTION_REQUESTS_MAX):
            header = await self._transport.read(wire.LENGTH_BYTES)
            size = wire.startup_length(header, self._limits.login_message_bytes_max)
            fields = wire.Fields(await self._transport.read(size))
            code = fields.int32()
            if code == wire.SSL_REQUEST:
                await self._encrypt()
            elif code == wire.GSSENC_REQUEST:
                self._transport.write(b"N")
            elif code == wire.CANCEL_REQUEST:
                self._on_cancel(fields.uint32(), fields.uint32())
                raise Disconnected
            else:
                return self._parameters(code, fields.rest())
        raise wire.protocol_violation("too many requests for encryption")

    async def _encrypt(self) -> None:
        if self._security.tls is None or self._transport.secure:
            self._transport.write(b"N")
            return
        self._transport.write(b"S")
        await self._transport.start_tls(self._security.tls)

    def _parameters(self, version: int, body: bytes) -> dict[str, str]:
        major, minor = version >> 16, version & 0xFFFF
        if major != 3:
            raise fatal(
                FEATURE_NOT_SUPPORTED,
                f"unsupported frontend protocol {major}.{minor}: server supports 3.0",
            )
        found = wire.parse_startup(body)
        if self._security.tls_required and not self._transport.secure:
            raise fatal(
                INVALID_AUTHORIZATION,
                "this server requires TLS: connect with sslmode=require",
            )
        if not found.get("user"):
            raise fatal(INVALID_AUTHORIZATION, "no user name was given in the startup packet")
        if found.get("replication", "false").lower() not in ("false", "off", "no", "0"):
            raise fatal(FEATURE_NOT_SUPPORTED, "replication connections are not supported")
        unknown = [name for name in found if name.startswith("_pq_.")]
        if minor or unknown:
            self._transport.write(wire.negotiate_version(unknown))
        return {name: value for name, value in found.items() if name not in unknown}

    async def authenticate(self, user: str) -> None:
        """Authenticate a user, after a delay if the user or address failed before."""
        address = self._address
        if self._security.passwords is not None:
            throttle = self._security.throttle
            delay = throttle.delay_seconds(user, address)
            if delay > self._limits.login_seconds:
                logs.event(log, logging.WARNING, "log-in refused", user=user, address=address)
                raise fatal(
                    TOO_MANY_CONNECTIONS,
                    "too many failed log-ins of this user or address: try again later",
                )
            if delay:
                await self._transport.sleep(delay)
            try:
                await self._exchange(Exchange(self._security.passwords, user, self._certificate))
            except SqlError:
                count = throttle.failed(user, address)
                about = {"user": user, "address": address, "failures": count}
                logs.event(log, logging.WARNING, "log-in failed", **about)
                raise
            throttle.succeeded(user, address)
        logs.event(log, logging.INFO, "log-in", user=user, address=address)
        self._transport.write(wire.authentication(AUTHENTICATION_OK))

    @property
    def _certificate(self) -> str | None:
        return self._security.certificate if self._transport.secure else None

    async def _exchange(self, exchange: Exchange) -> None:
        offer = b"".join(wire.cstring(name) for name in exchange.mechanisms) + b"\0"
        self._transport.write(wire.authentication(SASL, offer))
        mechanism, first = wire.parse_sasl_initial(await self._response())
        self._transport.write(wire.authentication(SASL_CONTINUE, exchange.first(mechanism, first)))
        final = exchange.final(await self._response())
        self._transport.write(wire.authentication(SASL_FINAL, final))

    async def _response(self) -> bytes:
        header = await self._transport.read(wire.HEADER_BYTES)
        kind, size = wire.body_length(header, self._limits.login_message_bytes_max)
        if kind == b"X":
            raise Disconnected
        if kind != b"p":
            raise fatal(PROTOCOL_VIOLATION, f"expected a password, got message type {kind[0]}")
        return await self._transport.read(size)
