"""Limits per client address: failed log-ins are slowed down, concurrent queries are bounded."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from neve import runtime

REMEMBERED_MAX = 1_000
"""Entries per user and address with counted failures. The one with the oldest failure is dropped
first."""
FORGET_SECONDS = 900.0
FIRST_DELAY_SECONDS = 0.5
DELAY_SECONDS_MAX = 16.0
FREE_FAILURES = 3
"""Failures of one user from one address without a delay, for mistyped passwords."""
FREE_ADDRESS_FAILURES = 30
"""Failures of all users from one address without a delay."""
_USER_CHARACTERS = 64


@dataclass
class _Failures:
    count: int = 0
    next_at: float = 0.0
    """The earliest start of the next attempt, on the monotonic clock."""
    last_at: float = 0.0


class LoginThrottle:
    """Delays log-ins of a user and address after failures.

    Concurrent attempts are delayed one after another, so more connections are not faster. Other
    addresses are not affected.
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()

    def delay_seconds(self, user: str, address: str) -> float:
        """Return the delay of this attempt, and reserves a later time for the next one."""
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
        """Count a failure. Returns the number of failures of this user from this address."""
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


class AddressLimiter:
    """Runs at most `each_max` queries per address at a time; the others wait in order."""

    def __init__(self, each_max: int) -> None:
        self._each_max = each_max
        self._semaphores: dict[str, tuple[asyncio.Semaphore, int]] = {}
        """By address: its semaphore, and the number of queries that hold it or wait for it."""

    async def acquire(self, address: str) -> None:
        """Wait until a query of this address may run. Call `release` once for each `acquire`."""
        semaphore, users = self._semaphores.get(address, (asyncio.Semaphore(self._each_max), 0))
        self._semaphores[address] = semaphore, users + 1
        try:
            await semaphore.acquire()
        except BaseException:
            self._forget(address)
            raise

    def release(self, address: str) -> None:
        self._semaphores[address][0].release()
        self._forget(address)

    def _forget(self, address: str) -> None:
        semaphore, users = self._semaphores[address]
        if users == 1:
            del self._semaphores[address]
        else:
            self._semaphores[address] = semaphore, users - 1
