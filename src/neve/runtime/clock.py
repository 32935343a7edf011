"""Clocks and sleeping."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from neve.runtime.context import world


def monotonic() -> float:
    """Return the monotonic clock in seconds; only differences are meaningful."""
    return world.get().monotonic()


def cpu_seconds() -> float:
    """Return the CPU time of this process in seconds; 0 in simulation."""
    return world.get().cpu()


def now_ms() -> int:
    """Return the wall clock in milliseconds since 1970, for timestamps."""
    return int(world.get().wall() * 1000)


def wall_from_ms(timestamp_ms: int) -> datetime:
    """Convert a timestamp to a UTC datetime, for display."""
    return datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC)


async def sleep(seconds: float) -> None:
    """Pause this task."""
    await asyncio.sleep(seconds)


def deadline(seconds: float | None) -> asyncio.Timeout:
    """Return a context manager that raises TimeoutError after `seconds`; None means no limit."""
    return asyncio.timeout(seconds)
