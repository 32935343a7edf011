"""Reads one object, or a range of it, and checks it.

A read that fails its checks may be torn: the store returned a part of the object. So DamagedError
is raised only if all attempts fail. Errors of the store are not handled here, since its wrappers
retry transient ones.

A `Download` describes what the prefetching reader shall read. All read-ahead uses slots of the
store only through `through_free_slots`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from neve import runtime
from neve.errors import DamagedError, InvalidError
from neve.settings import KIB, MIB
from neve.store.gate import NoFreeSlotError
from neve.store.port import Store

T = TypeVar("T")

# Torn reads are rare and independent, so three in a row mean damage.
ATTEMPTS_DEFAULT = 3
# A part takes about 3 ms at 10 Gbit/s after about 15 ms of latency: eight at once fill the network.
PART_BYTES_DEFAULT = 4 * MIB
# A download that found no free slot retries after this pause, which is short next to a get.
SLOT_PAUSE_SECONDS = 0.01
# Checking fewer bytes takes less time than handing them to a thread.
CHECKED_AT_ONCE_BYTES = 256 * KIB


async def fetch_checked(
    store: Store,
    key: str,
    bytes_max: int,
    decode: Callable[[memoryview], T],
    *,
    attempts: int = ATTEMPTS_DEFAULT,
) -> T:
    """Read a whole object and return what `decode` makes of it.

    Raises the DamagedError of the last attempt. An object of more than `bytes_max` bytes counts as
    damaged and is not read.
    """

    async def read() -> T:
        return decode(await store.get(key, bytes_max))

    return await until_believed(read, attempts)


async def fetch_range_checked(
    store: Store,
    key: str,
    start: int,
    end: int,
    check: Callable[[memoryview], T],
    *,
    attempts: int = ATTEMPTS_DEFAULT,
) -> T:
    """Read the bytes from start to end and return what `check` makes of them.

    Raises DamagedError if the object ends earlier.
    """

    async def read() -> T:
        return await checked(check, await read_range(store, key, start, end))

    return await until_believed(read, attempts)


async def fetch_prefix_checked(
    store: Store,
    key: str,
    length: int,
    check: Callable[[memoryview], T],
    *,
    attempts: int = ATTEMPTS_DEFAULT,
) -> T:
    """Read an object's first `length` bytes, or all if it has fewer; return `check`'s result."""

    async def read() -> T:
        return check(await store.get_range(key, 0, length))

    return await until_believed(read, attempts)


async def checked(check: Callable[[memoryview], T], data: memoryview) -> T:
    """Return what `check` makes of the bytes. Large data is checked in a thread."""
    if len(data) < CHECKED_AT_ONCE_BYTES:
        return check(data)
    return await runtime.offload(check, data)


async def read_range(store: Store, key: str, start: int, end: int) -> memoryview:
    """Read exactly this range once. Raises DamagedError if the response is shorter."""
    data = await store.get_range(key, start, end)
    if len(data) != end - start:
        raise DamagedError(key, f"requested bytes {start} to {end}, received {len(data)} bytes")
    return data


async def until_believed(read: Callable[[], Awaitable[T]], attempts: int = ATTEMPTS_DEFAULT) -> T:
    """Read until a read passes its checks. Raises the last attempt's DamagedError."""
    for _ in range(attempts - 1):
        try:
            return await read()
        except DamagedError:
            continue
    return await read()


async def through_free_slots(
    read: Callable[[Store], Awaitable[T]],
    store: Store,
    ahead: Store | None,
    awaited: asyncio.Event,
    on_wait: Callable[[], None],
) -> T:
    """Read through free slots of the store only, until a consumer waits for the result.

    `ahead` is the store for calls that need a free slot (`Gate.prefetching`): reading ahead takes
    no slot from live traffic. Once `awaited` is set, or without `ahead`, the read queues for a
    slot. `on_wait` is called each time no slot was free.
    """
    while ahead is not None and not awaited.is_set():
        try:
            return await read(ahead)
        except NoFreeSlotError:
            on_wait()
        try:
            async with runtime.deadline(SLOT_PAUSE_SECONDS):
                await awaited.wait()
        except TimeoutError:
            continue
    return await read(store)


@dataclass(frozen=True, kw_only=True)
class Download(Generic[T]):
    """One item to download. `size_bytes` is the size to count until the true one is known."""

    key: str
    size_bytes: int
    fetch: Callable[[Store], Awaitable[T]]
    start: int = 0


def whole_object(key: str, size_bytes: int, decode: Callable[[memoryview], T]) -> Download[T]:
    """Return the download of a whole object. `decode` raises DamagedError for a bad read."""

    async def fetch(store: Store) -> T:
        return decode(await store.get(key))

    return Download(key=key, size_bytes=size_bytes, fetch=fetch)


def byte_range(key: str, start: int, end: int) -> Download[memoryview]:
    """Return the download of the bytes from start to end. A shorter response is a torn read."""
    fetch = functools.partial(read_range, key=key, start=start, end=end)
    return Download(key=key, size_bytes=end - start, fetch=fetch, start=start)


def split_ranges(
    key: str, size: int, part_bytes: int = PART_BYTES_DEFAULT, start: int = 0
) -> list[Download[memoryview]]:
    """Return downloads of at most `part_bytes` each for an object of `size` bytes, from `start`."""
    if part_bytes < 1:
        raise InvalidError(f"{key}: it cannot be split into parts of {part_bytes} bytes")
    return [
        byte_range(key, at, min(at + part_bytes, size)) for at in range(start, size, part_bytes)
    ]
