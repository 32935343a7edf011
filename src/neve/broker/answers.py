"""Answers of one connection, in the order of its requests.

A request takes its place when it is read; whatever finishes first, answers leave in that order.
"""

from __future__ import annotations

from typing import Protocol

from neve.store.port import Buffer


class Answer(Protocol):
    """A place in the queue. `ready` says that `frame` may be called, once.

    `owed` says that a broker that stops does not end before it is given.
    """

    @property
    def owed(self) -> bool: ...

    @property
    def ready(self) -> bool: ...

    @property
    def held_bytes(self) -> int: ...

    def frame(self) -> list[Buffer]: ...


class PlainAnswer:
    """The answer of a handler: there at once, or when it is completed."""

    __slots__ = ("_parts", "held_bytes", "owed")

    def __init__(self, parts: list[Buffer] | None = None, *, owed: bool = True) -> None:
        self._parts: list[Buffer] = []
        self.held_bytes = 0
        self.owed = owed
        if parts is not None:
            self.complete(parts)

    def complete(self, parts: list[Buffer]) -> None:
        """This whole frame is the answer."""
        self._parts = parts
        self.held_bytes = sum(map(len, parts))

    @property
    def ready(self) -> bool:
        return bool(self._parts)

    def frame(self) -> list[Buffer]:
        return self._parts
