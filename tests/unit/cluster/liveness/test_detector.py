"""One observer and one process: each rule of the detector, step by step."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from neve.cluster.liveness.detector import Detector, Reason, Step, StepKind
from support.liveness_world import TIMING

PING, LOOK, QUESTION = StepKind.PING, StepKind.LOOK, StepKind.QUESTION
SESSION, GRACE = TIMING.session_seconds, TIMING.grace_seconds
GAPS = 6  # as many intervals as the session time-out has
FOUND = 7  # the count of a heartbeat that was there before


@dataclass
class Scene:
    """A detector, and the steps that it has begun."""

    now: float = 1000.0
    has_address: bool = True
    begun: dict[StepKind, Step] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.detector = Detector(TIMING, 5, self.now, has_address=self.has_address)

    def due(self, seconds: float = 0.0) -> set[StepKind]:
        """Let time pass. The kinds of steps that are due then."""
        self.now += seconds
        steps = self.detector.due(self.now)
        self.begun |= {step.kind: step for step in steps}
        return {step.kind for step in steps}

    def answer(self) -> None:
        assert self.detector.answered(self.begun.pop(PING))

    def time_out(self) -> None:
        self.detector.timed_out(self.begun.pop(PING), self.now)

    def refuse(self) -> None:
        self.detector.refused(self.begun.pop(PING), self.now)

    def see(self, count: int | None = FOUND, *, seconds: float = 0.0) -> bool:
        """End a look, `seconds` after it began."""
        self.now += seconds
        return self.detector.looked(self.begun.pop(LOOK), count, self.now)

    def fail_look(self) -> None:
        self.detector.look_failed(self.begun.pop(LOOK))

    def confirm(self) -> None:
        self.detector.confirmed(self.begun.pop(QUESTION), self.now)

    def deny(self) -> None:
        self.detector.denied(self.begun.pop(QUESTION))

    def look_once(self, count: int | None = FOUND) -> None:
        """Wait for the next look, while pings time out, and let it find this count."""
        while LOOK not in self.begun:
            at = self.detector.next_at()
            assert at is not None
            self.due(max(0.0, at - self.now))
            if PING in self.begun:
                self.time_out()
        self.see(count)

    def silence(self, looks: int) -> None:
        for _ in range(looks):
            self.look_once()

    @property
    def reason(self) -> Reason | None:
        verdict = self.detector.verdict(self.now)
        return None if verdict is None else verdict.reason


def heard() -> Scene:
    """A process that has answered the first ping."""
    scene = Scene()
    assert scene.due() == {PING}
    scene.answer()
    return scene


def unheard() -> Scene:
    """A process that answered once, and whose heartbeat was looked at once since."""
    scene = heard()
    scene.due(1.0)
    scene.time_out()
    scene.look_once()
    return scene


# -- pings and looks -----------------------------------------------------------------------------


def test_while_pings_are_answered_nothing_is_looked_at() -> None:
    scene = heard()
    for _ in range(100):
        assert scene.detector.next_at() == scene.now + 1.0
        assert scene.due(1.0) == {PING}
        scene.answer()


def test_the_next_ping_is_due_an_interval_after_the_last_one_began() -> None:
    scene = Scene()
    scene.due()
    assert scene.due(0.4) == set()
    scene.answer()
    assert scene.detector.next_at() == scene.now + 0.6


def test_a_ping_in_flight_delays_the_next_one() -> None:
    scene = Scene()
    scene.due()
    assert scene.due(5.0) == set()
    assert scene.detector.next_at() is None
    scene.answer()
    assert scene.due() == {PING}


def test_a_ping_says_whether_the_one_before_was_answered() -> None:
    scene = Scene()
    scene.due()
    assert not scene.begun[PING].hears
    scene.answer()
    scene.due(1.0)
    assert scene.begun[PING].hears
    scene.time_out()
    scene.due(1.0)
    assert not scene.begun[PING].hears


@pytest.mark.parametrize("refused", [False, True])
def test_a_failed_ping_is_followed_by_a_look_at_once(refused: bool) -> None:
    scene = heard()
    scene.due(1.0)
    if refused:
        scene.refuse()
    else:
        scene.time_out()
    assert LOOK in scene.due()


def test_looks_are_an_interval_apart_and_one_at_a_time() -> None:
    scene = unheard()
    assert LOOK not in scene.due(0.9)
    assert LOOK in scene.due(0.1)
    assert LOOK not in scene.due(10.0)
    scene.see()
    assert LOOK in scene.due()


def test_after_an_answer_no_look_is_due_any_more() -> None:
    scene = unheard()
    assert scene.due(1.0) == {PING, LOOK}
    scene.see()
    scene.answer()
    for _ in range(5):
        assert scene.due(1.0) == {PING}
        scene.answer()


def test_a_look_that_ends_after_an_answer_counts_nothing_and_is_the_last() -> None:
    scene = unheard()
    scene.silence(GAPS - 1)
    scene.due(1.0)
    scene.due()
    if PING not in scene.begun:
        scene.due(1.0)
    scene.answer()
    assert not scene.see()
    assert LOOK not in scene.due(0.5)
    assert scene.reason is None


def test_a_step_that_was_reported_already_has_no_effect() -> None:
    scene = Scene()
    scene.due()
    stale = scene.begun[PING]
    scene.answer()
    scene.due(1.0)
    scene.detector.timed_out(stale, scene.now)
    assert scene.due() == set()
    scene.answer()


# -- silence -------------------------------------------------------------------------------------


def test_a_process_is_dead_after_the_session_time_out_between_looks() -> None:
    scene = unheard()
    began = scene.now
    scene.silence(GAPS - 1)
    assert scene.reason is None
    scene.silence(1)
    assert scene.reason is Reason.SILENT
    assert scene.now - began == SESSION


def test_what_the_first_look_finds_is_not_new_and_counts_nothing() -> None:
    scene = heard()
    scene.due(1.0)
    scene.time_out()
    scene.due()
    assert not scene.see(FOUND)
    scene.silence(GAPS)
    assert scene.reason is Reason.SILENT


def test_a_slow_first_look_counts_from_its_end() -> None:
    scene = heard()
    scene.due(1.0)
    scene.time_out()
    assert LOOK in scene.due()
    scene.see(seconds=0.8)
    ended = scene.now
    scene.silence(GAPS)
    assert scene.reason is Reason.SILENT
    assert scene.now == pytest.approx(ended + SESSION)


def test_an_answered_ping_ends_the_count_and_the_next_one_begins_with_a_first_look() -> None:
    scene = unheard()
    scene.silence(GAPS - 1)
    while PING not in scene.begun:
        scene.due(0.5)
    scene.answer()
    if LOOK in scene.begun:
        scene.see()
    scene.due(1.0)
    scene.time_out()
    scene.silence(GAPS)
    assert scene.reason is None
    scene.silence(1)
    assert scene.reason is Reason.SILENT


def test_a_new_heartbeat_ends_the_count() -> None:
    scene = unheard()
    scene.silence(GAPS - 1)
    scene.look_once(FOUND + 1)
    for _ in range(GAPS - 1):
        scene.look_once(FOUND + 1)
        assert scene.reason is None
    scene.look_once(FOUND + 1)
    assert scene.reason is Reason.SILENT


@pytest.mark.parametrize("count", [None, FOUND, FOUND - 1])
def test_no_heartbeat_the_same_one_and_an_older_one_are_not_new(count: int | None) -> None:
    scene = unheard()
    for _ in range(GAPS):
        scene.look_once(count)
    assert scene.reason is Reason.SILENT


def test_a_first_heartbeat_after_looks_that_found_none_is_new() -> None:
    scene = heard()
    scene.due(1.0)
    scene.time_out()
    for _ in range(GAPS):
        scene.look_once(None)
    scene.look_once(0)
    scene.look_once(0)
    assert scene.reason is None


def test_a_heartbeat_that_comes_and_goes_is_new_once() -> None:
    scene = unheard()
    for at in range(GAPS):
        scene.look_once(None if at % 2 else FOUND)
    assert scene.reason is Reason.SILENT


def test_a_gap_counts_one_interval_however_long_it_was() -> None:
    scene = unheard()
    for _ in range(GAPS - 1):
        scene.now += 3600.0
        scene.look_once()
        assert scene.reason is None
    scene.look_once()
    assert scene.reason is Reason.SILENT


def test_a_look_counts_up_to_its_beginning() -> None:
    """A store that hangs for an hour and then answers: the process had no time to write since."""
    scene = unheard()
    scene.silence(GAPS - 2)
    scene.due(1.0)
    scene.see(seconds=3600.0)
    assert scene.reason is None
    if PING in scene.begun:
        scene.time_out()
    scene.due()
    scene.see()
    assert scene.reason is Reason.SILENT


def test_the_count_begins_at_the_end_of_a_look_that_found_something_new() -> None:
    scene = unheard()
    scene.due(1.0)
    assert scene.see(FOUND + 1, seconds=5.0)
    ended = scene.now
    scene.due()
    assert LOOK not in scene.due(0.9)
    scene.time_out()
    for _ in range(GAPS):
        assert scene.reason is None
        scene.look_once(FOUND + 1)
    assert scene.now == ended + SESSION


def test_after_a_failed_look_the_count_starts_over() -> None:
    scene = unheard()
    scene.silence(GAPS - 1)
    while LOOK not in scene.begun:
        scene.due(0.5)
        if PING in scene.begun:
            scene.time_out()
    scene.fail_look()
    scene.silence(GAPS)
    assert scene.reason is None
    scene.silence(1)
    assert scene.reason is Reason.SILENT


def test_a_failed_look_is_not_repeated_at_once() -> None:
    scene = unheard()
    scene.due(1.0)
    scene.fail_look()
    assert LOOK not in scene.due(0.9)
    assert LOOK in scene.due(0.2)


def test_a_failed_look_withdraws_the_verdict_of_silence() -> None:
    scene = unheard()
    scene.silence(GAPS)
    scene.due(1.0)
    scene.fail_look()
    assert scene.reason is None


# -- the grace of a process that was just discovered ---------------------------------------------


def test_a_process_that_never_answered_has_the_grace_in_addition() -> None:
    scene = Scene()
    scene.due()
    scene.time_out()
    scene.silence(1 + GAPS + int(GRACE) - 1)
    assert scene.reason is None
    scene.silence(1)
    assert scene.reason is Reason.SILENT


def test_the_grace_is_not_over_because_a_heartbeat_is_new() -> None:
    """The process may have written it for other watchers, and stops when those are back."""
    scene = Scene()
    scene.due()
    scene.time_out()
    scene.silence(2)
    scene.look_once(FOUND + 1)
    for _ in range(GAPS + int(GRACE) - 2):
        scene.look_once(FOUND + 1)
        assert scene.reason is None
    scene.look_once(FOUND + 1)
    assert scene.reason is Reason.SILENT


def test_the_grace_starts_over_when_a_look_fails() -> None:
    """The process cannot read the cluster log either."""
    scene = Scene()
    scene.due()
    scene.time_out()
    scene.silence(1 + int(GRACE) - 1)
    while LOOK not in scene.begun:
        scene.due(0.5)
        if PING in scene.begun:
            scene.time_out()
    scene.fail_look()
    scene.silence(1 + GAPS + int(GRACE) - 1)
    assert scene.reason is None
    scene.silence(1)
    assert scene.reason is Reason.SILENT


def test_a_pause_of_the_observer_does_not_use_up_the_grace() -> None:
    scene = Scene()
    scene.due()
    scene.time_out()
    scene.look_once()
    scene.now += 3600.0
    scene.silence(GAPS + int(GRACE) - 1)
    assert scene.reason is None


def test_before_the_grace_is_over_a_refusal_asks_no_question() -> None:
    scene = Scene()
    scene.due()
    scene.refuse()
    assert QUESTION not in scene.due()


# -- refused connections -------------------------------------------------------------------------


def refused() -> Scene:
    """A process that answered once, and whose connection was then refused."""
    scene = heard()
    scene.due(1.0)
    scene.refuse()
    assert QUESTION in scene.due()
    return scene


def test_a_refusal_that_another_watcher_confirms_counts_at_once() -> None:
    scene = refused()
    assert scene.reason is None
    scene.confirm()
    assert scene.reason is Reason.REFUSED


def test_a_refusal_alone_does_not_count() -> None:
    scene = refused()
    scene.deny()
    assert scene.reason is None
    scene.see()
    scene.silence(GAPS - 1)
    assert scene.reason is None
    scene.silence(1)
    assert scene.reason is Reason.SILENT


def test_every_refused_ping_asks_again_and_a_denial_withdraws_the_verdict() -> None:
    scene = refused()
    scene.confirm()
    assert PING in scene.due(1.0)
    scene.refuse()
    assert QUESTION in scene.due()
    scene.deny()
    assert scene.reason is None


@pytest.mark.parametrize("first", ["answered", "timed out"])
def test_a_confirmation_of_an_earlier_refusal_does_not_count(first: str) -> None:
    scene = refused()
    scene.due(1.0)
    if first == "answered":
        scene.answer()
    else:
        scene.time_out()
    scene.due(1.0)
    scene.refuse()
    scene.confirm()
    assert scene.reason is None
    assert QUESTION in scene.due()


def test_a_confirmation_without_a_refusal_does_not_count() -> None:
    scene = refused()
    scene.due(1.0)
    scene.answer()
    scene.confirm()
    assert scene.reason is None


def test_a_confirmation_that_was_read_after_a_pause_does_not_count() -> None:
    scene = refused()
    scene.now += 3600.0
    scene.confirm()
    assert scene.reason is None


@pytest.mark.parametrize("sign", ["ping", "heartbeat"])
def test_a_sign_of_life_withdraws_the_verdict(sign: str) -> None:
    for scene in (refused(), unheard()):
        if QUESTION in scene.begun:
            scene.confirm()
            scene.see()
        else:
            scene.silence(GAPS)
        assert scene.reason is not None
        if sign == "heartbeat":
            scene.look_once(FOUND + 1)
        else:
            while PING not in scene.begun:
                scene.due(0.5)
            scene.answer()
        assert scene.reason is None


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_verdict_is_not_believed_after_a_pause(is_refused: bool) -> None:
    scene = refused() if is_refused else unheard()
    if is_refused:
        scene.confirm()
    else:
        scene.silence(GAPS)
    scene.now += TIMING.recent_seconds
    assert scene.reason is not None
    scene.now += 0.1
    assert scene.reason is None


def test_a_silent_process_stays_dead_while_looks_find_nothing_new() -> None:
    scene = unheard()
    scene.silence(GAPS)
    for _ in range(20):
        scene.silence(1)
        assert scene.reason is Reason.SILENT


# -- a process without an address ----------------------------------------------------------------


def test_a_process_without_an_address_is_looked_at_and_never_pinged() -> None:
    scene = Scene(has_address=False)
    for at in range(20):
        assert scene.due() == {LOOK}
        scene.see(at)
        assert scene.due(0.5) == set()
        scene.now += 0.5
    for _ in range(int(GRACE) + GAPS):
        assert scene.reason is None
        assert scene.due() == {LOOK}
        scene.see(19)
        scene.now += 1.0
    assert scene.reason is Reason.SILENT
