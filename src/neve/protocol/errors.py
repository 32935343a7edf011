"""Errors of the bytes of a peer, and of the descriptions of messages."""

from __future__ import annotations

from neve.errors import InvalidError, NeveError


class MalformedError(NeveError):
    """The peer's bytes are not a valid message of their API and version.

    The position of the next request is unknown after it, so the connection must be closed.
    """


class NotationError(InvalidError):
    """A description of messages does not follow the notation. Has the line and the reason."""

    def __init__(self, line_number: int, line: str, reason: str) -> None:
        super().__init__(f"line {line_number}, {line.strip()!r}: {reason}")
        self.line_number = line_number
        self.reason = reason
