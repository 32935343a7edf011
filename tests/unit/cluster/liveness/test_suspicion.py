"""An observer of several processes: its doubt when most of them seem dead, and what it watches."""

from __future__ import annotations

from dataclasses import dataclass, field

from neve.cluster.liveness.detector import Reason, Step, StepKind, Verdict
from neve.cluster.liveness.suspicion import Observer
from support.liveness_world import TIMING, broker

SESSION = TIMING.session_seconds
GAPS = 6


@dataclass
class Watch:
    """An observer of the processes 1 to n, those of which in `silent` do nothing any more."""

    count: int
    now: float = 500.0
    silent: set[int] = field(default_factory=set)
    refusing: set[int] = field(default_factory=set)
    failing: set[int] = field(default_factory=set)
    """Those whose heartbeats cannot be read."""
    confirmed: bool = False
    counts: dict[int, int] = field(default_factory=dict)
    verdicts: dict[int, float] = field(default_factory=dict)
    """When each process was first believed dead."""
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.observer = Observer(TIMING)
        self.watch(*range(1, self.count + 1))

    def watch(self, *incarnations: int) -> None:
        self.observer.watch([broker(each) for each in incarnations], self.now)

    def run(self, seconds: float) -> None:
        """Take every step as it becomes due."""
        end = self.now + seconds
        while (at := self.observer.next_at()) is not None and at <= end:
            self.now = max(self.now, at)
            for step in self.observer.due(self.now):
                self._take(step)
            for verdict in self.observer.dead(self.now):
                self.verdicts.setdefault(verdict.incarnation, self.now)
        self.now = end

    def _take(self, step: Step) -> None:
        self.steps.append(step)
        observer, each = self.observer, step.incarnation
        if step.kind is StepKind.LOOK and each in self.failing:
            observer.look_failed(step)
        elif step.kind is StepKind.LOOK:
            observer.looked(step, self.counts.get(each), self.now)
        elif step.kind is StepKind.QUESTION and self.confirmed:
            observer.confirmed(step, self.now)
        elif step.kind is StepKind.QUESTION:
            observer.denied(step)
        elif each in self.refusing:
            observer.refused(step, self.now)
        elif each in self.silent:
            observer.timed_out(step, self.now)
        else:
            observer.answered(step)

    @property
    def dead(self) -> dict[int, Reason]:
        return {each.incarnation: each.reason for each in self.observer.dead(self.now)}


def test_half_of_the_processes_are_believed_dead_after_one_time_out() -> None:
    watch = Watch(4)
    watch.run(2.5)
    watch.silent |= {1, 2}
    watch.run(SESSION + 1.0)
    assert watch.dead == {1: Reason.SILENT, 2: Reason.SILENT}


def test_more_than_half_are_believed_dead_after_two() -> None:
    watch = Watch(3)
    watch.run(2.5)
    watch.silent |= {1, 2}
    failed_at = watch.now + 0.5
    watch.run(2 * SESSION + 0.4)
    assert watch.verdicts == {}
    watch.run(0.2)
    assert watch.dead == {1: Reason.SILENT, 2: Reason.SILENT}
    assert set(watch.verdicts.values()) == {failed_at + 2 * SESSION}


def test_the_only_other_process_is_more_than_half() -> None:
    watch = Watch(1)
    watch.run(0.5)
    watch.silent.add(1)
    watch.run(SESSION + 1.0)
    assert watch.dead == {}
    watch.run(SESSION)
    assert watch.dead == {1: Reason.SILENT}


def test_the_observer_doubts_before_the_first_of_many_is_believed_dead() -> None:
    """They are not found dead in the same instant, but are all on their way to it."""
    watch = Watch(3)
    watch.run(2.5)
    watch.silent.add(1)
    watch.run(2.0)
    watch.silent |= {2, 3}
    watch.run(SESSION + 2.0)
    assert watch.verdicts == {}


def test_one_that_fails_much_later_is_not_at_once() -> None:
    watch = Watch(3)
    watch.run(2.5)
    watch.silent.add(1)
    watch.run(SESSION - 1.0)
    watch.silent |= {2, 3}
    watch.run(2.0)
    assert watch.dead == {1: Reason.SILENT}


def test_once_doubted_the_verdicts_stand_even_if_more_die() -> None:
    watch = Watch(5)
    watch.run(2.5)
    watch.silent |= {1, 2, 3}
    watch.run(SESSION + 1.0)  # started over
    watch.silent |= {4, 5}
    watch.run(SESSION)
    assert watch.dead == dict.fromkeys((1, 2, 3), Reason.SILENT)


def test_all_that_are_watched_start_over() -> None:
    """Also one that has been silent for a short time only."""
    watch = Watch(3)
    watch.run(2.5)
    watch.silent |= {1, 2}
    watch.run(4.0)
    watch.silent.add(3)
    watch.run(2.5)
    started_over_at = 503.0 + SESSION
    watch.run(2 * SESSION)
    assert watch.verdicts == dict.fromkeys((1, 2, 3), started_over_at + SESSION)


