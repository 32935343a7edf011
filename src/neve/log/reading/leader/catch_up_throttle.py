"""Throttles catch-up reads while live traffic is served.

A consumer that catches up reads as fast as it can, and can occupy a whole CPU core. Without live
traffic it may. While records are produced, or read from memory, catch-up reads wait once this
process has used a share of a core, so that live traffic keeps its latency. The wait is limited, so
that catch-up reads make progress however busy the process is.
"""

from __future__ import annotations

from collections.abc import Callable

from neve import runtime

# The share is measured over a window; a short burst of work is always allowed.
WINDOW_SECONDS = 0.1
BURST_SECONDS = 0.002
# The longest wait for a chunk.
PAUSE_SECONDS_MAX = 0.02


class CatchUpThrottle:
    """Decides when a catch-up reader gets its next chunk.

    `hot_work` returns a count of work for live traffic, which grows while there is any. `share` is
    the part of one CPU core that this process may use before catch-up reads wait during live
    traffic; 0 means no limit.
    """

    def __init__(self, hot_work: Callable[[], int], share: float) -> None:
        self._hot_work = hot_work
        self._share = share
        self._window_from = runtime.monotonic()
        self._cpu_from = runtime.cpu_seconds()
        self._work_from = hot_work()
        self._live_traffic = False
        self.pauses = 0

    def pause_seconds(self) -> float:
        """Return how long the next chunk has to wait, in seconds."""
        now = runtime.monotonic()
        if now - self._window_from >= WINDOW_SECONDS:
            self._begin_window(now)
        if not self._live_traffic or not self._share:
            return 0.0
        used = runtime.cpu_seconds() - self._cpu_from
        over = (used - BURST_SECONDS) / self._share - (now - self._window_from)
        return min(max(over, 0.0), PAUSE_SECONDS_MAX)

    async def turn(self) -> None:
        """Wait until the next chunk may be read."""
        seconds = self.pause_seconds()
        if seconds:
            self.pauses += 1
            await runtime.sleep(seconds)

    def _begin_window(self, now: float) -> None:
        work = self._hot_work()
        self._live_traffic = work != self._work_from
        self._window_from, self._work_from = now, work
        self._cpu_from = runtime.cpu_seconds()
