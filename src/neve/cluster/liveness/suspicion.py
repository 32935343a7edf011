"""All processes that one observer watches, and its doubt about itself.

When more than half of them seem dead at once, the observer is more likely cut off than right. It
then starts over once: a process has to be silent for another session time-out before it is believed
dead. After that the verdicts stand, until the process shows a sign of life.
"""

from __future__ import annotations

from collections.abc import Iterable

from neve.cluster.liveness.detector import Detector, Step, Verdict
from neve.cluster.liveness.timing import Timing
from neve.cluster.state import BrokerRegistration


class Observer:
    """Watches processes. Every step from `due` is to be reported once, with its outcome.

    A step of a process that is no longer watched may be reported, without effect.
    """

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._detectors: dict[int, Detector] = {}
        self._doubted: frozenset[int] = frozenset()

    def watch(self, brokers: Iterable[BrokerRegistration], now: float) -> None:
        """Watch these processes and no others (`watched_by`)."""
        self._detectors = {
            row.incarnation: self._detectors.get(row.incarnation)
            or Detector(self._timing, row.incarnation, now, has_address=row.port != 0)
            for row in brokers
        }
        self._doubted = self._doubted.intersection(self._detectors)

    def due(self, now: float) -> list[Step]:
        """Return the steps to take now. They count as begun."""
        return [step for each in self._detectors.values() for step in each.due(now)]

    def next_at(self) -> float | None:
        """Return when `due` has a step at the earliest; None until a step is reported."""
        times = [each.next_at() for each in self._detectors.values()]
        return min((at for at in times if at is not None), default=None)

    def dead(self, now: float) -> list[Verdict]:
        """Return the verdicts that stand. A sign of life withdraws one, and so does time."""
        verdicts = [each.verdict(now) for each in self._detectors.values()]
        return [verdict for verdict in verdicts if verdict is not None]

    # -- outcomes of steps ---------------------------------------------------------------------

    def answered(self, step: Step) -> None:
        """The process answered a ping, as this very incarnation."""
        detector = self._detectors.get(step.incarnation)
        if detector is not None and detector.answered(step):
            self._trust(step.incarnation)

    def timed_out(self, step: Step, now: float) -> None:
        """A ping failed in any way but a refused connection."""
        detector = self._detectors.get(step.incarnation)
        if detector is not None:
            detector.timed_out(step, now)

    def refused(self, step: Step, now: float) -> None:
        """The connection for a ping was refused."""
        detector = self._detectors.get(step.incarnation)
        if detector is not None:
            detector.refused(step, now)

    def looked(self, step: Step, count: int | None, now: float) -> None:
        """A look found the count of the heartbeat, or None if there is none to be read."""
        detector = self._detectors.get(step.incarnation)
        if detector is None:
            return
        if detector.looked(step, count, now):
            self._trust(step.incarnation)
        self._doubt(detector, now)

    def look_failed(self, step: Step) -> None:
        """A look failed."""
        detector = self._detectors.get(step.incarnation)
        if detector is not None:
            detector.look_failed(step)

    def confirmed(self, step: Step, now: float) -> None:
        """A watcher that was asked found that its connections are refused too."""
        detector = self._detectors.get(step.incarnation)
        if detector is not None:
            detector.confirmed(step, now)
            self._doubt(detector, now)

    def denied(self, step: Step) -> None:
        """No watcher that was asked found that, or none answered in time."""
        detector = self._detectors.get(step.incarnation)
        if detector is not None:
            detector.denied(step)

    # -- doubt ---------------------------------------------------------------------------------

    def _doubt(self, detector: Detector, now: float) -> None:
        """Start over if a process was found dead, and most others seem dead as well."""
        if not detector.is_dead or detector.incarnation in self._doubted:
            return
        seeming = sum(each.seems_dead for each in self._detectors.values())
        if 2 * seeming <= len(self._detectors):
            return
        for each in self._detectors.values():
            if each.incarnation not in self._doubted:
                each.start_over(now)
        self._doubted = frozenset(self._detectors)

    def _trust(self, incarnation: int) -> None:
        self._doubted -= {incarnation}
