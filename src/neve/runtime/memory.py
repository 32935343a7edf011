"""A process's memory budget, divided into named shares.

A share counts and bounds the bytes that one component holds. A component reserves bytes before it
allocates them; it waits for them or skips the work. If the size is unknown beforehand, it counts
the bytes afterwards and frees others. A reservation larger than the whole share succeeds when the
share is otherwise unused. A waiting reservation makes the share's owner free what it can.

Some shares hold state that clients create and that cannot be evicted. State beyond its own reserve
is taken from the cache.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import insort
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count as counting
from typing import NamedTuple


def _free_nothing(_: int) -> None:
    """The `make_room` of a share whose owner cannot free anything."""


class _Claim(NamedTuple):
    """A waiting reservation. The lowest rank is served first; equal ranks in order of arrival."""

    rank: int
    number: int
    size: int
    spare: int
    granted: asyncio.Future[None]


class MemoryShare:
    """Counts the bytes of one component. `make_room(n)` must free up to n bytes for waiting claims.

    A claim may have a rank: lower ranks are served first, equal ranks in order of arrival. A claim
    with `spare` is granted only if that many further bytes stay free for claims without it.
    """

    def __init__(
        self,
        name: str,
        bytes_max: int,
        make_room: Callable[[int], None] = _free_nothing,
    ) -> None:
        self.name = name
        self.bytes_max = bytes_max
        self.used = 0
        self.peak = 0
        self.make_room = make_room
        self._numbers = counting()
        self._waiters: list[_Claim] = []

    @property
    def waiting(self) -> int:
        """The number of waiting claims."""
        return len(self._waiters)

    @property
    def room_bytes(self) -> int:
        """The number of free bytes."""
        return max(0, self.bytes_max - self.used)

    def count(self, size: int) -> None:
        """Count bytes without checking the bound; a negative size releases bytes."""
        self.used += size
        if size < 0:
            self._wake()
        else:
            self.peak = max(self.peak, self.used)

    def try_take(self, size: int, *, rank: int = 0, spare: int = 0) -> bool:
        """Reserve bytes if they are free and no claim waits before this one. Returns success."""
        if self._waiters and self._waiters[0].rank <= rank:
            return False
        if not self._fits(size, spare):
            return False
        self.count(size)
        return True

    async def take(self, size: int, *, rank: int = 0, spare: int = 0) -> None:
        """Reserve bytes, waiting until they are free and all earlier claims are served."""
        if self.try_take(size, rank=rank, spare=spare):
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        insort(self._waiters, _Claim(rank, next(self._numbers), size, spare, granted))
        self.free_for_waiting()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self.give_back(size)  # granted in the same moment as the cancellation
            else:
                self._waiters = [claim for claim in self._waiters if claim.granted is not granted]
                self._wake()
            raise

    @contextlib.asynccontextmanager
    async def taken(self, size: int) -> AsyncIterator[None]:
        """Reserve bytes for the body of an `async with`."""
        await self.take(size)
        try:
            yield
        finally:
            self.give_back(size)

    def give_back(self, size: int) -> None:
        self.count(-size)

    def free_for_waiting(self) -> None:
        """If claims wait, ask the owner to free bytes for them."""
        if self._waiters:
            claimed = sum(claim.size for claim in self._waiters)
            self.make_room(max(0, self.used + claimed - self.bytes_max))
            self._wake()

    def _fits(self, size: int, spare: int) -> bool:
        return self.used <= 0 or self.used + size + spare <= self.bytes_max

    def _wake(self) -> None:
        while self._waiters and self._fits(self._waiters[0].size, self._waiters[0].spare):
            claim = self._waiters.pop(0)
            if not claim.granted.done():
                self.count(claim.size)
                claim.granted.set_result(None)


class MemoryBudget:
    """All shares of one process. `state_bytes_own` is the reserve of state beside the cache."""

    def __init__(self, state_bytes_own: int = 0) -> None:
        self._state_bytes_own = state_bytes_own
        self._shares: list[MemoryShare] = []
        self._state: list[MemoryShare] = []

    def __iter__(self) -> Iterator[MemoryShare]:
        return iter(self._shares)

    def add(self, *shares: MemoryShare) -> None:
        self._shares += shares

    def state(self, name: str, bytes_max: int) -> MemoryShare:
        """Add a share for state that cannot be evicted."""
        share = MemoryShare(name, bytes_max)
        self._shares.append(share)
        self._state.append(share)
        return share

    @property
    def lent_bytes(self) -> int:
        """The bytes of state beyond its reserve; the cache must shrink by as many."""
        return max(0, sum(share.used for share in self._state) - self._state_bytes_own)
