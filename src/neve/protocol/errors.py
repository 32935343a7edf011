"""What can be wrong with bytes from a peer, and with a description of messages."""

from __future__ import annotations

from neve.errors import InvalidError, NeveError


class MalformedError(NeveError):
    """The peer's bytes are no message of the kind and version they claim to be.

    Where the next request begins is no longer certain: answer with an error if the header could
    be read, and close the connection.
    """


class NotationError(InvalidError):
    """A description of messages does not follow the notation. The line is named."""

    def __init__(self, line_number: int, line: str, reason: str) -> None:
        super().__init__(f"line {line_number}, {line.strip()!r}: {reason}")
        self.line_number = line_number
        self.reason = reason
