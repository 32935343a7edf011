"""Connections that wait for room to receive a large request into.

The smallest request is admitted first: it is over soonest. One that has waited for
`OVERDUE_SECONDS` is admitted after it, and no other before that: large ones get their turn. Those
that have room must be worth the wait of the others (`minimum_rate`): the longer anyone waits, the
faster they have to send, and one that is slower loses its connection. So each waits for seconds,
however slowly others send.
"""

from __future__ import annotations

import heapq
import itertools
from typing import NamedTuple, Protocol

from neve import runtime
from neve.broker.framing import Scratch

OVERDUE_SECONDS = 5.0
RATE_BYTES_PER_SECOND = 256 * 1024
"""The least rate of a large request while others wait for its room. It doubles with every
second that the first of them waits, and is 0 while no request waits."""
DOUBLINGS_MAX = 8
_GONE_MAX = 100


class Waiter(Protocol):
    """A connection whose next request needs room."""

    def buffer_again(self) -> None: ...


class _Wanted(NamedTuple):
    length: int
    since: float
    number: int


class ReceiveQueue:
    """Who waits, for how much and since when, the oldest first."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._waiting: dict[Waiter, _Wanted] = {}
        # The smallest first; also of those that wait no more, until they come to the front.
        self._by_length: list[tuple[int, int, Waiter]] = []
        self._numbers = itertools.count()
        self._was_overdue = False  # the one that was admitted last

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, connection: Waiter, length: int) -> None:
        """Have its `buffer_again` called when there is room for a request of this length."""
        wanted = _Wanted(length, runtime.monotonic(), next(self._numbers))
        self._waiting[connection] = wanted
        heapq.heappush(self._by_length, (length, wanted.number, connection))
        if len(self._by_length) > 2 * len(self._waiting) + _GONE_MAX:
            self._by_length = [
                (row.length, row.number, each) for each, row in self._waiting.items()
            ]
            heapq.heapify(self._by_length)

    def forget(self, connection: Waiter) -> None:
        self._waiting.pop(connection, None)

    def minimum_rate(self, now: float) -> float:
        """How many bytes a second each request that has room must bring; 0 while none waits."""
        if not self._waiting:
            return 0.0
        waited_seconds = int(now - next(iter(self._waiting.values())).since)
        return float(RATE_BYTES_PER_SECOND << min(DOUBLINGS_MAX, waited_seconds))

    def hand_out(self) -> None:
        """Admit as many as there is room for."""
        now = runtime.monotonic()
        self._scratch.held_back = False
        while self._waiting:
            chosen, wanted = next(iter(self._waiting.items()))
            is_overdue = now - wanted.since > OVERDUE_SECONDS and not self._was_overdue
            if not is_overdue:
                chosen, wanted = self._smallest()
            if not self._scratch.has_room(wanted.length):
                self._scratch.held_back = is_overdue
                return
            del self._waiting[chosen]
            self._was_overdue = is_overdue
            chosen.buffer_again()

    def _smallest(self) -> tuple[Waiter, _Wanted]:
        while True:
            _, number, connection = self._by_length[0]
            wanted = self._waiting.get(connection)
            if wanted is not None and wanted.number == number:
                return connection, wanted
            heapq.heappop(self._by_length)
