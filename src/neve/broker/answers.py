"""Answers of one connection, in the order of its requests.

A request takes its place when it is read; whatever finishes first, answers leave in that order.
"""

from __future__ import annotations

from typing import Protocol

from neve.store.port import Buffer

# An answer up to this size is not worth counting among those that clients have yet to take.
SMALL_BYTES = 64 * 1024


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
        size = sum(map(len, parts))
        self.held_bytes = size if size > SMALL_BYTES else 0

    @property
    def ready(self) -> bool:
        return bool(self._parts)

    def frame(self) -> list[Buffer]:
        return self._parts


# Of the bound. An answer may lie in a piece some times its size, which it keeps in memory.
PILE_SHARE = 8


class Unsent:
    """Bytes of large answers that are made, or being made, and that clients have yet to take.

    Past the bound a fetch still gets one batch, so that everybody goes on, and no more.
    """

    __slots__ = ("bytes_held", "bytes_max", "bytes_reserved")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self.bytes_reserved = 0  # of those held: for answers that are being read from the store

    @property
    def room_bytes(self) -> int:
        return max(0, self.bytes_max - self.bytes_held)

    @property
    def is_piling_up(self) -> bool:
        """Whether clients are slow enough that what their answers lie in matters too."""
        return self.bytes_held - self.bytes_reserved > self.bytes_max // PILE_SHARE

    def reserve(self, count: int) -> None:
        """Hold bytes for an answer that is being read; the same negative count lets go of them."""
        self.bytes_held += count
        self.bytes_reserved += count