def test_after_a_sign_of_life_there_is_doubt_again() -> None:
    watch = Watch(2)
    watch.run(2.5)
    for _ in range(3):
        watch.silent |= {1, 2}
        watch.run(SESSION + 1.0)
        assert watch.dead == {}
        watch.silent.clear()
        watch.run(2.0)
    watch.silent |= {1, 2}
    watch.run(2 * SESSION + 1.0)
    assert watch.dead == {1: Reason.SILENT, 2: Reason.SILENT}


def test_a_new_heartbeat_is_a_sign_of_life_too() -> None:
    watch = Watch(2)
    watch.run(2.5)
    watch.silent |= {1, 2}
    watch.run(SESSION + 1.0)
    watch.counts |= {1: 1, 2: 1}
    watch.run(SESSION + 2.0)
    assert watch.verdicts == {}


def test_one_that_flaps_does_not_delay_another_again() -> None:
    watch = Watch(2)
    watch.run(2.5)
    watch.silent |= {1, 2}
    watch.run(SESSION + 1.0)  # started over
    doubted_at = watch.now
    watch.silent.discard(2)
    watch.run(1.0)
    watch.silent.add(2)
    watch.run(SESSION)
    assert watch.verdicts[1] <= doubted_at + SESSION
    assert 2 not in watch.verdicts


def test_one_that_was_doubted_before_does_not_start_over_with_others() -> None:
    watch = Watch(2)
    watch.run(2.5)
    watch.silent |= {1, 2}
    watch.run(SESSION + 1.0)  # started over
    watch.failing.add(1)
    watch.silent.discard(2)
    watch.run(2.0)
    watch.silent.add(2)
    watch.run(1.0)
    watch.failing.clear()
    counts_from = watch.now
    watch.run(SESSION + 2.0)
    assert watch.verdicts[1] <= counts_from + SESSION + 1.0
    assert 2 not in watch.verdicts


def test_confirmed_refusals_of_one_are_believed_at_once() -> None:
    watch = Watch(3, confirmed=True)
    watch.run(2.5)
    watch.refusing.add(1)
    watch.run(1.0)
    assert watch.dead == {1: Reason.REFUSED}


def test_confirmed_refusals_of_most_are_doubted_once() -> None:
    watch = Watch(1, confirmed=True)
    watch.run(2.5)
    watch.refusing.add(1)
    watch.run(SESSION)
    assert watch.dead == {}
    watch.run(1.0)
    assert watch.dead == {1: Reason.SILENT}


def test_after_a_sign_of_life_refusals_count_again() -> None:
    watch = Watch(3, confirmed=True)
    watch.run(2.5)
    watch.refusing |= {1, 2}
    watch.run(2.0)
    watch.refusing.clear()
    watch.run(2.0)
    watch.refusing.add(1)
    watch.run(1.0)
    assert watch.dead == {1: Reason.REFUSED}


def test_what_is_watched_before_and_after_a_change_keeps_its_history() -> None:
    watch = Watch(3)
    watch.run(2.5)
    watch.silent.add(1)
    watch.run(3.0)
    watch.watch(1, 2, 4)
    watch.run(SESSION - 2.0)
    assert watch.dead == {1: Reason.SILENT}


def test_what_is_not_watched_any_more_is_neither_pinged_nor_dead() -> None:
    watch = Watch(3)
    watch.run(2.5)
    watch.silent.add(1)
    watch.run(SESSION + 1.0)
    assert watch.dead == {1: Reason.SILENT}
    watch.watch(2, 3)
    assert watch.dead == {}
    watch.steps.clear()
    watch.run(3.0)
    assert {step.incarnation for step in watch.steps} == {2, 3}


def test_a_step_of_a_process_that_is_not_watched_any_more_has_no_effect() -> None:
    watch = Watch(1)
    (step,) = watch.observer.due(watch.now)
    watch.watch()
    assert watch.observer.next_at() is None
    for report in (watch.observer.answered, watch.observer.look_failed, watch.observer.denied):
        report(step)
    watch.observer.timed_out(step, watch.now)
    watch.observer.refused(step, watch.now)
    watch.observer.looked(step, 1, watch.now)
    watch.observer.confirmed(step, watch.now)
    # Watched again, it is another story, with a grace of its own.
    watch.watch(1)
    watch.observer.answered(step)
    watch.silent.add(1)
    watch.run(TIMING.grace_seconds + SESSION - 0.5)
    assert watch.observer.dead(watch.now) == []


def test_a_process_without_an_address_is_watched_by_looks() -> None:
    observer = Observer(TIMING)
    observer.watch([broker(1, port=0)], 0.0)
    assert [step.kind for step in observer.due(0.0)] == [StepKind.LOOK]


def test_nothing_is_due_without_anything_to_watch() -> None:
    observer = Observer(TIMING)
    assert observer.due(0.0) == []
    assert observer.next_at() is None
    verdicts: list[Verdict] = observer.dead(0.0)
    assert verdicts == []
