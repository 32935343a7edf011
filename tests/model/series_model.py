"""A numbered series with checkpoints: two proposers, a lagging reader, trimming.

Each proposer wants a few changes made, each exactly once. A create that was issued may land at any
later time, for ever: that one rule covers hedges, retries, lost answers, dead processes, and puts
that come back after their number was deleted. A GET and the look at the checkpoint that follows it
are two steps, so the world may move between them.

`decided` is the truth the model keeps beside the store: the record that first took each number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .search import Model

FALSE_WIN = "a proposer believes it won a number that another record holds"
FALSE_READ = "a record that was never decided is taken for true"
SHORT_READ = "a reader reports an end below what was decided when it asked"
STALE_RECORD = "a record derived from an older state takes effect"
MADE_TWICE = "one change takes effect twice"


@dataclass(frozen=True)
class Rules:
    """The rules of a series as the design has them; a field set to False drops one."""

    look_after_winning: bool = True
    look_after_reading: bool = True
    look_after_missing: bool = True
    own_record_is_success: bool = True
    loser_starts_over: bool = True
    create_never_overwrites: bool = True
    trim_only_below_checkpoint: bool = True
    greatest_checkpoint_kept: bool = True


class Record(NamedTuple):
    proposer: int
    change: int
    derived_from: int


class Proposer(NamedTuple):
    phase: str  # "get", "found" and "missed" (both before the look), "done"
    position: int
    derived_from: int
    change: int  # which of its changes it wants next
    held: Record | None  # what the GET, or the create's answer, brought
    answered: bool  # a create of its own landed at `position`: the answer may come at any time
    issued: tuple[Record | None, ...]


class Reader(NamedTuple):
    phase: str  # "idle", "get", "found", "missed"
    position: int
    asked: int  # how much was decided when this poll began
    held: Record | None


class State(NamedTuple):
    numbers: tuple[Record | None, ...]
    decided: tuple[Record, ...]
    checkpoint: int
    proposers: tuple[Proposer, ...]
    reader: Reader | None
    harm: str | None


Step = tuple[str, State]


@dataclass(frozen=True)
class SeriesModel(Model[State]):
    numbers: int = 3
    changes: int = 2
    with_reader: bool = True
    rules: Rules = Rules()

    def initial(self) -> State:
        absent = (None,) * self.numbers
        proposer = Proposer("get", 0, 0, 0, None, False, absent)
        reader = Reader("idle", 0, 0, None) if self.with_reader else None
        return State(absent, (), 0, (proposer, proposer), reader, None)

    def harms(self, state: State) -> tuple[str, ...]:
        found = [state.harm] if state.harm else []
        if any(record.derived_from != n for n, record in enumerate(state.decided)):
            found.append(STALE_RECORD)
        made = [(record.proposer, record.change) for record in state.decided]
        if len(made) != len(set(made)):
            found.append(MADE_TWICE)
        return tuple(found)

    def steps(self, state: State) -> Iterator[Step]:
        yield from self._store_steps(state)
        for who in (0, 1):
            yield from self._landings(state, who)
            yield from self._proposer_steps(state, who)
        if state.reader is not None:
            yield from self._reader_steps(state, state.reader)

    def _store_steps(self, state: State) -> Iterator[Step]:
        if state.checkpoint < len(state.decided):
            above = state.checkpoint + 1
            yield f"checkpoint/{above} is created", state._replace(checkpoint=above)
        trimmed = state.checkpoint
        if not self.rules.trim_only_below_checkpoint:
            trimmed = len(state.decided)
        for n in range(trimmed):
            if state.numbers[n] is not None:
                yield f"number {n} is deleted", _put(state, n, None)
        if not self.rules.greatest_checkpoint_kept and state.checkpoint:
            yield f"checkpoint/{state.checkpoint} is deleted", state._replace(checkpoint=0)

    def _landings(self, state: State, who: int) -> Iterator[Step]:
        proposer = state.proposers[who]
        for n, record in enumerate(proposer.issued):
            if record is None or state.numbers[n] == record:
                continue
            if state.numbers[n] is not None and self.rules.create_never_overwrites:
                continue
            after = _put(state, n, record)
            if n == len(state.decided):
                after = after._replace(decided=(*state.decided, record))
            if proposer.position == n and proposer.phase != "done":
                after = _with_proposer(after, who, proposer._replace(answered=True))
            yield f"{_name(who)}'s create of {n} lands", after

    def _proposer_steps(self, state: State, who: int) -> Iterator[Step]:
        me = state.proposers[who]
        name, at = _name(who), me.position
        if me.phase == "get" and at < self.numbers:
            there = state.numbers[at]
            if there is None:
                missed = me._replace(phase="missed")
                yield f"{name} finds {at} missing", _with_proposer(state, who, missed)
            else:
                found = me._replace(phase="found", held=there)
                yield f"{name} reads {_text(there)} at {at}", _with_proposer(state, who, found)
            if me.answered:
                own = me._replace(phase="found", held=me.issued[at])
                yield f"{name} is told that it created {at}", _with_proposer(state, who, own)
        elif me.phase == "missed":
            yield self._after_missing(state, who, me)
        elif me.phase == "found":
            yield self._after_finding(state, who, me)

    def _after_missing(self, state: State, who: int, me: Proposer) -> Step:
        name, at = _name(who), me.position
        if state.checkpoint > at and self.rules.look_after_missing:
            return self._start_again(state, who, me)
        # The look and the create need no step between them: the create lands later in any case.
        issued = me.issued
        if issued[at] is None:
            record = Record(who, me.change, me.derived_from)
            issued = (*issued[:at], record, *issued[at + 1 :])
        trying = me._replace(phase="get", issued=issued)
        record_text = _text(issued[at])
        return f"{name} issues a create of {at}: {record_text}", _with_proposer(state, who, trying)

    def _after_finding(self, state: State, who: int, me: Proposer) -> Step:
        name, at, held = _name(who), me.position, me.held
        assert held is not None
        own = held == me.issued[at]
        look = self.rules.look_after_winning if own else self.rules.look_after_reading
        if state.checkpoint > at and look:
            return self._start_again(state, who, me)
        following = me._replace(
            phase="get", position=at + 1, derived_from=at + 1, held=None, answered=False
        )
        if own and self.rules.own_record_is_success:
            done = me.change + 1
            phase = "done" if done == self.changes else "get"
            following = following._replace(change=done, phase=phase)
            label, harm = f"{name} believes it won {at}", FALSE_WIN
        else:
            if me.issued[at] is not None and not self.rules.loser_starts_over:
                following = following._replace(derived_from=me.derived_from)
            label, harm = f"{name} believes {_text(held)} at {at}", FALSE_READ
        after = _with_proposer(state, who, following)
        if state.decided[at] != held:
            after = after._replace(harm=harm)
        return label, after

    def _start_again(self, state: State, who: int, me: Proposer) -> Step:
        above = state.checkpoint
        made = sum(record.proposer == who for record in state.decided[:above])
        again = me._replace(
            phase="done" if made >= self.changes else "get",
            position=above,
            derived_from=above,
            change=made,
            held=None,
            answered=False,
        )
        label = f"{_name(who)} sees checkpoint/{above} above {me.position}, starts again from it"
        return label, _with_proposer(state, who, again)

    def _reader_steps(self, state: State, reader: Reader) -> Iterator[Step]:
        at, above = reader.position, state.checkpoint
        if reader.phase == "idle":
            asking = reader._replace(phase="get", asked=len(state.decided))
            label = f"R asks for all from {at} on ({len(state.decided)} are decided)"
            yield label, state._replace(reader=asking)
        elif reader.phase == "get":
            there = state.numbers[at] if at < self.numbers else None
            phase = "missed" if there is None else "found"
            label = f"R finds {at} missing" if there is None else f"R reads {_text(there)} at {at}"
            yield label, state._replace(reader=reader._replace(phase=phase, held=there))
        elif above > at and self._reader_looks(reader):
            jumped = reader._replace(phase="get", position=above, held=None)
            yield f"R sees checkpoint/{above}, starts again from it", state._replace(reader=jumped)
        elif reader.phase == "found":
            after = state._replace(reader=reader._replace(phase="get", position=at + 1, held=None))
            if state.decided[at] != reader.held:
                after = after._replace(harm=FALSE_READ)
            yield f"R believes {_text(reader.held)} at {at}", after
        else:
            after = state._replace(reader=reader._replace(phase="idle", asked=0))
            if at < reader.asked:
                after = after._replace(harm=SHORT_READ)
            yield f"R reports that the series ends at {at}", after

    def _reader_looks(self, reader: Reader) -> bool:
        if reader.phase == "found":
            return self.rules.look_after_reading
        return self.rules.look_after_missing


def _name(who: int) -> str:
    return "AB"[who]


def _text(record: Record | None) -> str:
    assert record is not None
    return f"{_name(record.proposer)}'s change {record.change}"


def _put(state: State, n: int, record: Record | None) -> State:
    return state._replace(numbers=(*state.numbers[:n], record, *state.numbers[n + 1 :]))


def _with_proposer(state: State, who: int, proposer: Proposer) -> State:
    others = state.proposers
    return state._replace(proposers=(*others[:who], proposer, *others[who + 1 :]))
