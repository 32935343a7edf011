"""One observer's view of one watched process: when to ping it, when to look, and whether it died.

A process that answers pings is alive, and its heartbeat object is not looked at. Once a ping fails,
the observer looks at the object too. The process is dead when it has answered no ping and shown no
new heartbeat for the session time-out. What counts is time between the observer's own successful
looks, at most one interval for each gap: while the store is unreachable, or the observer is paused,
the process may be unable to write, or the observer to see it. If a look fails, the count starts
over.

Each step that `due` returns is to be taken and reported once, with the method of its outcome. There
is at most one of each kind at a time.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from neve.cluster.liveness.timing import ROUNDING_SECONDS, Timing

_NO_COUNT = -1


class StepKind(enum.Enum):
    """What an observer does about a process that it watches."""

    PING = "ping"
    LOOK = "look"
    """Read its heartbeat object."""
    QUESTION = "question"
    """Ask its other watchers whether their connections to it are refused as well."""


class Step(NamedTuple):
    """A step to take now. A ping carries `hears`: whether the ping before it was answered."""

    kind: StepKind
    incarnation: int
    began: float
    hears: bool


class Reason(enum.StrEnum):
    """Why a process is believed dead."""

    SILENT = "silent"
    REFUSED = "refused"


class Verdict(NamedTuple):
    """A process that is believed dead."""

    incarnation: int
    reason: Reason


class Detector:
    """Watches one process. All times are of one monotonic clock."""

    def __init__(
        self, timing: Timing, incarnation: int, now: float, *, has_address: bool = True
    ) -> None:
        self.incarnation = incarnation
        self._timing = timing
        self._due = {StepKind.PING if has_address else StepKind.LOOK: now}
        self._begun: dict[StepKind, float] = {}
        self._hears = False
        self._newest = _NO_COUNT
        # Until it answers a ping, the process may not know yet that this observer watches it.
        self._grace_left = timing.grace_seconds
        self._silent = 0.0
        self._counted_to: float | None = None
        self._refused_since: float | None = None
        self._trusts_refusals = True
        self._death: Reason | None = None
        self._judged_at = 0.0

    # -- what to do ----------------------------------------------------------------------------

    def due(self, now: float) -> list[Step]:
        """Return the steps to take now. They count as begun."""
        until = now + ROUNDING_SECONDS
        kinds = [kind for kind, at in self._due.items() if kind not in self._begun and at <= until]
        return [self._begin(kind, now) for kind in kinds]

    def next_at(self) -> float | None:
        """Return when the next step is due; None until a step is reported."""
        return min((at for kind, at in self._due.items() if kind not in self._begun), default=None)

    def _begin(self, kind: StepKind, now: float) -> Step:
        self._begun[kind] = now
        del self._due[kind]
        if kind is StepKind.PING:
            self._due[kind] = now + self._timing.interval_seconds
        return Step(kind, self.incarnation, now, self._hears)

    def _ended(self, step: Step) -> bool:
        """Take note that a step has ended. Returns False if it is not one of this detector's."""
        if self._begun.get(step.kind) != step.began:
            return False
        del self._begun[step.kind]
        return True

    # -- pings ---------------------------------------------------------------------------------

    def answered(self, step: Step) -> bool:
        """The process answered a ping. Returns True: it is alive."""
        if not self._ended(step):
            return False
        self._hears = True
        self._due.pop(StepKind.LOOK, None)
        self._grace_left = 0.0
        self._lives(counted_to=None)
        return True

    def timed_out(self, step: Step, now: float) -> None:
        """A ping failed in any way but a refused connection."""
        if self._ended(step):
            self._unheard(now)
            self._refused_since = None
            self._due.pop(StepKind.QUESTION, None)

    def refused(self, step: Step, now: float) -> None:
        """The connection for a ping was refused.

        Before the process has had the time to learn that it is watched, it may not listen yet.
        """
        if not self._ended(step):
            return
        self._unheard(now)
        if self._trusts_refusals and self._grace_left <= 0:
            if self._refused_since is None:
                self._refused_since = now
            self._due[StepKind.QUESTION] = now

    def _unheard(self, now: float) -> None:
        self._hears = False
        if StepKind.LOOK not in self._begun:
            self._due.setdefault(StepKind.LOOK, now)

    def confirmed(self, step: Step, now: float) -> None:
        """Another watcher's connection was refused too, when it was asked."""
        if not self._ended(step) or self._refused_since is None:
            return
        was_asked_since = step.began >= self._refused_since
        if was_asked_since and now - step.began <= self._timing.recent_seconds:
            self._dies(Reason.REFUSED, now)

    def denied(self, step: Step) -> None:
        """No other watcher's connection was refused: only the session time-out counts."""
        if not self._ended(step):
            return
        self._refused_since = None
        if self._death is Reason.REFUSED:
            self._death = None

    # -- looks ---------------------------------------------------------------------------------

    def looked(self, step: Step, count: int | None, now: float) -> bool:
        """A look found a heartbeat's count, or None. Returns whether that is a sign of life.

        A count is new if it is greater than all before: an older write may land late. A look that
        found nothing new counts up to its beginning, one that did counts from its end, because only
        what lies between was observed.
        """
        if not self._ended(step):
            return False
        known = self._newest
        if count is not None:
            self._newest = max(known, count)
        if self._hears:
            return False
        interval = self._timing.interval_seconds
        if self._counted_to is None:  # what was written before the first look proves nothing
            self._counted_to = now
            self._due[StepKind.LOOK] = now + interval
            return False
        if self._newest > known:
            self._lives(counted_to=now)
            self._due[StepKind.LOOK] = now + interval
            return True
        counted_to = max(self._counted_to, step.began)
        gap = counted_to - self._counted_to
        self._add_silence(gap if gap < interval - ROUNDING_SECONDS else interval)
        self._counted_to = counted_to
        self._due[StepKind.LOOK] = counted_to + interval
        if self._silent + ROUNDING_SECONDS >= self._timing.session_seconds:
            self._dies(Reason.SILENT, now)
        return False

    def look_failed(self, step: Step) -> None:
        """A look failed: the process may be unable to reach the store as well."""
        if not self._ended(step):
            return
        self._silent = 0.0
        self._counted_to = None
        if self._grace_left > 0:
            self._grace_left = self._timing.grace_seconds
        if self._death is Reason.SILENT:
            self._death = None
        if not self._hears:
            self._due[StepKind.LOOK] = step.began + self._timing.interval_seconds

    def _add_silence(self, seconds: float) -> None:
        grace = min(self._grace_left, seconds)
        self._grace_left -= grace
        self._silent += seconds - grace

    # -- what follows --------------------------------------------------------------------------

    def verdict(self, now: float) -> Verdict | None:
        """Return the verdict if the process is believed dead, and was found so recently.

        A verdict that an observer reached before a pause says nothing about the time since.
        """
        if self._death is None or now - self._judged_at > self._timing.recent_seconds:
            return None
        return Verdict(self.incarnation, self._death)

    @property
    def is_dead(self) -> bool:
        return self._death is not None

    @property
    def seems_dead(self) -> bool:
        """Whether the process is dead, or is likely to be found dead soon."""
        half = 2 * self._silent >= self._timing.session_seconds
        return self.is_dead or half or self._refused_since is not None

    def start_over(self, now: float) -> None:
        """Doubt all evidence so far. From here on only the session time-out counts."""
        self._silent = 0.0
        if self._counted_to is not None:
            self._counted_to = now
            if StepKind.LOOK in self._due:
                self._due[StepKind.LOOK] = now + self._timing.interval_seconds
        self._refused_since = None
        self._due.pop(StepKind.QUESTION, None)
        self._trusts_refusals = False
        self._death = None

    def _lives(self, *, counted_to: float | None) -> None:
        self._silent = 0.0
        self._counted_to = counted_to
        self._refused_since = None
        self._due.pop(StepKind.QUESTION, None)
        self._trusts_refusals = True
        self._death = None

    def _dies(self, reason: Reason, now: float) -> None:
        self._death = reason
        self._judged_at = now
