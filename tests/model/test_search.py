"""The search itself: shortest traces, limits, and like states met once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass

from .search import Model, explore, reachable


@dataclass(frozen=True)
class TwoCounters(Model[tuple[int, int]]):
    """Each counter goes up by one or two; it is bad when both show `bad`."""

    limit: int
    bad: int = -1
    alike: bool = False

    def initial(self) -> tuple[int, int]:
        return 0, 0

    def steps(self, state: tuple[int, int]) -> Iterator[tuple[str, tuple[int, int]]]:
        left, right = state
        for by in (1, 2):
            if left + by <= self.limit:
                yield f"left +{by}", (left + by, right)
            if right + by <= self.limit:
                yield f"right +{by}", (left, right + by)

    def harms(self, state: tuple[int, int]) -> tuple[str, ...]:
        return ("both are bad",) if state == (self.bad, self.bad) else ()

    def canonical(self, state: tuple[int, int]) -> tuple[int, int]:
        return min(state, state[::-1]) if self.alike else state


def test_every_state_is_visited_once() -> None:
    result = explore(TwoCounters(limit=4))
    assert (result.states, result.exhausted, result.violation) == (25, True, None)


def test_like_states_are_visited_once() -> None:
    result = explore(TwoCounters(limit=4, alike=True))
    assert (result.states, result.exhausted) == (15, True)


def test_a_trace_is_the_shortest_and_leads_to_the_harm() -> None:
    for alike in (False, True):
        trace = explore(TwoCounters(limit=9, bad=4, alike=alike)).violation
        assert trace is not None
        assert trace.outcome == "both are bad"
        assert sorted(trace.steps) == ["left +2", "left +2", "right +2", "right +2"]
        assert str(trace).splitlines()[0].startswith("   1. ")
        assert str(trace).splitlines()[-1] == "  => both are bad"


def test_another_harm_than_the_one_asked_for_is_passed_by() -> None:
    result = explore(TwoCounters(limit=4, bad=2), harm="something else")
    assert (result.states, result.exhausted, result.violation) == (25, True, None)


def test_a_search_that_was_cut_off_is_not_exhausted() -> None:
    result = explore(TwoCounters(limit=50), states_max=100)
    assert not result.exhausted
    assert result.violation is None


def test_what_can_be_reached_is_told_from_what_cannot() -> None:
    trace = reachable(TwoCounters(limit=5), lambda state: state == (3, 0))
    assert trace is not None
    assert len(trace.steps) == 2
    assert reachable(TwoCounters(limit=5), lambda state: state[0] > 5) is None


def test_the_cycle_collector_is_running_again_afterwards() -> None:
    explore(TwoCounters(limit=3))
    assert gc.isenabled()
