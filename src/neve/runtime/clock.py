"""Clocks and sleeping."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from neve.runtime.context import world


def monotonic() -> float:
    """Seconds on a clock that never goes back; only differences mean anything."""
    return world.get().monotonic()


def cpu_seconds() -> float:
    """Processor time that this process has used; none in simulation."""
    return world.get().cpu()


def now_ms() -> int:
    """The wall clock in milliseconds since 1970, for timestamps that people and records carry."""
    return int(world.get().wall() * 1000)


def wall_from_ms(timestamp_ms: int) -> datetime:
    """A timestamp as a UTC date and time, for showing it."""
    return datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC)


async def sleep(seconds: float) -> None:
    """Pause this task."""
    await asyncio.sleep(seconds)


def deadline(seconds: float | None) -> asyncio.Timeout:
    """`async with deadline(s):` raises TimeoutError when the body takes longer; None never does."""
    return asyncio.timeout(seconds)
