"""One check of the store, shared by all callers that wait for it.

A result is valid only for calls that were made before the check began. So a call during a check
waits for the next one, together with all others made meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from neve import runtime


class SharedCheck:
    """Runs at most one check at a time; one more waits, shared by all calls made meanwhile."""

    def __init__(self, check: Callable[[], Awaitable[bool]]) -> None:
        self._check = check
        # The callers that wait raise the failure of a check.
        self._tasks = runtime.Tasks(on_failure=lambda _: None)
        self._running: asyncio.Task[bool] | None = None
        self._next: asyncio.Task[bool] | None = None

    async def run(self) -> bool:
        """Return the result of a check that begins after this call; False if closed before."""
        if self._next is None:
            self._next = self._tasks.start(self._run_after(self._running))
        task = self._next
        await asyncio.wait([task])
        return False if task.cancelled() else task.result()

    async def _run_after(self, previous: asyncio.Task[bool] | None) -> bool:
        if previous is not None and not previous.done():
            await asyncio.wait([previous])
        self._running, self._next = self._next, None
        return await self._check()

    async def close(self) -> None:
        await self._tasks.close()
