"""A store that answers gets late: what a faraway bucket feels like, on a local one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from neve import runtime
from neve.store.port import Store
from neve.store.wrapper import Call, Wrapper

T = TypeVar("T")


class DelayedGets(Wrapper):
    """So many milliseconds are added to every get. Writes are as they were."""

    def __init__(self, inner: Store, delay_ms: int) -> None:
        super().__init__(inner)
        self._seconds = delay_ms / 1000

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        if call.operation in ("get", "get_range"):
            await runtime.sleep(self._seconds)
        return await work()
