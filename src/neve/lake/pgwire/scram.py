"""SCRAM-SHA-256 authentication, with and without channel binding.

A plain-text password is converted to a verifier at the start and not kept. An unknown user goes
through the same exchange, with a salt that is the same for every attempt, so that neither timing
nor responses reveal which users exist.
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
from neve.lake.pgwire.wire import protocol_violation

SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_256_PLUS = "SCRAM-SHA-256-PLUS"
_BINDING = "tls-server-end-point"
_ITERATIONS = 4096
_VERIFIER = re.compile(r"SCRAM-SHA-256\$(\d{1,9}):([^$:]+)\$([^$:]+):([^$:]+)")

Verifier = tuple[bytes, bytes, bytes, int]
"""Salt, stored key, server key, iterations."""


def parse_verifier(user: str, text: str) -> Verifier:
    """Parse a verifier in the format of PostgreSQL's pg_authid."""
    match = _VERIFIER.fullmatch(text)
    try:
        if match is None:
            raise ValueError("expected the form SCRAM-SHA-256$iterations:salt$stored:server")
        iterations = int(match[1])
        salt, stored, server = (base64.b64decode(match[at], validate=True) for at in (2, 3, 4))
        if len(stored) != 32 or len(server) != 32 or iterations < _ITERATIONS or len(salt) < 12:
            raise ValueError(
                "keys must have 32 bytes, the salt at least 12, and iterations must be >= "
                f"{_ITERATIONS}"
            )
    except ValueError as error:
        raise InvalidError(f"invalid password verifier of user {user}: {error}") from error
    return salt, stored, server, iterations


def make_verifier(password: str) -> Verifier:
    salt = runtime.token(16)
    made: Verifier = ScramMechanism(SCRAM_SHA_256).make_auth_info(password, _ITERATIONS, salt)
    return made


class Passwords:
    """The users and their verifiers."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._verifiers: dict[str, Verifier] = {}
        for user, given in users.items():
            if not user or not given:
                raise InvalidError(
                    f"user {user!r} has no password: every user needs a name and a password"
                )
            is_verifier = given.startswith(f"{SCRAM_SHA_256}$")
            convert = parse_verifier if is_verifier else _password_verifier
            self._verifiers[user] = convert(user, given)
        self._decoy_key = runtime.token(32)

    def verifier(self, user: str) -> Verifier:
        """Return the user's verifier; for an unknown user one that no password matches."""
        decoy = self._decoy(user)  # also for known users, so that timing does not differ
        return self._verifiers.get(user, decoy)

    def _decoy(self, user: str) -> Verifier:
        def derived(what: bytes) -> bytes:
            return hmac.digest(self._decoy_key, what + user.encode(), hashlib.sha256)

        return derived(b"salt")[:16], derived(b"stored"), derived(b"server"), _ITERATIONS


def _password_verifier(user: str, password: str) -> Verifier:
    try:
        return make_verifier(password)
    except ScramException as error:
        raise InvalidError(f"invalid password of user {user}: {error}") from error


class Exchange:
    """One SCRAM exchange: call `first` with the client's first message, then `final`."""

    def __init__(self, passwords: Passwords, user: str, certificate: str | None) -> None:
        self._user = user
        self._verifier = passwords.verifier(user)
        self._certificate = certificate
        self._server: Any = None

    @property
    def mechanisms(self) -> list[str]:
        return [SCRAM_SHA_256] if self._certificate is None else [SCRAM_SHA_256_PLUS, SCRAM_SHA_256]

    def first(self, mechanism: str, data: bytes) -> bytes:
        if mechanism not in self.mechanisms:
            raise protocol_violation(
                f"the client selected an invalid SASL authentication mechanism: {mechanism[:40]}"
            )
        binding = None
        if mechanism == SCRAM_SHA_256_PLUS:
            binding = (_BINDING, self._certificate)
        elif self._certificate is not None and data[:2] == b"y,":
            # "y" claims that the server did not offer channel binding, but it did.
            raise protocol_violation(
                "SCRAM channel binding negotiation error: the server's offer was altered in transit"
            )
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
        """Pass the client's first message to scramp.

        libpq leaves the user name empty, because the startup packet has it. scramp rejects an empty
        name, so it parses a message with a placeholder, and verifies the original text.
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
