"""A manifest's checkpoints, which name shared immutable runs: two writers, and deletion of runs.

As designed, a manifest number says which runs exist, and checkpoint/n only repeats what the numbers
below it say. Creates of numbers and of checkpoints may land at any later time, their writers gone.
With `runs_decided_by_numbers` dropped, each writer of a checkpoint chooses the runs it names.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .search import Model

CHECKPOINT_BROKEN = "the greatest checkpoint names a deleted run"
NEWEST_BROKEN = "the newest number names a deleted run"


@dataclass(frozen=True)
class Rules:
    """The rules of runs as the design has them; a field set to False drops one."""

    runs_decided_by_numbers: bool = True
    replaced_run_kept_until_checkpoint_above: bool = True


Runs = tuple[str, ...]


class Writer(NamedTuple):
    phase: str  # "idle", "read", "uploaded", "waiting"
    base: int
    runs: Runs
    rounds: int  # how many it began


class State(NamedTuple):
    decided: tuple[Runs, ...]  # what the first n numbers amount to
    checkpoints: tuple[Runs | None, ...]
    objects: Runs
    number_puts: tuple[tuple[int, Runs], ...]
    checkpoint_puts: tuple[tuple[int, Runs], ...]
    writers: tuple[Writer, ...]

    @property
    def greatest(self) -> int:
        return max(n for n, runs in enumerate(self.checkpoints) if runs is not None)


Step = tuple[str, State]


@dataclass(frozen=True)
class RunModel(Model[State]):
    numbers: int = 3
    rounds: int = 2
    rules: Rules = Rules()

    def initial(self) -> State:
        first = ("r",)
        writer = Writer("idle", 0, (), 0)
        checkpoints = (first, *(None,) * self.numbers)
        return State((first,), checkpoints, first, (), (), (writer, writer))

    def harms(self, state: State) -> tuple[str, ...]:
        named = state.checkpoints[state.greatest] or ()
        found = []
        if any(run not in state.objects for run in named):
            found.append(CHECKPOINT_BROKEN)
        if any(run not in state.objects for run in state.decided[-1]):
            found.append(NEWEST_BROKEN)
        return tuple(found)

    def steps(self, state: State) -> Iterator[Step]:
        yield from self._landings(state)
        yield from self._deletions(state)
        for index, writer in enumerate(state.writers):
            yield from self._writer_steps(state, index, writer)

    def _landings(self, state: State) -> Iterator[Step]:
        for n, runs in state.number_puts:
            # The number before has landed: no writer puts one before it has read up to it.
            rest = tuple(put for put in state.number_puts if put[0] != n)
            grown = state._replace(decided=(*state.decided, runs), number_puts=rest)
            yield f"number {n - 1} lands: the runs are {_text(runs)}", grown
        for n, runs in state.checkpoint_puts:
            rest = tuple(put for put in state.checkpoint_puts if put[0] != n)
            now = (*state.checkpoints[:n], runs, *state.checkpoints[n + 1 :])
            landed = state._replace(checkpoints=now, checkpoint_puts=rest)
            yield f"checkpoint/{n} lands, naming {_text(runs)}", landed

    def _deletions(self, state: State) -> Iterator[Step]:
        for run in self._replaced(state):
            if run in state.objects:
                rest = tuple(other for other in state.objects if other != run)
                yield f"run {run} is deleted", state._replace(objects=rest)

    def _replaced(self, state: State) -> list[str]:
        greatest = state.greatest
        if self.rules.runs_decided_by_numbers:
            history = state.decided
            if self.rules.replaced_run_kept_until_checkpoint_above:
                history = history[: greatest + 1]
        else:
            older = state.checkpoints[: greatest + 1]
            history = tuple(runs for runs in older if runs is not None)
        return sorted({run for runs in history for run in runs} - set(history[-1]))

    def _writer_steps(self, state: State, index: int, writer: Writer) -> Iterator[Step]:
        name = "XY"[index]
        if writer.phase == "idle" and writer.rounds < self.rounds:
            yield from self._begin(state, index, writer)
        elif writer.phase == "read":
            if any(run not in state.objects for run in writer.runs):
                again = Writer("idle", 0, (), writer.rounds - 1)
                yield f"{name} misses a run, starts again", _with_writer(state, index, again)
                return
            new = f"{name}{writer.rounds}"
            for runs in ((*writer.runs, new), (new,)):
                uploaded = _with_writer(state, index, writer._replace(phase="uploaded", runs=runs))
                objects = tuple(sorted({*state.objects, new}))
                label = f"{name} uploads run {new}, wants {_text(runs)}"
                yield label, uploaded._replace(objects=objects)
        elif writer.phase == "uploaded":
            yield self._put(state, index, writer)
        elif writer.phase == "waiting":
            yield from self._learn(state, index, writer)

    def _begin(self, state: State, index: int, writer: Writer) -> Iterator[Step]:
        name = "XY"[index]
        if self.rules.runs_decided_by_numbers:
            newest = len(state.decided) - 1
            if newest < self.numbers:
                begun = Writer("read", newest + 1, state.decided[-1], writer.rounds + 1)
                label = f"{name} reads all up to {newest}: {_text(state.decided[-1])}"
                yield label, _with_writer(state, index, begun)
            return
        greatest = state.greatest
        runs = state.checkpoints[greatest] or ()
        for target in range(greatest + 1, self.numbers + 1):
            begun = Writer("read", target, runs, writer.rounds + 1)
            label = f"{name} reads checkpoint/{greatest}: {_text(runs)}; aims at {target}"
            yield label, _with_writer(state, index, begun)

    def _put(self, state: State, index: int, writer: Writer) -> Step:
        name, n = "XY"[index], writer.base
        waiting = _with_writer(state, index, writer._replace(phase="waiting"))
        if self.rules.runs_decided_by_numbers:
            puts = state.number_puts
            if n == len(state.decided):
                puts = tuple(sorted({*puts, (n, writer.runs)}))
            label = f"{name} issues a create of number {n - 1}: {_text(writer.runs)}"
            return label, waiting._replace(number_puts=puts)
        label = f"{name} issues a create of checkpoint/{n}: {_text(writer.runs)}"
        return label, _with_checkpoint_put(waiting, n, writer.runs)

    def _learn(self, state: State, index: int, writer: Writer) -> Iterator[Step]:
        name, n = "XY"[index], writer.base
        through = _with_writer(state, index, Writer("idle", 0, (), writer.rounds))
        if not self.rules.runs_decided_by_numbers:
            if state.checkpoints[n] is not None:
                yield f"{name} finds checkpoint/{n} decided", through
        elif len(state.decided) > n:
            if state.decided[n] == writer.runs:
                label = f"{name} learns that it won {n - 1}, issues a create of checkpoint/{n}"
                yield label, _with_checkpoint_put(through, n, writer.runs)
            else:
                yield f"{name} lost {n - 1}, derives anew", through


def _with_checkpoint_put(state: State, n: int, runs: Runs) -> State:
    if state.checkpoints[n] is not None:
        return state
    return state._replace(checkpoint_puts=tuple(sorted({*state.checkpoint_puts, (n, runs)})))


def _text(runs: Runs) -> str:
    return "+".join(runs)


def _with_writer(state: State, index: int, writer: Writer) -> State:
    others = state.writers
    return state._replace(writers=(*others[:index], writer, *others[index + 1 :]))
