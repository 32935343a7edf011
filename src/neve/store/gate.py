"""The gate: a limit on concurrent store calls of this process.

Calls beyond the limit wait in order of arrival. A cancelled call leaves the queue, or passes on the
slot that it has just received, so that no slot is lost. `prefetching()` returns the same store for
work that must not delay other calls: its calls start only if a slot is free and no call waits;
otherwise they raise NoFreeSlotError without a request to the store.
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
    """There was no free slot for a prefetching call. Nothing was sent; try again later."""


class Gate(Wrapper):
    """Limits concurrent calls of `inner` to `concurrency_max`; 0 means no limit."""

    def __init__(self, inner: Store, concurrency_max: int) -> None:
        super().__init__(inner)
        self.concurrency_max = concurrency_max
        self.in_flight = 0
        self.peak = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """The number of calls in the queue."""
        return len(self._waiters)

    def prefetching(self) -> Store:
        """Return the same store for calls that fail instead of waiting for a slot."""
        return _FreeSlotsOnly(self)

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002
        await self._enter()
        try:
            return await work()
        finally:
            self.leave()

    def try_enter(self) -> bool:
        """Take a slot if one is free and no call waits. The caller must call `leave`."""
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
                self.leave()  # the slot was granted in the same moment as the cancellation
            elif turn in self._waiters:  # `leave` may have removed it already
                self._waiters.remove(turn)
            raise

    def leave(self) -> None:
        """Pass the slot to the first waiting call, or free it."""
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
                "are in use"
            )
        try:
            return await work()
        finally:
            self._gate.leave()

    async def close(self) -> None:
        """Do nothing: the gate owns the store and closes it."""
