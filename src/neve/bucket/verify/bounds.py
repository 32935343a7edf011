"""Bounds of one run of verify: concurrent objects, and the bytes they take in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

from neve import runtime
from neve.settings import MIB

T = TypeVar("T")

# Eight objects at once fill an ordinary network, and four segments of the default size a core.
OBJECTS_AT_ONCE = 8
BYTES_AT_ONCE = 256 * MIB


class Bounds:
    """Bounds the number of objects in memory, and their bytes.

    An object larger than the bound in bytes passes alone.
    """

    def __init__(
        self, objects_at_once: int = OBJECTS_AT_ONCE, bytes_at_once: int = BYTES_AT_ONCE
    ) -> None:
        self.objects_at_once = objects_at_once
        self.budget = runtime.MemoryShare("verify", bytes_at_once)
        self._objects = asyncio.Semaphore(objects_at_once)

    @contextlib.asynccontextmanager
    async def holding(self, size: int) -> AsyncIterator[None]:
        """Wait for room for an object of this size, and reserve it for the body."""
        async with self._objects, self.budget.taken(size):
            yield

    async def each(self, items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
        """Do `work` for each item, concurrently for at most `objects_at_once` items."""
        source = iter(items)

        async def take() -> None:
            for item in source:
                await work(item)

        await runtime.gather(*(take() for _ in range(self.objects_at_once)))
