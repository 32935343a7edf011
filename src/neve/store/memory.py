"""A bucket in the memory of this process (`memory://`), for tests, simulations and trials.

Every call yields to the event loop once and then works in one step, so calls interleave as with a
real store and a simulation replays exactly. The data is lost when the process ends.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence

from neve import runtime
from neve.errors import ClosedError, ExistsError, NotFoundError
from neve.store.key import checked_key, checked_range, checked_size
from neve.store.port import OBJECT_BYTES_MAX, Buffer, ObjectInfo
from neve.store.ranges import get_by_parts


class MemoryBucket:
    """The objects of a bucket. Several stores may share one."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[Buffer, int]] = {}
        self.keys: list[str] = []  # sorted, for listings

    def write(self, key: str, data: Buffer) -> None:
        if key not in self.objects:
            bisect.insort(self.keys, key)
        # Read-only buffers need no copy.
        kept = data if memoryview(data).readonly else bytes(data)
        self.objects[key] = (kept, runtime.now_ms())

    def remove(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            del self.keys[bisect.bisect_left(self.keys, key)]


_named: dict[str, MemoryBucket] = {}


def named_bucket(name: str) -> MemoryBucket:
    """Return the bucket that all stores of `memory://name` in this process share."""
    return _named.setdefault(name, MemoryBucket())


class MemoryStore:
    """The store port over a MemoryBucket; by default a new one."""

    def __init__(self, bucket: MemoryBucket | None = None) -> None:
        self.bucket = bucket if bucket is not None else MemoryBucket()
        self._closed = False

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        await self._turn()
        data = self._read(key)
        checked_size(key, len(data), bytes_max)
        return memoryview(data)

    async def get_range(self, key: str, start: int, end: int) -> memoryview:
        checked_range(key, start, end)
        if start == end:
            return memoryview(b"")
        await self._turn()
        return memoryview(self._read(key))[start:end]

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        return await get_by_parts(self.get_range, key, ranges)

    async def put(self, key: str, data: Buffer) -> None:
        await self._turn()
        self.bucket.write(checked_key(key), data)

    async def create(self, key: str, data: Buffer) -> None:
        await self._turn()
        if checked_key(key) in self.bucket.objects:
            raise ExistsError(key, "the key exists: read it to find its writer")
        self.bucket.write(key, data)

    async def delete(self, key: str) -> None:
        await self._turn()
        self.bucket.remove(checked_key(key))

    async def list(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        await self._turn()
        keys = self.bucket.keys
        start = max(bisect.bisect_left(keys, prefix), bisect.bisect_right(keys, after))
        found: list[ObjectInfo] = []
        for key in keys[start:]:
            if not key.startswith(prefix):
                break
            data, modified_ms = self.bucket.objects[key]
            found.append(ObjectInfo(key, len(data), modified_ms))
        return found

    async def close(self) -> None:
        self._closed = True

    async def _turn(self) -> None:
        await runtime.sleep(0)
        if self._closed:
            raise ClosedError("the memory store is closed")

    def _read(self, key: str) -> Buffer:
        try:
            return self.bucket.objects[checked_key(key)][0]
        except KeyError:
            raise NotFoundError(key, "the object does not exist") from None
