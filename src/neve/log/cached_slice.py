"""Slices of committed records, and the objects that hold their bytes, in memory or in the bucket.

When the cache is full, it drops the bytes of the oldest object. At the same moment the object's
rows are removed from the `recent` lists of logs, so that every row there has its bytes in memory.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from neve.log.downloads import fetch_range_checked
from neve.log.wal import object as wal_object
from neve.log.wal.object import Slice
from neve.store.port import Store


class CachedObject:
    """An object, or a stretch of one, that holds slices. `data` is None once it was dropped.

    Positions in the entries of its rows are relative to the start of `data`.
    """

    __slots__ = ("_recents", "data", "incarnation", "key", "number")

    def __init__(
        self, key: str, incarnation: int, number: int | None, data: memoryview | None
    ) -> None:
        self.key = key
        self.incarnation = incarnation
        self.number = number
        self.data = data
        self._recents: list[deque[CachedSlice]] = []

    def kept_in(self, recent: deque[CachedSlice]) -> None:
        """Remember that `recent` has a row of this object, to remove it when the bytes drop."""
        self._recents.append(recent)

    def drop(self) -> None:
        """Drop the bytes and their rows. Call this in the order in which objects were committed."""
        self.data = None
        for recent in self._recents:
            while recent and recent[0].cached.data is None:
                recent.popleft()
        self._recents = []


class CachedSlice(NamedTuple):
    """Some committed batches of a partition. `since` is when this process first saw them.

    It is in seconds of the monotonic clock.
    """

    cached: CachedObject
    entry: Slice
    since: float

    @property
    def key(self) -> str:
        return self.cached.key

    def in_memory(self) -> memoryview | None:
        data = self.cached.data
        return None if data is None else data[self.entry.position : self.entry.end]


async def read_slice(store: Store, row: CachedSlice) -> memoryview:
    """Return a slice's bytes from memory, or read and check them."""
    cached, entry = row.cached, row.entry
    data = row.in_memory()
    if data is not None:
        return data
    return await fetch_range_checked(
        store,
        cached.key,
        entry.position,
        entry.end,
        lambda data: wal_object.slice_bytes(entry, data, cached.key),
    )
