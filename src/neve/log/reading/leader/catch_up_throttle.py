"""How fast those who lag are served while others are served as well.

A reader that catches up takes whatever it is given, as fast as its client can, and so a whole
processor. While nobody else is there it may. While records are produced, or read as they come, it
waits as soon as this process has used its share of a processor, and that is what keeps the others
as quick as they are alone. However busy the process is, some is given out all the time.
"""

from __future__ import annotations

from collections.abc import Callable

from neve import runtime

# The share is of so much time, and a moment of work is never too much.
WINDOW_SECONDS = 0.1
BURST_SECONDS = 0.002
# Nobody waits longer than this for a chunk.
PAUSE_SECONDS_MAX = 0.02


class CatchUpThrottle:
    """Says when the next chunk may be given out.

    `hot_work` counts what is done for others: as long as it grows, they are there. `share` is the
    part of one processor up to which those who lag are served beside them; 0 stands for no bound.
    """

    def __init__(self, hot_work: Callable[[], int], share: float) -> None:
        self._hot_work = hot_work
        self._share = share
        self._window_from = runtime.monotonic()
        self._cpu_from = runtime.cpu_seconds()
        self._work_from = hot_work()
        self._beside_others = False
        self.pauses = 0

    def pause_seconds(self) -> float:
        """How long the next chunk should wait; 0 where it need not."""
        now = runtime.monotonic()
        if now - self._window_from >= WINDOW_SECONDS:
            self._begin_window(now)
        if not self._beside_others or not self._share:
            return 0.0
        used = runtime.cpu_seconds() - self._cpu_from
        over = (used - BURST_SECONDS) / self._share - (now - self._window_from)
        return min(max(over, 0.0), PAUSE_SECONDS_MAX)

    async def turn(self) -> None:
        """Wait until a chunk may be given out."""
        seconds = self.pause_seconds()
        if seconds:
            self.pauses += 1
            await runtime.sleep(seconds)

    def _begin_window(self, now: float) -> None:
        work = self._hot_work()
        self._beside_others = work != self._work_from
        self._window_from, self._work_from = now, work
        self._cpu_from = runtime.cpu_seconds()
