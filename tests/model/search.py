"""Breadth-first search over an explicit-state model.

A model names its initial state, the steps that may come next, and the harms a state shows. The
search visits every reachable state once and stops at the first harm, so that a trace is always a
shortest one. Models keep their states hashable and give their steps in a fixed order: the same
model prints the same trace every time.
"""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

State = TypeVar("State")

# Where a model grows past this by mistake, the search says so instead of filling the memory.
STATES_MAX = 6_000_000


class Model(ABC, Generic[State]):
    @abstractmethod
    def initial(self) -> State: ...

    @abstractmethod
    def steps(self, state: State) -> Iterable[tuple[str, State]]:
        """What may happen next: the step in words, and the state after it."""

    @abstractmethod
    def harms(self, state: State) -> Sequence[str]:
        """The broken promises that this state shows."""

    def canonical(self, state: State) -> State:
        """One state for all that differ only in which of two like actors is which."""
        return state


@dataclass(frozen=True)
class Trace:
    """The steps from the initial state to the one in question, and what is seen there."""

    outcome: str
    steps: tuple[str, ...]

    def __str__(self) -> str:
        lines = [f"  {number:>2}. {step}" for number, step in enumerate(self.steps, 1)]
        return "\n".join([*lines, f"  => {self.outcome}"])


@dataclass(frozen=True)
class Result:
    """What an exploration saw. `exhausted`: every reachable state was visited."""

    states: int
    exhausted: bool
    violation: Trace | None


@dataclass(frozen=True)
class _Walk:
    states: int
    exhausted: bool
    found: Trace | None


def explore(
    model: Model[State], *, harm: str | None = None, states_max: int = STATES_MAX
) -> Result:
    """Visit every reachable state, or stop at the first that shows a harm.

    With `harm` only that one counts, and the search goes on past the others: what looks wrong to
    a model first is not always what a client would notice.
    """

    def broken(state: State) -> str | None:
        shown = model.harms(state)
        if harm is None:
            return shown[0] if shown else None
        return harm if harm in shown else None

    walk = _search(model, broken, states_max)
    return Result(walk.states, walk.exhausted, walk.found)


def reachable(
    model: Model[State], wanted: Callable[[State], bool], *, states_max: int = STATES_MAX
) -> Trace | None:
    """A shortest way to a state that satisfies `wanted`, or None where there is none.

    It keeps a model honest: one in which nothing happens breaks no promise either.
    """
    walk = _search(model, lambda state: "reached" if wanted(state) else None, states_max)
    return walk.found


def _search(model: Model[State], stop: Callable[[State], str | None], states_max: int) -> _Walk:
    start = model.initial()
    # By canonical state: the one state of its kind that was met, and is walked on from, came from.
    came_from: dict[State, State | None] = {model.canonical(start): None}
    outcome = stop(start)
    if outcome is not None:
        return _Walk(1, False, Trace(outcome, ()))
    waiting = deque([start])
    # States are trees of tuples: the cycle collector would only walk millions of them in vain.
    collecting = gc.isenabled()
    gc.disable()
    try:
        while waiting:
            state = waiting.popleft()
            for _, following in model.steps(state):
                key = model.canonical(following)
                if key in came_from:
                    continue
                came_from[key] = state
                outcome = stop(following)
                if outcome is not None:
                    trace = Trace(outcome, _retrace(model, came_from, following))
                    return _Walk(len(came_from), False, trace)
                waiting.append(following)
            if len(came_from) > states_max:
                return _Walk(len(came_from), False, None)
        return _Walk(len(came_from), True, None)
    finally:
        if collecting:
            gc.enable()


def _retrace(
    model: Model[State], came_from: dict[State, State | None], last: State
) -> tuple[str, ...]:
    # Names of steps are not kept for millions of states: those on the way are asked for again.
    names: list[str] = []
    state = last
    while (before := came_from[model.canonical(state)]) is not None:
        target = state
        names.append(next(name for name, after in model.steps(before) if after == target))
        state = before
    return tuple(reversed(names))
