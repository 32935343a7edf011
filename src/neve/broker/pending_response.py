"""Responses of one connection, in the order of its requests.

A request takes its place in the queue when it is read. Responses leave in that order, whichever is
ready first.
"""

from __future__ import annotations

from typing import Protocol

from neve.store.port import Buffer


class PendingResponse(Protocol):
    """A place in the queue. Once it is `ready`, `frame` may be called, once.

    A broker that stops does not end before it has sent a response that is `owed`.
    """

    @property
    def owed(self) -> bool: ...

    @property
    def ready(self) -> bool: ...

    @property
    def held_bytes(self) -> int: ...

    def frame(self) -> list[Buffer]: ...


class HandlerResponse:
    """The response of a handler: ready at once, or when it is completed."""

    __slots__ = ("_parts", "held_bytes", "owed")

    def __init__(self, parts: list[Buffer] | None = None, *, owed: bool = True) -> None:
        self._parts: list[Buffer] = []
        self.held_bytes = 0
        self.owed = owed
        if parts is not None:
            self.complete(parts)

    def complete(self, parts: list[Buffer]) -> None:
        """Set the whole frame."""
        self._parts = parts
        self.held_bytes = sum(map(len, parts))

    @property
    def ready(self) -> bool:
        return bool(self._parts)

    def frame(self) -> list[Buffer]:
        return self._parts
