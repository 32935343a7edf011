"""The client of a request, and the version in which it sent it."""

from __future__ import annotations

from typing import NamedTuple

from neve.broker.access import ANONYMOUS, Principal
from neve.broker.peer_channel import PeerChannel

PLAINTEXT = "PLAINTEXT"
"""The name of the listener that neither encrypts nor authenticates."""


class Client(NamedTuple):
    """The other end of a connection, and the identity under which it acts."""

    host: str
    port: int
    listener: str = PLAINTEXT
    principal: Principal = ANONYMOUS

    @property
    def peer(self) -> str:
        return f"{self.host}:{self.port}"


class Context(NamedTuple):
    """The version of a request, and the client that sent it."""

    api_version: int
    client_id: str | None
    client: Client
    client_keeps_up: bool = False
    """Whether the client has read its last large response, and all before it."""
    peer: PeerChannel | None = None
    """The connection as another broker uses it. Set for the messages of brokers alone."""
