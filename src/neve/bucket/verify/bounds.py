"""Limits of one verify run: how many objects it reads at once, and their bytes in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

from neve import runtime
from neve.settings import MIB

T = TypeVar("T")

# Eight concurrent objects fill an ordinary network; four default-size segments fill a CPU core.
OBJECTS_AT_ONCE = 8
BYTES_AT_ONCE = 256 * MIB


class Bounds:
    """Limits the number of objects in memory, and their bytes.

    An object larger than the limit in bytes is read alone.
    """

    def __init__(
        self, objects_at_once: int = OBJECTS_AT_ONCE, bytes_at_once: int = BYTES_AT_ONCE
    ) -> None:
        self.objects_at_once = objects_at_once
        self.budget = runtime.MemoryShare("verify", bytes_at_once)
        self._objects = asyncio.Semaphore(objects_at_once)

    @contextlib.asynccontextmanager
    async def holding(self, size: int) -> AsyncIterator[None]:
        """Wait until an object of this size fits, and reserve its bytes for the `async with`."""
        async with self._objects, self.budget.taken(size):
            yield

    async def each(self, items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
        """Run `work` for each item, for at most `objects_at_once` items at a time."""
        source = iter(items)

        async def take() -> None:
            for item in source:
                await work(item)

        await runtime.gather(*(take() for _ in range(self.objects_at_once)))
