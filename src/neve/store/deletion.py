"""Concurrent deletion of many objects, with a limit."""

from __future__ import annotations

from collections.abc import Sequence

from neve import runtime
from neve.store.port import Store

# Enough to hide a store's latency, without a task for each of a hundred thousand keys.
DELETES_AT_ONCE = 32
# For a broker's background deletions: enough to keep up without delaying clients.
DELETES_BESIDE_CLIENTS = 4


async def delete_all(store: Store, keys: Sequence[str], *, at_once: int = DELETES_AT_ONCE) -> None:
    """Delete all of these objects. Stops at the first failure and raises it."""
    waiting = iter(keys)

    async def worker() -> None:
        for key in waiting:
            await store.delete(key)

    await runtime.gather(*(worker() for _ in range(min(at_once, len(keys)))))
