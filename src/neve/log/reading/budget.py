"""Bytes that several together may take up, such as all lagging consumers.

Who reads on demand waits for its bytes in the order of asking; what is read ahead takes only what
is free while nobody waits. One piece larger than the whole budget passes alone. Whoever waits makes
the owner of what was read ahead let go of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable


class ByteBudget:
    """Counts bytes. `make_room` is asked to free so many, of what nobody waits for."""

    def __init__(self, bytes_max: int, make_room: Callable[[int], None]) -> None:
        self._bytes_max = bytes_max
        self._make_room = make_room
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.used = 0
        self.peak = 0

    @property
    def bytes_max(self) -> int:
        return self._bytes_max

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def try_take(self, size: int) -> bool:
        """Take bytes if they are free and nobody waits."""
        if self._waiters or not self._fits(size):
            return False
        self._count(size)
        return True

    async def take(self, size: int) -> None:
        """Take bytes as soon as it is our turn and they are free."""
        if self.try_take(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((size, turn))
        self.press()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(size)  # the bytes came in the same moment as the cancellation
            else:
                self._waiters = deque(row for row in self._waiters if row[1] is not turn)
                self._wake()
            raise

    @contextlib.asynccontextmanager
    async def taken(self, size: int) -> AsyncIterator[None]:
        """Wait for bytes, and give them back in the end."""
        await self.take(size)
        try:
            yield
        finally:
            self.give_back(size)

    def give_back(self, size: int) -> None:
        self.used -= size
        self._wake()

    def press(self) -> None:
        """Free what others do not need at once, if somebody waits."""
        if self._waiters:
            wanted = sum(size for size, _ in self._waiters)
            self._make_room(max(0, self.used + wanted - self._bytes_max))
            self._wake()

    def _fits(self, size: int) -> bool:
        return self.used == 0 or self.used + size <= self._bytes_max

    def _count(self, size: int) -> None:
        self.used += size
        self.peak = max(self.peak, self.used)

    def _wake(self) -> None:
        while self._waiters and self._fits(self._waiters[0][0]):
            size, turn = self._waiters.popleft()
            if not turn.done():
                self._count(size)
                turn.set_result(None)
