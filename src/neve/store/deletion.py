"""Deleting many objects: side by side, but only so many at once."""

from __future__ import annotations

from collections.abc import Sequence

from neve import runtime
from neve.store.port import Store

# Enough to hide a store's latency; a task for each of a hundred thousand keys would only cost.
DELETES_AT_ONCE = 32
# For what a broker deletes all day beside its clients: it keeps up, and does not crowd them out.
DELETES_BESIDE_CLIENTS = 4


async def delete_all(store: Store, keys: Sequence[str], *, at_once: int = DELETES_AT_ONCE) -> None:
    """Delete all of these objects. The first failure ends it, and is raised."""
    waiting = iter(keys)

    async def worker() -> None:
        for key in waiting:
            await store.delete(key)

    await runtime.gather(*(worker() for _ in range(min(at_once, len(keys)))))
