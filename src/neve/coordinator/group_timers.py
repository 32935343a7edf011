"""Timers of all groups: one task that calls back for each group whose timer has expired.

A group without a timer costs nothing. Moving a timer to a later time costs one comparison: the
callback then comes early, and the group sets its timer again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from neve import runtime

_PAUSE_SECONDS_MIN = 0.001


def monotonic_ms() -> int:
    return int(runtime.monotonic() * 1000)


class GroupTimers:
    """Calls `on_expired(group_id)` from the task that runs `run`."""

    def __init__(self, on_expired: Callable[[str], None]) -> None:
        self._on_expired = on_expired
        self._deadlines: runtime.DeadlineQueue[str] = runtime.DeadlineQueue()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, group_id: str, at_ms: int | None) -> None:
        """Call back at `at_ms` or earlier. None changes nothing."""
        if at_ms is None or not self._deadlines.set_if_earlier(group_id, at_ms):
            return
        if self._deadlines.next_at() == at_ms:
            self._changed.set()

    def clear(self, group_id: str) -> None:
        self._deadlines.drop(group_id)

    async def run(self) -> None:
        while True:
            self._changed.clear()
            now_ms = monotonic_ms()
            while (group_id := self._deadlines.pop(now_ms)) is not None:
                self._on_expired(group_id)
            try:
                async with runtime.deadline(self._pause_seconds()):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _pause_seconds(self) -> float | None:
        at_ms = self._deadlines.next_at()
        if at_ms is None:
            return None
        return max(at_ms / 1000 - runtime.monotonic(), _PAUSE_SECONDS_MIN)
