"""Shares the event loop's time among client connections.

In each round of the loop, clients together are served for at most `ROUND_SECONDS`, and one of them
for at most `TURN_SECONDS` at a time; a request that has begun is finished. A connection whose time
is up, or that found none left, waits in a queue that the next round begins with. So whatever
clients send, everything else that is due (health, commits, other clients) gets its turn after one
round, and of n connections that always have requests each is served once in n * TURN_SECONDS.

A connection with a request that took longer than a whole round pauses for as long as the request
took, and one such connection at a time is served: requests about very much get half of the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Generator
from typing import Any, Protocol

from neve import runtime

ROUND_SECONDS = 0.020
TURN_SECONDS = 0.005

WAITING_BYTES_MAX = 2 * 1024 * 1024
"""What connections that wait for their turn have received, divided among them: the more there are,
the less is read from each at once."""
RECEIVE_BYTES_MIN = 4 * 1024


class Served(Protocol):
    """A connection that may have to wait."""

    def take_turn(self, ends_at: float) -> None: ...


class FairQueue:
    """The connections of one server that wait for their turn."""

    def __init__(self) -> None:
        self._waiting: deque[Served] = deque()
        self._slow: deque[Served] = deque()
        self._pause: asyncio.TimerHandle | None = None
        self._round_ends_at: float | None = None  # None: no client was served in this round

    def begin(self, now: float) -> float | None:
        """Begin to serve a connection. Returns when its turn ends; None if it has to wait."""
        if self._round_ends_at is None:
            self._round_ends_at = now + ROUND_SECONDS
            asyncio.get_running_loop().call_soon(self._next_round)
        return now + TURN_SECONDS if now < self._round_ends_at else None

    def wait(self, connection: Served, late_seconds: float = 0.0) -> None:
        """Have its `take_turn` called in a later round, after those that wait already.

        `late_seconds` is by how much its last request went past the end of its turn.
        """
        if late_seconds > ROUND_SECONDS:
            self._slow.append(connection)
            self._pause_slow(late_seconds)
        else:
            self._waiting.append(connection)
            self.begin(runtime.monotonic())  # there is a next round

    def mute(self, connection: Served, seconds: float) -> None:
        """Have it wait for its turn only after so long."""
        asyncio.get_running_loop().call_later(seconds, self.wait, connection)

    @property
    def receive_bytes_max(self) -> int:
        """How much to receive from one connection at once, given how many wait."""
        return max(RECEIVE_BYTES_MIN, WAITING_BYTES_MAX // (1 + len(self._waiting)))

    def _next_round(self) -> None:
        self._round_ends_at = None
        for _ in range(len(self._waiting)):
            ends_at = self.begin(runtime.monotonic())
            if ends_at is None:
                break
            self._waiting.popleft().take_turn(ends_at)

    def _pause_slow(self, seconds: float) -> None:
        if self._pause is not None:
            self._pause.cancel()  # another long request was being answered meanwhile
        self._pause = asyncio.get_running_loop().call_later(seconds, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        ends_at = self.begin(runtime.monotonic())
        if ends_at is not None:
            self._slow.popleft().take_turn(ends_at)
        if self._slow and self._pause is None:
            self._pause_slow(ROUND_SECONDS)


class Metered:
    """An awaitable around a coroutine that adds up how long its steps occupy the event loop."""

    def __init__(self, work: Coroutine[Any, Any, Any]) -> None:
        self.seconds = 0.0
        self._work = work

    def __await__(self) -> Generator[Any, Any, Any]:
        failure: BaseException | None = None
        while True:
            began = runtime.monotonic()
            try:
                waits_for = self._work.send(None) if failure is None else self._work.throw(failure)
            except StopIteration as end:
                return end.value
            finally:
                self.seconds += runtime.monotonic() - began
            try:
                yield waits_for
                failure = None
            except BaseException as error:
                failure = error
