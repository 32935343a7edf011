"""Creating a key until its fate is known.

A create that was refused although nothing is there, a conflict, a time-out: all undecided, and
tried again with the same bytes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from neve import runtime
from neve.errors import ConflictError, ExistsError, NotFoundError, UnavailableError
from neve.store.port import Buffer, Store

# How long a writer keeps at a key whose fate it cannot learn, before it tells its caller.
UNDECIDED_SECONDS_MAX = 60.0
UNDECIDED_PAUSE_SECONDS = 0.05
UNDECIDED_PAUSE_SECONDS_MAX = 2.0


async def decide(
    store: Store, key: str, data: Buffer, passed: Callable[[], Awaitable[bool]] | None = None
) -> None:
    """Create a key with the same bytes until something is known to be there.

    Ours, or another's, which only reading tells; under a key that carries random bytes it is ours.
    `passed` ends the attempt when the key no longer matters.
    """
    give_up_at = runtime.monotonic() + UNDECIDED_SECONDS_MAX
    pause = UNDECIDED_PAUSE_SECONDS
    while True:
        try:
            await store.create(key, data)
            return
        except (ExistsError, ConflictError, UnavailableError):
            if await _is_there(store, key):
                return
        if passed is not None and await passed():
            return
        if runtime.monotonic() > give_up_at:
            raise UnavailableError(key, "could not be written for a minute; its fate is undecided")
        await runtime.sleep(pause * (0.75 + runtime.chance().random() / 2))
        pause = min(2 * pause, UNDECIDED_PAUSE_SECONDS_MAX)


async def _is_there(store: Store, key: str) -> bool:
    try:
        await store.get_range(key, 0, 1)
    except (NotFoundError, UnavailableError):
        return False
    return True
