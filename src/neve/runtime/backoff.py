"""Exponential backoff with jitter."""

from __future__ import annotations

import asyncio

from neve.runtime.context import chance

JITTER_DEFAULT = 0.25


def backoff_seconds(failures: int, base_ms: int, cap_ms: int, jitter: float) -> float:
    """Return the pause after `failures` earlier failures; `jitter` is its random share, 0 to 1."""
    # Bound the exponent: an unbounded shift would build a huge integer.
    pause_ms = min(cap_ms, base_ms << min(failures, 32))
    return pause_ms * (1 - jitter * chance().random()) / 1000


class Backoff:
    """The backoff state of one retry loop."""

    def __init__(self, base_ms: int, cap_ms: int, jitter: float = JITTER_DEFAULT) -> None:
        self._bounds = (base_ms, cap_ms, jitter)
        self._failures = 0

    async def pause(self) -> None:
        """Count a failure and sleep."""
        await asyncio.sleep(backoff_seconds(self._failures, *self._bounds))
        self._failures += 1
