"""Keeps one address from taking everything: failed log-ins are slowed, queries take turns."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from neve import runtime

REMEMBERED_MAX = 1_000
"""Whose failed log-ins are counted; the one heard of longest ago is forgotten first."""
FORGET_SECONDS = 900.0
FIRST_DELAY_SECONDS = 0.5
DELAY_SECONDS_MAX = 16.0
FREE_FAILURES = 3
"""Of one user from one address: mistyped passwords are not slowed."""
FREE_ADDRESS_FAILURES = 30
"""Of all users from one address."""
_USER_CHARACTERS = 64


@dataclass
class _Failures:
    count: int = 0
    next_at: float = 0.0
    """When the next attempt may begin."""
    last_at: float = 0.0


class LoginThrottle:
    """Spaces out the log-ins of a user from an address after failures.

    Attempts that come at once queue up behind each other, so more connections try no faster.
    Other addresses are not affected.
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()

    def delay_seconds(self, user: str, address: str) -> float:
        """How long this attempt has to wait; the next one then waits longer."""
        now = runtime.monotonic()
        longest = 0.0
        for key, free in _keys(user, address):
            known = self._failures.get(key)
            if known is None or now - known.last_at > FORGET_SECONDS:
                self._failures.pop(key, None)
            elif known.count > free:
                begins = max(now, known.next_at)
                doublings = min(known.count - free - 1, 10)
                known.next_at = begins + min(DELAY_SECONDS_MAX, FIRST_DELAY_SECONDS * 2**doublings)
                longest = max(longest, begins - now)
        return longest

    def failed(self, user: str, address: str) -> int:
        """Count a failure; how many of this user and address there were."""
        now = runtime.monotonic()
        counts = []
        for key, _ in _keys(user, address):
            known = self._failures.setdefault(key, _Failures())
            known.count += 1
            known.last_at = now
            self._failures.move_to_end(key)
            counts.append(known.count)
        while len(self._failures) > REMEMBERED_MAX:
            self._failures.popitem(last=False)
        return counts[0]

    def succeeded(self, user: str, address: str) -> None:
        for key, _ in _keys(user, address)[:1]:
            self._failures.pop(key, None)


def _keys(user: str, address: str) -> list[tuple[tuple[str, str], int]]:
    pair, alone = (user[:_USER_CHARACTERS], address), ("", address)
    return [(pair, FREE_FAILURES), (alone, FREE_ADDRESS_FAILURES)]


class FairQueue:
    """At most so many at once for each address; others of that address wait in order."""

    def __init__(self, each_max: int) -> None:
        self._each_max = each_max
        self._turns: dict[str, tuple[asyncio.Semaphore, int]] = {}
        """By address: who has a turn, and how many have or want one."""

    async def take(self, address: str) -> None:
        """Wait for a turn. Call `give_back` once for each that was taken."""
        semaphore, users = self._turns.get(address, (asyncio.Semaphore(self._each_max), 0))
        self._turns[address] = semaphore, users + 1
        try:
            await semaphore.acquire()
        except BaseException:
            self._leave(address)
            raise

    def give_back(self, address: str) -> None:
        self._turns[address][0].release()
        self._leave(address)

    def _leave(self, address: str) -> None:
        semaphore, users = self._turns[address]
        if users == 1:
            del self._turns[address]
        else:
            self._turns[address] = semaphore, users - 1
