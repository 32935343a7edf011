"""Clocks, sleeping, and exponential backoff with jitter."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from neve.runtime.context import chance, world

JITTER_DEFAULT = 0.25
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


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


def ms_from_wall(moment: datetime) -> int:
    """Return a moment with a time zone in milliseconds since 1970, rounded up.

    A range of timestamps from or up to the moment begins or ends there: timestamps are integers.
    """
    return -((_EPOCH - moment) // _MILLISECOND)


async def sleep(seconds: float) -> None:
    """Pause this task."""
    await asyncio.sleep(seconds)


def deadline(seconds: float | None) -> asyncio.Timeout:
    """Return a context manager that raises TimeoutError after `seconds`; None means no limit."""
    return asyncio.timeout(seconds)


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
        await sleep(backoff_seconds(self._failures, *self._bounds))
        self._failures += 1
