"""One attempt of one call may take only so long.

It stands below the gate, so that the time spent waiting for a slot does not count: a queue would
otherwise turn into failures that were never sent, and those into retries. A write that is given
up may still take effect later, which is what UnavailableError says.
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
    """Ends a call that hangs, as UnavailableError."""

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
