"""Passwords: SCRAM-SHA-256, also bound to the TLS channel.

A password that is given in the clear is turned into a verifier at the start and not kept. A user
who does not exist goes through the same exchange, with a salt that stays the same from one try to
the next, so that neither time nor answers tell who exists.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any

from scramp import ScramException, ScramMechanism

from neve import runtime
from neve.errors import InvalidError
from neve.lake.pgwire.sqlstate import INVALID_PASSWORD, SqlError, fatal
from neve.lake.pgwire.wire import violation

PLAIN = "SCRAM-SHA-256"
PLUS = "SCRAM-SHA-256-PLUS"
_BINDING = "tls-server-end-point"
_ITERATIONS = 4096
_VERIFIER = re.compile(r"SCRAM-SHA-256\$(\d{1,9}):([^$:]+)\$([^$:]+):([^$:]+)")

Verifier = tuple[bytes, bytes, bytes, int]
"""Salt, stored key, server key, iterations."""


def parse_verifier(user: str, text: str) -> Verifier:
    """A verifier as PostgreSQL keeps it in pg_authid."""
    match = _VERIFIER.fullmatch(text)
    try:
        if match is None:
            raise ValueError("not of the form SCRAM-SHA-256$iterations:salt$stored:server")
        iterations = int(match[1])
        salt, stored, server = (base64.b64decode(match[at], validate=True) for at in (2, 3, 4))
        if len(stored) != 32 or len(server) != 32 or iterations < _ITERATIONS or len(salt) < 12:
            raise ValueError("its keys are not 32 bytes, or its salt or iterations are too few")
    except ValueError as error:
        raise InvalidError(f"the stored password of {user} cannot be read: {error}") from error
    return salt, stored, server, iterations


def make_verifier(password: str) -> Verifier:
    salt = runtime.token(16)
    made: Verifier = ScramMechanism(PLAIN).make_auth_info(password, _ITERATIONS, salt)
    return made


class Passwords:
    """Who may log in."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._verifiers: dict[str, Verifier] = {}
        for user, given in users.items():
            if not user or not given:
                raise InvalidError(f"user {user!r} has no password: give every user one")
            is_stored = given.startswith(f"{PLAIN}$")
            self._verifiers[user] = parse_verifier(user, given) if is_stored else _made(user, given)
        self._pretence = runtime.token(32)

    def verifier(self, user: str) -> Verifier:
        """The user's, or one that no password fits."""
        pretended = self._pretended(user)
        return self._verifiers.get(user, pretended)

    def _pretended(self, user: str) -> Verifier:
        def derived(what: bytes) -> bytes:
            return hmac.digest(self._pretence, what + user.encode(), hashlib.sha256)

        return derived(b"salt")[:16], derived(b"stored"), derived(b"server"), _ITERATIONS


def _made(user: str, password: str) -> Verifier:
    try:
        return make_verifier(password)
    except ScramException as error:
        raise InvalidError(f"the password of {user} cannot be used: {error}") from error


class Exchange:
    """One log-in: the client's first message, then its proof."""

    def __init__(self, passwords: Passwords, user: str, certificate: str | None) -> None:
        self._user = user
        self._verifier = passwords.verifier(user)
        self._certificate = certificate
        self._server: Any = None

    @property
    def mechanisms(self) -> list[str]:
        return [PLAIN] if self._certificate is None else [PLUS, PLAIN]

    def first(self, mechanism: str, data: bytes) -> bytes:
        if mechanism not in self.mechanisms:
            raise violation(f"the log-in mechanism {mechanism[:40]} was not offered")
        binding = None
        if mechanism == PLUS:
            binding = (_BINDING, self._certificate)
        elif self._certificate is not None and data[:2] == b"y,":
            # It says that we offered no binding, and we did: somebody sits in between.
            raise violation("the offer of channel binding was tampered with on the way")
        try:
            self._server = ScramMechanism(mechanism).make_server(
                lambda _: self._verifier, binding, runtime.token(18).hex()
            )
            self._set_first(data.decode())
            answer: str = self._server.get_server_first()
        except (ScramException, ValueError) as error:
            raise self._refused() from error
        return answer.encode()

    def _set_first(self, text: str) -> None:
        """libpq leaves the name empty, as PostgreSQL has it from the startup packet.

        scramp refuses that. It is given a name to read, and the text as it was sent to sign.
        """
        header, name, bare = text.partition(",n=")
        if name and bare.startswith(","):
            self._server.set_client_first(f"{header},n=*{bare}")
            self._server.client_first_bare = f"n={bare}"
        else:
            self._server.set_client_first(text)

    def final(self, data: bytes) -> bytes:
        try:
            self._server.set_client_final(data.decode())
            answer: str = self._server.get_server_final()
        except (ScramException, ValueError) as error:
            raise self._refused() from error
        return answer.encode()

    def _refused(self) -> SqlError:
        return fatal(INVALID_PASSWORD, f'password authentication failed for user "{self._user}"')
