"""The memory of a process, divided into named shares.

A share counts the bytes that one part of a process holds and bounds them. A part takes its bytes
before it holds them, waits for them, or does without; where it cannot know beforehand, it counts
them and frees others. A request larger than its whole share passes alone. Whoever waits makes the
owner of the share free what it can do without.

Some shares are of state, which clients make a process keep and nothing can drop. A cache gives way
to what state takes up beyond what is set apart for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import insort
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count as counting
from typing import NamedTuple


def _keeps_all(_: int) -> None:
    """What a share does that holds nothing it could free."""


class _Claim(NamedTuple):
    """Bytes that are waited for. The lowest rank is served first, then the first to ask."""

    rank: int
    number: int
    size: int
    spare: int
    turn: asyncio.Future[None]


class MemoryShare:
    """Counts the bytes of one part. `make_room` is asked to free so many that others wait for.

    A claim of bytes may have a rank: lower ones are served first, equal ones in the order of
    asking. It may leave some bytes `spare`, which only claims that leave none can have.
    """

    def __init__(
        self,
        name: str,
        bytes_max: int,
        make_room: Callable[[int], None] = _keeps_all,
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
        """How many wait for bytes."""
        return len(self._waiters)

    @property
    def room_bytes(self) -> int:
        """How many bytes are free."""
        return max(0, self.bytes_max - self.used)

    def count(self, size: int) -> None:
        """Count bytes that are held whatever the bound says; a negative count is given back."""
        self.used += size
        if size < 0:
            self._wake()
        else:
            self.peak = max(self.peak, self.used)

    def try_take(self, size: int, *, rank: int = 0, spare: int = 0) -> bool:
        """Take bytes if they are free and none wait before us. Returns whether they were taken."""
        if self._waiters and self._waiters[0].rank <= rank:
            return False
        if not self._fits(size, spare):
            return False
        self.count(size)
        return True

    async def take(self, size: int, *, rank: int = 0, spare: int = 0) -> None:
        """Take bytes as soon as it is our turn and they are free."""
        if self.try_take(size, rank=rank, spare=spare):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        insort(self._waiters, _Claim(rank, next(self._numbers), size, spare, turn))
        self.press()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(size)  # the bytes came in the same moment as the cancellation
            else:
                self._waiters = [claim for claim in self._waiters if claim.turn is not turn]
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
        self.count(-size)

    def press(self) -> None:
        """Free what others do not need at once, if any wait."""
        if self._waiters:
            wanted = sum(claim.size for claim in self._waiters)
            self.make_room(max(0, self.used + wanted - self.bytes_max))
            self._wake()

    def _fits(self, size: int, spare: int) -> bool:
        return self.used <= 0 or self.used + size + spare <= self.bytes_max

    def _wake(self) -> None:
        while self._waiters and self._fits(self._waiters[0].size, self._waiters[0].spare):
            claim = self._waiters.pop(0)
            if not claim.turn.done():
                self.count(claim.size)
                claim.turn.set_result(None)


class MemoryBudget:
    """All shares of one process. `state_bytes_own` is what state may have without any cache's."""

    def __init__(self, state_bytes_own: int = 0) -> None:
        self._state_bytes_own = state_bytes_own
        self._shares: list[MemoryShare] = []
        self._state: list[MemoryShare] = []

    def __iter__(self) -> Iterator[MemoryShare]:
        return iter(self._shares)

    def add(self, *shares: MemoryShare) -> None:
        self._shares += shares

    def state(self, name: str, bytes_max: int) -> MemoryShare:
        """A new share of state."""
        share = MemoryShare(name, bytes_max)
        self._shares.append(share)
        self._state.append(share)
        return share

    @property
    def lent_bytes(self) -> int:
        """What the cache has to give way to."""
        return max(0, sum(share.used for share in self._state) - self._state_bytes_own)
