"""Checks this machine's clock before it decides which records are old enough to delete.

Nothing between brokers depends on a clock. Retention by age has to: a clock that is a month ahead
expires a month too much. So the clock is compared with the store's, by the time that the store
gives to an object written for this purpose.
"""

from __future__ import annotations

from neve import runtime
from neve.bucket.verify.unreferenced_objects import PROBE_PREFIX
from neve.errors import InvalidError, UnavailableError
from neve.store.port import Store

SKEW_MAX_MS = 60_000
# Many stores give the time of an object in whole seconds.
STORE_RESOLUTION_MS = 1_000


async def clock_skew_ms(store: Store) -> int:
    """Return how far this machine's clock is ahead of the store's; negative if it is behind.

    Raises UnavailableError if the store does not list the object that was written.
    """
    key = f"{PROBE_PREFIX}clock-{runtime.token(8).hex()}"
    before_ms = runtime.now_ms()
    try:
        await store.put(key, b"what time is it?")
        after_ms = runtime.now_ms()
        rows = await store.list(key)
    finally:
        await store.delete(key)
    if not rows:
        raise UnavailableError(key, "it was written and is not listed: the store's time is unknown")
    stamped_ms = rows[0].modified_ms
    if stamped_ms > after_ms:
        return after_ms - stamped_ms
    return max(0, before_ms - stamped_ms - STORE_RESOLUTION_MS)


async def check_clock(store: Store, skew_max_ms: int = SKEW_MAX_MS) -> None:
    """Raise InvalidError if this machine's clock differs by more than `skew_max_ms`."""
    skew_ms = await clock_skew_ms(store)
    if abs(skew_ms) > skew_max_ms:
        direction = "ahead of" if skew_ms > 0 else "behind"
        raise InvalidError(
            f"this machine's clock is {abs(skew_ms) / 1000:.0f} s {direction} the store's, more "
            f"than {skew_max_ms / 1000:.0f} s: nothing is expired by it; set the clock first"
        )
