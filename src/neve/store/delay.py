"""A wrapper that delays gets, to give a local store the latency of a remote one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from neve import runtime
from neve.store.port import Store
from neve.store.wrapper import Call, Wrapper

T = TypeVar("T")


class DelayedGets(Wrapper):
    """Adds `delay_ms` to every get. Writes are not delayed."""

    def __init__(self, inner: Store, delay_ms: int) -> None:
        super().__init__(inner)
        self._seconds = delay_ms / 1000

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        if call.operation in ("get", "get_range"):
            await runtime.sleep(self._seconds)
        return await work()
