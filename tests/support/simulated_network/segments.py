"""What the hosts of a simulated network send each other.

Sequence numbers count a connection's bytes from 0; the end of the stream counts as one more.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple
from zlib import crc32

HEADER_BYTES = 40


class Address(NamedTuple):
    """The name of a socket."""

    host: str
    port: int


class Kind(Enum):
    """What a segment is for."""

    CONNECT = "connect"
    ACCEPT = "accept"
    DATA = "data"
    """Bytes, an acknowledgement, the end of the stream, or a question for an acknowledgement."""
    RESET = "reset"


class Segment(NamedTuple):
    """A packet. `connection` identifies the connection, as initial sequence numbers do."""

    kind: Kind
    source: Address
    target: Address
    connection: int
    sequence: int = 0
    data: bytes = b""
    is_last: bool = False
    is_probe: bool = False
    acknowledged: int = 0
    limit: int = 0
    """The sender takes bytes up to this sequence number."""

    @property
    def wire_bytes(self) -> int:
        """How much of a link's bandwidth it takes."""
        return HEADER_BYTES + len(self.data)

    def __str__(self) -> str:
        """One line for a trace, by which two runs are compared: contents included."""
        content = f" {len(self.data)} bytes {crc32(self.data):08x}" if self.data else ""
        flags = " last" * self.is_last + " probe" * self.is_probe
        return (
            f"{self.source.host}:{self.source.port} > {self.target.host}:{self.target.port} "
            f"{self.kind.value} #{self.connection} at {self.sequence}{content}{flags} "
            f"acknowledges {self.acknowledged} up to {self.limit}"
        )
