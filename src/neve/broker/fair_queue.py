"""Share the event loop's time fairly among client connections.

In each round of the event loop, all clients together are served for at most `ROUND_SECONDS`, and
one connection for at most `TURN_SECONDS`. A step of a request that has begun is always finished. A
connection whose time is up, or that finds no time left, waits for a later round. So health checks,
commits and other clients run after one round at the latest, whatever clients send.

Waiting connections are in one of two queues. Light connections, whose last turns were short, are
served first: many connections with long requests do not delay those with short ones. One turn of
each round is reserved for the heavy connections.

A connection whose request took longer than a whole round is slow. It pauses for as long as the
request took, and slow connections are served one at a time, so they get at most half of the event
loop's time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Generator
from typing import Generic, Protocol, TypeVar

from neve import runtime

T = TypeVar("T")

ROUND_SECONDS = 0.020
TURN_SECONDS = 0.005

WAITING_BYTES_MAX = 2 * 1024 * 1024
"""Bytes that all waiting connections may receive, divided among them: the more connections wait,
the less is read from each at once."""
RECEIVE_BYTES_MIN = 4 * 1024

LIGHT_SECONDS = 0.001
"""A connection is light if its last turns took at most this long on average."""
_AVERAGED_TURNS = 4
TASKS_MAX = int(ROUND_SECONDS / TURN_SECONDS)
"""Tasks that are resumed in one round. Each may take up a whole turn in the next."""


class Usage:
    """The average time of a connection's last turns. A new connection counts as heavy."""

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds = 2 * LIGHT_SECONDS

    def add(self, seconds: float) -> None:
        """Add a turn, or one step of a task that serves the connection."""
        self._seconds += (seconds - self._seconds) / _AVERAGED_TURNS

    @property
    def is_light(self) -> bool:
        return self._seconds <= LIGHT_SECONDS


class Served(Protocol):
    """A connection, or a task that serves one."""

    usage: Usage

    def take_turn(self, ends_at: float) -> None: ...


class FairQueue:
    """The connections of one server that wait for their turn."""

    def __init__(self) -> None:
        self._light: deque[Served] = deque()
        self._heavy: deque[Served] = deque()
        self._slow: deque[Served] = deque()
        self._pause: asyncio.TimerHandle | None = None
        self._round_ends_at: float | None = None  # None: no client was served in this round
        self.resumed_tasks = 0  # in this round

    def begin(self, now: float) -> float | None:
        """Begin a turn. Returns the time at which it ends, or None if the round is over."""
        if self._round_ends_at is None:
            self._round_ends_at = now + ROUND_SECONDS
            asyncio.get_running_loop().call_soon(self._next_round)
        return now + TURN_SECONDS if now < self._round_ends_at else None

    def wait(self, connection: Served, late_seconds: float = 0.0) -> None:
        """Call `connection.take_turn` in a later round, after the connections that wait already.

        `late_seconds` is how long its last request ran past the end of its turn.
        """
        if late_seconds > ROUND_SECONDS:
            self._slow.append(connection)
            self._pause_slow(late_seconds)
        else:
            (self._light if connection.usage.is_light else self._heavy).append(connection)
            self.begin(runtime.monotonic())  # schedules the next round

    async def turn(self, connection: Served) -> None:
        """Wait until a task that serves this connection may take its next step."""
        waiter = _Waiter(self, connection.usage)
        self.wait(waiter)
        await waiter.woken

    def wait_later(self, connection: Served, seconds: float) -> None:
        """Let the connection wait for its turn after `seconds`."""
        asyncio.get_running_loop().call_later(seconds, self.wait, connection)

    @property
    def receive_bytes_max(self) -> int:
        """How much to receive from one connection at once, given how many connections wait."""
        waiting = len(self._light) + len(self._heavy)
        return max(RECEIVE_BYTES_MIN, WAITING_BYTES_MAX // (1 + waiting))

    def _next_round(self) -> None:
        self._round_ends_at = None
        self.resumed_tasks = 0
        # Connections that wait again during this round are served in the next.
        light, heavy = len(self._light), len(self._heavy)
        self._serve(self._heavy, min(heavy, 1))
        self._serve(self._light, light)
        self._serve(self._heavy, heavy - 1)

    def _serve(self, waiting: deque[Served], count: int) -> None:
        for _ in range(count):
            ends_at = self.begin(runtime.monotonic())
            if ends_at is None or self.resumed_tasks >= TASKS_MAX:
                return
            waiting.popleft().take_turn(ends_at)

    def _pause_slow(self, seconds: float) -> None:
        if self._pause is not None:
            self._pause.cancel()  # another slow request ended during the pause
        self._pause = asyncio.get_running_loop().call_later(seconds, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        ends_at = self.begin(runtime.monotonic())
        if ends_at is not None:
            self._slow.popleft().take_turn(ends_at)
        if self._slow and self._pause is None:
            self._pause_slow(ROUND_SECONDS)


class _Waiter:
    """A task that waits for its turn."""

    __slots__ = ("_queue", "usage", "woken")

    def __init__(self, queue: FairQueue, usage: Usage) -> None:
        self._queue = queue
        self.usage = usage
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take_turn(self, ends_at: float) -> None:  # noqa: ARG002
        if not self.woken.done():
            self._queue.resumed_tasks += 1
            self.woken.set_result(None)


class Paced(Generic[T]):
    """Awaits a coroutine that serves a connection, each step of it in a turn of the connection.

    `seconds` is the time that the steps have taken on the event loop.
    """

    def __init__(self, work: Coroutine[object, None, T], turns: FairQueue, client: Served) -> None:
        self.seconds = 0.0
        self._work = work
        self._turns = turns
        self._client = client

    def __await__(self) -> Generator[object, None, T]:
        failure: BaseException | None = None
        while True:
            began = runtime.monotonic()
            if self._turns.begin(began) is None:
                try:
                    yield from self._turns.turn(self._client).__await__()
                except asyncio.CancelledError as error:
                    failure = error
                began = runtime.monotonic()
            try:
                waits_for = self._work.send(None) if failure is None else self._work.throw(failure)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                seconds = runtime.monotonic() - began
                self.seconds += seconds
                self._client.usage.add(seconds)
            try:
                yield waits_for
                failure = None
            except BaseException as error:
                failure = error
