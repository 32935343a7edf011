"""Keys ordered by deadline: a background loop looks only at what is due.

A heap with lazy deletion. A key has at most one deadline. Keys with equal deadlines come out in the
order in which they were set.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Generic, TypeVar

K = TypeVar("K")

# Entries that were replaced or dropped stay in the heap until they come up. With more of them than
# this, and than live entries, the heap is rebuilt.
STALE_MAX = 64


class DeadlineQueue(Generic[K]):
    """Keys by deadline. All times must come from one clock, in one unit."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, K]] = []
        self._entries: dict[K, tuple[float, int, K]] = {}
        self._count = itertools.count()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def set(self, key: K, at: float) -> None:
        """Set a key's deadline, replacing an earlier one."""
        entry = (at, next(self._count), key)
        self._entries[key] = entry
        heapq.heappush(self._heap, entry)
        self._rebuild_if_stale()

    def set_if_earlier(self, key: K, at: float) -> bool:
        """Set a key's deadline unless it has one as early. Returns whether it was set."""
        entry = self._entries.get(key)
        if entry is not None and at >= entry[0]:
            return False
        self.set(key, at)
        return True

    def drop(self, key: K) -> None:
        """Remove a key, if it is there."""
        if self._entries.pop(key, None) is not None:
            self._rebuild_if_stale()

    def pop(self, now: float) -> K | None:
        """Remove and return the key with the earliest deadline; None if none has passed."""
        at = self.next_at()
        if at is None or at > now:
            return None
        key = heapq.heappop(self._heap)[2]
        del self._entries[key]
        return key

    def next_at(self) -> float | None:
        """Return the earliest deadline; None if the queue is empty."""
        while self._heap and self._entries.get(self._heap[0][2]) is not self._heap[0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def _rebuild_if_stale(self) -> None:
        if len(self._heap) > 2 * len(self._entries) + STALE_MAX:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)
