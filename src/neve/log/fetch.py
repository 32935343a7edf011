"""Reading one object, or one range of it, with its checks.

A read that fails its checks may be torn: the store returned half of an object. So damage is
believed only after every attempt has seen it. Errors of the store are not handled here: its
wrappers retry transient ones.

A `Download` describes what to read, for the prefetching reader. Everything that is read ahead takes
slots of the store by `through_free_slots`.
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

# Torn reads are rare and independent: three in a row are damage.
ATTEMPTS_DEFAULT = 3
# A part of 4 MiB takes some 3 ms on 10 Gbit/s beside some 15 ms of latency: eight at once fill it.
PART_BYTES_DEFAULT = 4 * MIB
# A download that found no free slot tries again after this pause: short beside a get's latency.
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
    """The whole object, decoded. The last attempt's DamagedError is raised.

    One of more than `bytes_max` bytes is damaged, and not read.
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
    """What `check` makes of bytes start to end, all of which must be there."""

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
    """What `check` makes of an object's first `length` bytes, or of all where it has fewer."""

    async def read() -> T:
        return check(await store.get_range(key, 0, length))

    return await until_believed(read, attempts)


async def checked(check: Callable[[memoryview], T], data: memoryview) -> T:
    """What `check` makes of the bytes; many of them beside the loop, for which others wait."""
    if len(data) < CHECKED_AT_ONCE_BYTES:
        return check(data)
    return await runtime.offload(check, data)


async def read_range(store: Store, key: str, start: int, end: int) -> memoryview:
    """One read of exactly this range: an answer that is too short is damage."""
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
    """One thing to download. `size_bytes` is what it is counted as before its size is known."""

    key: str
    size_bytes: int
    fetch: Callable[[Store], Awaitable[T]]
    start: int = 0


def whole_object(key: str, size_bytes: int, decode: Callable[[memoryview], T]) -> Download[T]:
    """An object that is read and decoded whole. `decode` raises DamagedError for a bad read."""

    async def fetch(store: Store) -> T:
        return decode(await store.get(key))

    return Download(key=key, size_bytes=size_bytes, fetch=fetch)


def byte_range(key: str, start: int, end: int) -> Download[memoryview]:
    """Bytes start to end of an object. A shorter answer counts as a torn read."""
    fetch = functools.partial(read_range, key=key, start=start, end=end)
    return Download(key=key, size_bytes=end - start, fetch=fetch, start=start)


def split_ranges(
    key: str, size: int, part_bytes: int = PART_BYTES_DEFAULT, start: int = 0
) -> list[Download[memoryview]]:
    """An object of `size` bytes, from `start` on, as ranges of at most `part_bytes`."""
    if part_bytes < 1:
        raise InvalidError(f"{key}: it cannot be split into parts of {part_bytes} bytes")
    return [
        byte_range(key, at, min(at + part_bytes, size)) for at in range(start, size, part_bytes)
    ]
