"""One look at the store, shared by all who wait for it.

An answer is good only for questions that came before the look began. So a question that comes
while a look is under way waits for the next one, together with all others that come meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from neve import runtime


class SharedLook:
    """At most one look runs and one waits, however many ask."""

    def __init__(self, look: Callable[[], Awaitable[bool]]) -> None:
        self._look = look
        # A look that failed is told to those who asked, and to nobody else.
        self._tasks = runtime.Tasks(on_failure=lambda _: None)
        self._running: asyncio.Task[bool] | None = None
        self._next: asyncio.Task[bool] | None = None

    async def ask(self) -> bool:
        """What a look that begins now finds; False where it was closed before it could tell."""
        if self._next is None:
            self._next = self._tasks.start(self._look_after(self._running))
        answer = self._next
        await asyncio.wait([answer])
        return False if answer.cancelled() else answer.result()

    async def _look_after(self, previous: asyncio.Task[bool] | None) -> bool:
        if previous is not None and not previous.done():
            await asyncio.wait([previous])
        self._running, self._next = self._next, None
        return await self._look()

    async def close(self) -> None:
        await self._tasks.close()
