"""Connections that wait for memory to receive a large request.

The smallest request is admitted first, because it frees its memory soonest. A request that has
waited for `OVERDUE_SECONDS` is admitted before smaller ones, but two overdue requests never follow
each other directly. Requests that are being received must keep up a minimum rate while others wait.
The rate rises with the waiting time, and a client that is slower loses its connection. So a request
waits for seconds at most, however slowly other clients send.
"""

from __future__ import annotations

import heapq
import itertools
from typing import NamedTuple, Protocol

from neve import runtime
from neve.broker.framing import Scratch

OVERDUE_SECONDS = 5.0
RATE_BYTES_PER_SECOND = 256 * 1024
"""The minimum rate of a large request while others wait. It doubles with every second that the
first of them has waited, `DOUBLINGS_MAX` times at most."""
DOUBLINGS_MAX = 8
_STALE_ENTRIES_MAX = 100


class Waiter(Protocol):
    """A connection whose next request needs a receive buffer."""

    def receive_buffer_free(self) -> None: ...


class _Claim(NamedTuple):
    length: int
    since: float
    number: int


class ReceiveQueue:
    """The waiting connections, in the order in which they began to wait."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._waiting: dict[Waiter, _Claim] = {}
        # A heap, the smallest request first. It also has stale entries of connections that no
        # longer wait, until these come to the front.
        self._by_length: list[tuple[int, int, Waiter]] = []
        self._numbers = itertools.count()
        self._admitted_overdue = False  # whether the last admitted request was overdue

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, connection: Waiter, length: int) -> None:
        """Call `connection.receive_buffer_free` when a request of this length may be received."""
        claim = _Claim(length, runtime.monotonic(), next(self._numbers))
        self._waiting[connection] = claim
        heapq.heappush(self._by_length, (length, claim.number, connection))
        if len(self._by_length) > 2 * len(self._waiting) + _STALE_ENTRIES_MAX:
            self._by_length = [
                (each.length, each.number, waiter) for waiter, each in self._waiting.items()
            ]
            heapq.heapify(self._by_length)

    def remove(self, connection: Waiter) -> None:
        """Forget a closed connection."""
        self._waiting.pop(connection, None)

    def minimum_rate(self, now: float) -> float:
        """The bytes per second at which each request must arrive; 0 while no request waits."""
        if not self._waiting:
            return 0.0
        waited_seconds = int(now - next(iter(self._waiting.values())).since)
        return float(RATE_BYTES_PER_SECOND << min(DOUBLINGS_MAX, waited_seconds))

    def admit(self) -> None:
        """Let as many connections receive as there is memory for."""
        now = runtime.monotonic()
        self._scratch.is_reserved = False
        while self._waiting:
            chosen, claim = next(iter(self._waiting.items()))
            is_overdue = now - claim.since > OVERDUE_SECONDS and not self._admitted_overdue
            if not is_overdue:
                chosen, claim = self._smallest()
            if not self._scratch.has_room(claim.length):
                self._scratch.is_reserved = is_overdue
                return
            del self._waiting[chosen]
            self._admitted_overdue = is_overdue
            chosen.receive_buffer_free()

    def _smallest(self) -> tuple[Waiter, _Claim]:
        while True:
            _, number, connection = self._by_length[0]
            claim = self._waiting.get(connection)
            if claim is not None and claim.number == number:
                return connection, claim
            heapq.heappop(self._by_length)
