"""Changes of the cluster, each with a limit on how long its client waits.

A change that takes longer goes on in the background. Its client gets TimedOutError, which means
that the change may still take effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from neve import runtime
from neve.broker.errors import TimedOutError
from neve.errors import NeveError

T = TypeVar("T")

WAIT_MS_LEAST = 5_000
"""A client with a shorter time-out, even 0, still gets a result unless the store is slow."""
CHANGES_MAX = 1_000
"""Changes in progress at once. While a store hangs, clients that gave up send further ones."""


class Changes:
    """The changes of one request, which wait for at most `timeout_ms` in total.

    `tasks` runs the changes of all requests, and belongs to the broker.
    """

    def __init__(self, tasks: runtime.Tasks, timeout_ms: int = 0) -> None:
        self._tasks = tasks
        self._ends_at = runtime.monotonic() + max(timeout_ms, WAIT_MS_LEAST) / 1000

    async def make(self, change: Callable[[], Awaitable[T]]) -> T:
        """Make a change, and return its result or raise its error.

        Raises TimedOutError if the time is up, or if CHANGES_MAX changes are in progress.
        """
        left = self._ends_at - runtime.monotonic()
        if left <= 0 or len(self._tasks) >= CHANGES_MAX:
            raise TimedOutError("the store keeps other changes waiting: try again")
        task = self._tasks.start(_outcome(change()))
        try:
            async with runtime.deadline(left):
                outcome = await asyncio.shield(task)
        except TimeoutError:
            self._ends_at = 0.0  # a timer may fire a moment early: the time is up all the same
            raise TimedOutError("the store takes too long: the change may still happen") from None
        if isinstance(outcome, NeveError):
            raise outcome
        return outcome


async def _outcome(change: Awaitable[T]) -> T | NeveError:
    """Return the error of a change instead of raising it: its client may have given up."""
    try:
        return await change
    except NeveError as error:
        return error
