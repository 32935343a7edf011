"""Base of the store wrappers.

A wrapper that treats all operations alike overrides `around`. The outermost wrapper splits
`get_ranges`, so inner ones see a `get_range` for each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from neve.store.port import OBJECT_BYTES_MAX, Buffer, ObjectInfo, Store
from neve.store.ranges import get_by_parts

T = TypeVar("T")
Operation: TypeAlias = Literal["get", "get_range", "put", "create", "delete", "list"]
OPERATIONS: tuple[Operation, ...] = ("get", "get_range", "put", "create", "delete", "list")


class Call(NamedTuple):
    """A call to the store."""

    operation: Operation
    key: str
    sent_bytes: int = 0


class Wrapper:
    """A store that forwards every call; subclasses override `around` or single operations."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002
        """Run `work`, which performs the call each time it is called."""
        return await work()

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        return await self.around(Call("get", key), lambda: self.inner.get(key, bytes_max))

    async def get_range(self, key: str, start: int, end: int) -> memoryview:
        return await self.around(
            Call("get_range", key), lambda: self.inner.get_range(key, start, end)
        )

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        return await get_by_parts(self.get_range, key, ranges)

    async def put(self, key: str, data: Buffer) -> None:
        await self.around(Call("put", key, len(data)), lambda: self.inner.put(key, data))

    async def create(self, key: str, data: Buffer) -> None:
        await self.around(Call("create", key, len(data)), lambda: self.inner.create(key, data))

    async def delete(self, key: str) -> None:
        await self.around(Call("delete", key), lambda: self.inner.delete(key))

    async def list(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        return await self.around(Call("list", prefix), lambda: self.inner.list(prefix, after))

    async def close(self) -> None:
        await self.inner.close()
