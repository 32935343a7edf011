"""The gate: one cap on the store calls that this process has in flight.

Calls beyond the cap wait in the order they came. A waiter that is cancelled leaves the queue, or
passes its slot on if it had just been handed one, so no slot is ever lost. `prefetching()` is the
same store for work that must not delay others: its calls start only if a slot is free at that
moment and nobody waits, and otherwise raise NoFreeSlotError without touching the store.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from neve.errors import FullError
from neve.store.port import Store
from neve.store.wrapper import Call, Wrapper

T = TypeVar("T")


class NoFreeSlotError(FullError):
    """A call that may not wait found no free slot. Nothing was sent: come back later, or wait."""


class Gate(Wrapper):
    """At most `concurrency_max` calls of `inner` at once; 0 lets all through and only counts."""

    def __init__(self, inner: Store, concurrency_max: int) -> None:
        super().__init__(inner)
        self.concurrency_max = concurrency_max
        self.in_flight = 0
        self.peak = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """Calls in the queue at this moment."""
        return len(self._waiters)

    def prefetching(self) -> Store:
        """The same store, for calls that would rather fail than wait or make others wait."""
        return _FreeSlotsOnly(self)

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002
        await self._enter()
        try:
            return await work()
        finally:
            self.leave()

    def try_enter(self) -> bool:
        """Take a slot if one is free and nobody waits; the taker calls `leave`."""
        if self.concurrency_max and (self._waiters or self.in_flight >= self.concurrency_max):
            return False
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        return True

    async def _enter(self) -> None:
        if self.try_enter():
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiters.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # the slot came in the same moment as the cancellation
            elif turn in self._waiters:  # unless who left in the same moment passed it over
                self._waiters.remove(turn)
            raise

    def leave(self) -> None:
        """Give the slot to the first who waits, or free it."""
        while self._waiters:
            turn = self._waiters.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.in_flight -= 1


class _FreeSlotsOnly(Wrapper):
    def __init__(self, gate: Gate) -> None:
        super().__init__(gate.inner)
        self._gate = gate

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        if not self._gate.try_enter():
            raise NoFreeSlotError(
                f"{call.operation} of {call.key}: all {self._gate.concurrency_max} store slots "
                "are taken or waited for"
            )
        try:
            return await work()
        finally:
            self._gate.leave()

    async def close(self) -> None:
        """The gate owns the store and closes it."""
