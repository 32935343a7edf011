"""One clock for many groups: rings for a name when its time has come.

A heap and one task. A name that is not set costs nothing, and setting a name to a later time than
it already has costs one comparison: it rings early, and whoever hears it looks again.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from neve import runtime

_STALE_MAX = 1024


def monotonic_ms() -> int:
    return int(runtime.monotonic() * 1000)


class Alarm:
    """Calls `ring(name)` from its own task; run it with `run`."""

    def __init__(self, ring: Callable[[str], None]) -> None:
        self._ring = ring
        self._due: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def set(self, name: str, when_ms: int | None) -> None:
        """Ring by `when_ms` at the latest. None asks for nothing."""
        if when_ms is None or self._due.get(name, when_ms + 1) <= when_ms:
            return
        self._due[name] = when_ms
        heapq.heappush(self._heap, (when_ms, name))
        if self._heap[0][0] == when_ms:
            self._changed.set()

    def clear(self, name: str) -> None:
        self._due.pop(name, None)
        if len(self._heap) > 2 * len(self._due) + _STALE_MAX:
            self._heap = [(when_ms, name) for name, when_ms in self._due.items()]
            heapq.heapify(self._heap)

    async def run(self) -> None:
        while True:
            self._changed.clear()
            self._ring_due()
            try:
                async with runtime.deadline(self._pause_s()):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _ring_due(self) -> None:
        now_ms = monotonic_ms()
        while self._heap and self._heap[0][0] <= now_ms:
            when_ms, name = heapq.heappop(self._heap)
            if self._due.get(name) == when_ms:
                del self._due[name]
                self._ring(name)

    def _pause_s(self) -> float | None:
        if not self._heap:
            return None
        return max(self._heap[0][0] / 1000 - runtime.monotonic(), 0.001)
