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
    """How many objects are in memory at once, and how large they are together.

    An object larger than all that is allowed passes alone.
    """

    def __init__(
        self, objects_at_once: int = OBJECTS_AT_ONCE, bytes_at_once: int = BYTES_AT_ONCE
    ) -> None:
        self.objects_at_once = objects_at_once
        self._bytes_at_once = bytes_at_once
        self._objects = 0
        self._bytes = 0
        self._freed = asyncio.Condition()

    @contextlib.asynccontextmanager
    async def holding(self, size: int) -> AsyncIterator[None]:
        """Wait for room for an object of this size, and keep it for the body."""
        async with self._freed:
            await self._freed.wait_for(lambda: self._has_room(size))
            self._objects += 1
            self._bytes += size
        try:
            yield
        finally:
            self._objects -= 1
            self._bytes -= size
            async with self._freed:
                self._freed.notify_all()

    def _has_room(self, size: int) -> bool:
        if self._objects == 0:
            return True
        return self._objects < self.objects_at_once and self._bytes + size <= self._bytes_at_once

    async def each(self, items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
        """Do `work` for each item, for as many at once as objects are allowed."""
        source = iter(items)

        async def take() -> None:
            for item in source:
                await work(item)

        await runtime.gather(*(take() for _ in range(self.objects_at_once)))
