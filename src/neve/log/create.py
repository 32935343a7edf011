"""Creates a key, and retries until the outcome is known.

The outcome is undecided after a timeout, a conflict, or a refusal although the key does not exist.
The create is then retried with the same bytes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from neve import runtime
from neve.errors import ConflictError, ExistsError, NotFoundError, UnavailableError
from neve.store.port import Buffer, Store

# How long a writer retries a create whose outcome is undecided before it raises.
UNDECIDED_SECONDS_MAX = 60.0
UNDECIDED_PAUSE_MS = 50
UNDECIDED_PAUSE_MS_MAX = 2_000

Question: TypeAlias = Callable[[], Awaitable[bool]]


async def decide(store: Store, key: str, data: Buffer, passed: Question | None = None) -> None:
    """Create a key, and retry until an object with this key exists.

    The object may be another writer's: the caller must read it to find out. `passed` returns True
    once the key no longer matters, which ends the retries. Raises UnavailableError if the outcome
    is still undecided after UNDECIDED_SECONDS_MAX.
    """
    await _create_until(store, key, data, lambda: _is_there(store, key), passed)


async def create_own(store: Store, key: str, data: Buffer) -> None:
    """Create an object under a key that only this caller uses, and retry until it exists.

    Raises ExistsError if the key has other bytes.
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
    """Return True if the key has these bytes; False if it does not exist or cannot be read.

    Raises ExistsError if it has other bytes.
    """
    try:
        found = await store.get_range(key, 0, len(data) + 1)
        if found != memoryview(data):  # read again: a truncated response also differs
            found = await store.get_range(key, 0, len(data) + 1)
    except (NotFoundError, UnavailableError):
        return False
    if found != memoryview(data):
        raise ExistsError(
            key,
            f"another object has this key, not ours of {len(data)} bytes: upload under a new key",
        )
    return True
