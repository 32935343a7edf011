"""Pauses between attempts: they double up to a cap, and chance spreads them."""

from __future__ import annotations

import asyncio

from neve.runtime.context import chance

JITTER_DEFAULT = 0.25


def backoff_seconds(failures: int, base_ms: int, cap_ms: int, jitter: float) -> float:
    """The pause after so many earlier failures; `jitter` is the share of it drawn by chance."""
    # The exponent is bounded so that many attempts do not build a huge number first.
    pause_ms = min(cap_ms, base_ms << min(failures, 32))
    return pause_ms * (1 - jitter * chance().random()) / 1000


class Backoff:
    """The pauses of one who keeps trying."""

    def __init__(self, base_ms: int, cap_ms: int, jitter: float = JITTER_DEFAULT) -> None:
        self._bounds = (base_ms, cap_ms, jitter)
        self._failures = 0

    async def pause(self) -> None:
        """Wait after one more failure."""
        await asyncio.sleep(backoff_seconds(self._failures, *self._bounds))
        self._failures += 1
