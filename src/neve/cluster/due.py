"""What is due when: each key at most once, the earliest first, and equals in the order they came.

So that background work costs what is due, not what there is: thousands of partitions of which
nothing is due are never looked at.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Generic, TypeVar

K = TypeVar("K")

# Replaced entries stay in the heap until they come up; past this many it is built anew.
STALE_MAX = 64


class Due(Generic[K]):
    """Keys by the time at which they are due, on the monotonic clock."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, K]] = []
        self._entries: dict[K, tuple[float, int, K]] = {}
        self._count = itertools.count()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def set(self, key: K, at: float) -> None:
        """Make it due at this time, and at no other."""
        entry = (at, next(self._count), key)
        self._entries[key] = entry
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._entries) + STALE_MAX:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)

    def sooner(self, key: K, at: float) -> None:
        """Make it due at this time unless it is due before; then it keeps its place."""
        entry = self._entries.get(key)
        if entry is None or at < entry[0]:
            self.set(key, at)

    def drop(self, key: K) -> None:
        self._entries.pop(key, None)

    def pop(self, now: float) -> K | None:
        """Take out what has been due longest; None if nothing is."""
        at = self.next_at()
        if at is None or at > now:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._entries[key]
        return key

    def next_at(self) -> float | None:
        """When the next one is due."""
        while self._heap and self._entries.get(self._heap[0][2]) is not self._heap[0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None
