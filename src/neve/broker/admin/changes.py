"""Changes of the cluster that a client waits for no longer than it said it would.

The change itself goes on. The client gets a time-out, which means that it may still happen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from neve import runtime
from neve.broker.errors import TimedOutError
from neve.errors import NeveError

if TYPE_CHECKING:
    from neve.broker.broker import Broker

T = TypeVar("T")

WAIT_MS_LEAST = 5_000
"""A client with a shorter time-out, even 0, still gets a result unless the store is slow."""
CHANGES_MAX = 1_000
"""Changes under way at once: while a store hangs, clients that gave up come with the next."""


class Changes:
    """The changes that one request asks for, and how long it waits for all of them together."""

    def __init__(self, broker: Broker, timeout_ms: int = 0) -> None:
        self._tasks = broker.changing
        self._ends_at = runtime.monotonic() + max(timeout_ms, WAIT_MS_LEAST) / 1000

    async def make(self, change: Callable[[], Awaitable[T]]) -> T:
        """Make a change. Raises TimedOutError if it takes too long, or the time is up."""
        left = self._ends_at - runtime.monotonic()
        if left <= 0 or len(self._tasks) >= CHANGES_MAX:
            raise TimedOutError("the store keeps other changes waiting: try again")
        task = self._tasks.start(_outcome(change()))
        try:
            async with runtime.deadline(left):
                outcome = await asyncio.shield(task)
        except TimeoutError:
            self._ends_at = 0.0  # a timer may ring a moment early: the time is up all the same
            raise TimedOutError("the store takes too long: it may happen yet") from None
        if isinstance(outcome, NeveError):
            raise outcome
        return outcome


async def _outcome(change: Awaitable[T]) -> T | NeveError:
    """The result of a change, or its error: its client may have given up."""
    try:
        return await change
    except NeveError as error:
        return error
