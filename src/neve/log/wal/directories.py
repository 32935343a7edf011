"""A cache of WAL object directories, so that the next read of a stream requests only new ones.

An object never changes, and it is deleted only below the stream's greatest checkpoint, which a
reader fetches before and after. So a cached directory always equals the one in the store.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, Protocol, Self, TypeVar

BYTES_MAX = 32 * 1024 * 1024
SLICE_BYTES = 200
"""Approximate memory of a slice's entry."""


class CacheableObject(Protocol):
    """An object's slices, and its bytes if they were read."""

    @property
    def slices(self) -> tuple[object, ...]: ...

    @property
    def data(self) -> memoryview | None: ...

    def without_data(self) -> Self: ...


K = TypeVar("K", bound=CacheableObject)


class DirectoryCache(Generic[K]):
    """The most recently used directories by key, bounded in bytes.

    Object bytes are dropped before any directory: a reader starts with the oldest object, and each
    missing directory costs a request.
    """

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._items: OrderedDict[str, K] = OrderedDict()
        self._with_data: OrderedDict[str, None] = OrderedDict()
        self.bytes = 0

    def get(self, key: str) -> K | None:
        found = self._items.get(key)
        if found is not None:
            self._items.move_to_end(key)
            if found.data is not None:
                self._with_data.move_to_end(key)
        return found

    def put(self, key: str, item: K) -> None:
        self._drop(key)
        self._keep(key, item)
        while self.bytes > self._bytes_max and self._with_data:
            self._strip(next(iter(self._with_data)))
        while self.bytes > self._bytes_max:
            self._drop(next(iter(self._items)))

    def _keep(self, key: str, item: K) -> None:
        self._items[key] = item
        self.bytes += _size(item)
        if item.data is not None:
            self._with_data[key] = None

    def _strip(self, key: str) -> None:
        """Drop the bytes of an item without changing its age."""
        item = self._items[key]
        del self._with_data[key]
        self._items[key] = item.without_data()
        self.bytes += _size(self._items[key]) - _size(item)

    def _drop(self, key: str) -> None:
        item = self._items.pop(key, None)
        if item is not None:
            self._with_data.pop(key, None)
            self.bytes -= _size(item)


def _size(item: CacheableObject) -> int:
    return SLICE_BYTES * (1 + len(item.slices)) + (0 if item.data is None else len(item.data))
