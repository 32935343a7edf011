"""Creating a key until its fate is known.

A create that was refused although nothing is there, a conflict, a time-out: all undecided, and
tried again with the same bytes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from neve import runtime
from neve.errors import ConflictError, ExistsError, NotFoundError, UnavailableError
from neve.store.port import Buffer, Store

# How long a writer retries a create whose outcome it cannot learn, before it raises.
UNDECIDED_SECONDS_MAX = 60.0
UNDECIDED_PAUSE_MS = 50
UNDECIDED_PAUSE_MS_MAX = 2_000

Question: TypeAlias = Callable[[], Awaitable[bool]]


async def decide(store: Store, key: str, data: Buffer, passed: Question | None = None) -> None:
    """Create a key with the same bytes until an object is known to be there.

    It may be another writer's: read it to decide. `passed` ends the attempt when the key no longer
    matters.
    """
    await _create_until(store, key, data, lambda: _is_there(store, key), passed)


async def create_own(store: Store, key: str, data: Buffer) -> None:
    """Create an object under a key that only we use, and know for certain that it is there.

    ExistsError where the key turns out to hold other bytes than ours.
    """
    await _create_until(store, key, data, lambda: _holds(store, key, data), None)


async def _create_until(
    store: Store, key: str, data: Buffer, decided: Question, passed: Question | None
) -> None:
    give_up_at = runtime.monotonic() + UNDECIDED_SECONDS_MAX
    backoff = runtime.Backoff(UNDECIDED_PAUSE_MS, UNDECIDED_PAUSE_MS_MAX)
    while True:
        try:
            await store.create(key, data)
            return
        except (ExistsError, ConflictError, UnavailableError):
            if await decided():
                return
        if passed is not None and await passed():
            return
        if runtime.monotonic() > give_up_at:
            raise UnavailableError(key, "could not be written for a minute; its fate is undecided")
        await backoff.pause()


async def _is_there(store: Store, key: str) -> bool:
    try:
        await store.get_range(key, 0, 1)
    except (NotFoundError, UnavailableError):
        return False
    return True


async def _holds(store: Store, key: str, data: Buffer) -> bool:
    """Return whether the key holds our bytes; False if it does not exist or cannot be read."""
    try:
        found = await store.get_range(key, 0, len(data) + 1)
        if found != memoryview(data):  # once more: half an answer also differs
            found = await store.get_range(key, 0, len(data) + 1)
    except (NotFoundError, UnavailableError):
        return False
    if found != memoryview(data):
        raise ExistsError(
            key,
            f"another object has this key, not ours of {len(data)} bytes: upload under a new key",
        )
    return True
