"""The watched side: when a process must rewrite its heartbeat object.

It does so once an interval, unless every one of its watchers has pinged it lately: then no watcher
looks at the object. A ping counts only if it says that the ping before it was answered. A watcher
that does not hear the answers looks at the object, however many of its pings arrive.
"""

from __future__ import annotations

from collections.abc import Iterable

from neve.cluster.liveness.timing import ROUNDING_SECONDS, Timing


class Beats:
    """The heartbeats of one process. All times are of one monotonic clock."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._position = 0
        # Until when each watcher's last ping counts.
        self._covered_until: dict[int, float] = {}
        # Watchers that only a newer state of the cluster log names, by its position.
        self._ahead: dict[int, int] = {}
        self._beat_at: float | None = None
        self._count = 0

    def watch(self, watchers: Iterable[int], position: int, now: float) -> None:
        """Expect pings of these watchers (`watchers_of`), named by the cluster log at `position`.

        A new one has until two intervals from now for its first ping.
        """
        self._position = position
        self._ahead = {each: at for each, at in self._ahead.items() if at > position}
        until = now + self._timing.recent_seconds
        self._covered_until = {
            each: self._covered_until.get(each, until)
            for each in dict.fromkeys([*watchers, *self._ahead])
        }

    def pinged(self, watcher: int, now: float, *, hears: bool, position: int) -> None:
        """Take note of a ping. `position` is the sender's position in the cluster log.

        A sender that this process does not know as a watcher may know a newer state of the cluster
        log. It counts as a watcher until this process has read that state too.
        """
        if watcher not in self._covered_until:
            if position <= self._position:
                return
            self._ahead[watcher] = position
        self._covered_until[watcher] = now + self._timing.recent_seconds if hears else now

    def next_at(self) -> float | None:
        """Return when the next heartbeat is due if no ping arrives; None without a watcher."""
        if not self._covered_until:
            return None
        uncovered_at = min(self._covered_until.values())
        if self._beat_at is None:
            return uncovered_at
        return max(uncovered_at, self._beat_at + self._timing.interval_seconds)

    def due(self, now: float) -> int | None:
        """Return the count to write now, which is greater each time; None if none is due.

        The heartbeat counts as written: if that fails, the next one is due after an interval.
        """
        at = self.next_at()
        if at is None or at > now + ROUNDING_SECONDS:
            return None
        self._beat_at = now
        self._count += 1
        return self._count
