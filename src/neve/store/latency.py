"""Wrappers around the time that a store call takes: one bounds it, one adds to it.

The timeout is below the gate, so that waiting for a slot does not count: a long queue would
otherwise cause timeouts of calls that were never sent, and then retries. A write that timed out may
still take effect later, as UnavailableError documents.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from neve import runtime
from neve.errors import UnavailableError
from neve.store.port import Store
from neve.store.wrapper import Call, Wrapper

T = TypeVar("T")


class Timeout(Wrapper):
    """Raises UnavailableError for a call that takes longer than `timeout_ms`."""

    def __init__(self, inner: Store, timeout_ms: int) -> None:
        super().__init__(inner)
        self._timeout_ms = timeout_ms

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        try:
            async with runtime.deadline(self._timeout_ms / 1000):
                return await work()
        except TimeoutError as error:
            raise UnavailableError(
                call.key, f"{call.operation} took longer than {self._timeout_ms} ms"
            ) from error


class DelayedGets(Wrapper):
    """Adds `delay_ms` to every get, as a remote store would. Writes are not delayed."""

    def __init__(self, inner: Store, delay_ms: int) -> None:
        super().__init__(inner)
        self._seconds = delay_ms / 1000

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        if call.operation in ("get", "get_range"):
            await runtime.sleep(self._seconds)
        return await work()
