"""Directories of WAL objects that were read before, so that the next look need not ask for them.

A number holds what it was created with for as long as a reader may count it: it is deleted only
below the stream's greatest checkpoint, at which a reader looks before and after. So what is kept
here is as good as what the store would answer.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, Protocol, Self, TypeVar

BYTES_MAX = 32 * 1024 * 1024
SLICE_BYTES = 200
"""About what a slice's entry takes in memory."""


class Kept(Protocol):
    """What is said of an object: its slices, and its bytes where they were read."""

    @property
    def slices(self) -> tuple[object, ...]: ...

    @property
    def data(self) -> memoryview | None: ...

    def without_data(self) -> Self: ...


K = TypeVar("K", bound=Kept)


class DirectoryCache(Generic[K]):
    """The most recently used directories by key, bounded in bytes.

    Bytes of objects are dropped before any directory: a reader begins with the oldest object, and
    one that is missing there costs a request for each object behind it.
    """

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[str, K] = OrderedDict()
        self._with_data: OrderedDict[str, None] = OrderedDict()
        self.bytes = 0

    def get(self, key: str) -> K | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            if found.data is not None:
                self._with_data.move_to_end(key)
        return found

    def put(self, key: str, item: K) -> None:
        self._drop(key)
        self._keep(key, item)
        while self.bytes > self._bytes_max and self._with_data:
            self._strip(next(iter(self._with_data)))
        while self.bytes > self._bytes_max:
            self._drop(next(iter(self._kept)))

    def _keep(self, key: str, item: K) -> None:
        self._kept[key] = item
        self.bytes += _size(item)
        if item.data is not None:
            self._with_data[key] = None

    def _strip(self, key: str) -> None:
        """In its place: it is as old as it was."""
        item = self._kept[key]
        del self._with_data[key]
        self._kept[key] = item.without_data()
        self.bytes += _size(self._kept[key]) - _size(item)

    def _drop(self, key: str) -> None:
        item = self._kept.pop(key, None)
        if item is not None:
            self._with_data.pop(key, None)
            self.bytes -= _size(item)


def _size(item: Kept) -> int:
    return SLICE_BYTES * (1 + len(item.slices)) + (0 if item.data is None else len(item.data))
