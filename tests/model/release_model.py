"""The release of a partition, racing with a seal and a take-over.

O owns the stream and leads partition p; its objects carry records of p and of other partitions. It
releases p to S through the cluster log. X believes O dead at any time: it seals the stream and
proposes to take p over. Every put, of data, seals and cluster-log numbers, may land at any later
time. Sealing itself is the WAL model's matter: here X knows the end once it reads it in order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .search import Model

TWO_SUCCESSORS = "two successors serve p"
HOLE = "S serves from an offset below which a record of p is not committed"
ACKED_BEYOND = "O acknowledged a record of p beyond where its successor began"
STILL_LEADING = "O takes records for p while S serves it"
FALSE_ANSWER = "O answers for p though a successor serves it"

ABSENT, DATA, SEAL = 0, 1, 2


@dataclass(frozen=True)
class Rules:
    """The rules of a release as the design has them; a field set to False drops one."""

    waits_until_committed: bool = True
    stays_stopped_while_undecided: bool = True
    loser_starts_over: bool = True
    take_over_leaves_what_was_released: bool = True
    stopped_owner_is_silent: bool = True


class Record(NamedTuple):
    kind: str  # "release" to S, "take" by X, "other": of some other partition
    end: int = 0  # the number before which all of p's records in the stream lie
    offset: int = 0


class Owner(NamedTuple):
    phase: str  # "leading", "stopped", "ready", "undecided", "released", "deposed"
    release: Record | None
    at: int  # the cluster-log number it proposes at


class Taker(NamedTuple):
    phase: str  # "watching", "undecided", "taken", "left"
    at: int
    end: int  # of the stream; -1 until read


class State(NamedTuple):
    numbers: tuple[int, ...]
    tried: int
    records: int  # mask: numbers that carry a record of p
    durable: int
    fenced: bool
    seals: int
    log: tuple[Record, ...]
    puts: tuple[tuple[int, Record], ...]
    owner: Owner
    taker: Taker
    s_serves: int  # the offset from which it serves, -1 while it does not
    x_serves: int
    false_answer: bool

    @property
    def committed(self) -> int:
        count = 0
        while self.durable >> count & 1:
            count += 1
        return count

    def offsets_below(self, number: int) -> int:
        return (self.records & (1 << number) - 1).bit_count()


Step = tuple[str, State]


@dataclass(frozen=True)
class ReleaseModel(Model[State]):
    numbers: int = 3
    window: int = 2
    log_numbers: int = 3
    rules: Rules = Rules()

    def initial(self) -> State:
        return State(
            numbers=(ABSENT,) * self.numbers,
            tried=0,
            records=0,
            durable=0,
            fenced=False,
            seals=0,
            log=(),
            puts=(),
            owner=Owner("leading", None, 0),
            taker=Taker("watching", 0, -1),
            s_serves=-1,
            x_serves=-1,
            false_answer=False,
        )

    def harms(self, state: State) -> tuple[str, ...]:
        found = []
        acked = state.offsets_below(state.committed)
        if state.s_serves >= 0 and state.x_serves >= 0:
            found.append(TWO_SUCCESSORS)
        if state.s_serves >= 0:
            release = next(record for record in state.log if record.kind == "release")
            if any(there != DATA for there in state.numbers[: release.end]):
                found.append(HOLE)
            if state.owner.phase == "leading" and not state.fenced:
                found.append(STILL_LEADING)
        if any(0 <= began < acked for began in (state.s_serves, state.x_serves)):
            found.append(ACKED_BEYOND)
        if state.false_answer:
            found.append(FALSE_ANSWER)
        return tuple(found)

    def steps(self, state: State) -> Iterator[Step]:
        yield from self._landings(state)
        yield from self._writer_steps(state)
        yield from self._owner_steps(state, state.owner)
        yield from self._answer_steps(state)
        yield from self._taker_steps(state, state.taker)
        yield from self._serving_steps(state)

    def _landings(self, state: State) -> Iterator[Step]:
        for n, there in enumerate(state.numbers):
            if there == ABSENT and n < state.tried:
                yield f"O's put of {n} lands", _put(state, n, DATA)
            if there == ABSENT and state.seals >> n & 1:
                yield f"a seal lands at {n}", _put(state, n, SEAL)
        for n, record in state.puts:
            if n == len(state.log):
                label = f"the {record.kind} lands at {n} of the cluster log"
                yield label, _append(state, record)
        unrelated = sum(record.kind == "other" for record in state.log)
        if not unrelated and len(state.log) < self.log_numbers:
            label = f"a record of another partition takes {len(state.log)} of the cluster log"
            yield label, _append(state, Record("other"))

    def _writer_steps(self, state: State) -> Iterator[Step]:
        tried = state.tried
        free = tried < self.window or state.durable >> (tried - self.window) & 1
        if not state.fenced and tried < self.numbers and free:
            if state.owner.phase == "leading":
                carried = state._replace(tried=tried + 1, records=state.records | 1 << tried)
                yield f"O puts {tried} with a record of p", carried
            yield f"O puts {tried} without p", state._replace(tried=tried + 1)
        for n in range(tried):
            if state.durable >> n & 1:
                continue
            if state.numbers[n] == DATA:
                learned = state._replace(durable=state.durable | 1 << n)
                yield f"O learns that {n} holds its own object", learned
            elif state.numbers[n] == SEAL and not state.fenced:
                owner = state.owner
                if owner.phase in ("leading", "stopped"):
                    owner = Owner("deposed", None, 0)
                yield f"O meets the seal at {n}: fenced", state._replace(fenced=True, owner=owner)

    def _owner_steps(self, state: State, owner: Owner) -> Iterator[Step]:
        for label, following in self._owner_next(state, owner):
            yield f"O {label}", state._replace(owner=following)
        if owner.phase == "ready" and owner.at < self.log_numbers:
            assert owner.release is not None
            puts = tuple(sorted({*state.puts, (owner.at, owner.release)}))
            proposed = state._replace(owner=owner._replace(phase="undecided"), puts=puts)
            label = f"O proposes at {owner.at} of the cluster log: p up to {owner.release.end}"
            yield f"{label}, offset {owner.release.offset}, goes to S", proposed

    def _owner_next(self, state: State, owner: Owner) -> Iterator[tuple[str, Owner]]:
        if owner.phase == "leading" and not state.fenced:
            yield "stops p", owner._replace(phase="stopped")
        elif owner.phase == "stopped":
            end = state.records.bit_length()
            last_durable = end == 0 or state.durable >> end - 1 & 1
            waited = state.committed >= end if self.rules.waits_until_committed else last_durable
            if waited:
                release = Record("release", end, state.offsets_below(end))
                how = "committed" if self.rules.waits_until_committed else "durable"
                label = f"finds its last object of p {how}, reads the cluster log"
                if self._leader_is_owner(state):
                    yield label, Owner("ready", release, len(state.log))
                else:
                    yield f"{label}: p is gone", Owner("deposed", None, 0)
        elif owner.phase == "undecided":
            yield from self._owner_learns(state, owner)
            if not self.rules.stays_stopped_while_undecided:
                yield "gives up waiting, resumes p", Owner("leading", None, 0)

    def _owner_learns(self, state: State, owner: Owner) -> Iterator[tuple[str, Owner]]:
        if len(state.log) <= owner.at:
            return
        if state.log[owner.at] == owner.release:
            yield "learns that p is released", owner._replace(phase="released")
        elif self.rules.loser_starts_over and not self._leader_is_owner(state):
            yield "lost the number and p with it", Owner("deposed", None, 0)
        else:
            lost = owner._replace(phase="ready", at=len(state.log))
            yield f"lost {owner.at} of the cluster log, tries on", lost

    def _leader_is_owner(self, state: State) -> bool:
        return all(record.kind == "other" for record in state.log)

    def _answer_steps(self, state: State) -> Iterator[Step]:
        phases = ["leading"]
        if not self.rules.stopped_owner_is_silent:
            phases += ["stopped", "ready", "undecided"]
        first = state.committed
        if state.owner.phase in phases and not state.fenced and first < self.numbers:
            served = state.s_serves >= 0 or state.x_serves >= 0
            if state.numbers[first] == ABSENT and served:
                label = f"O finds {first} of its stream missing and answers for p"
                yield label, state._replace(false_answer=True)

    def _taker_steps(self, state: State, taker: Taker) -> Iterator[Step]:
        if taker.end < 0:
            first = next((n for n, there in enumerate(state.numbers) if there != DATA), None)
            if first is not None and state.numbers[first] == SEAL:
                known = state._replace(taker=taker._replace(end=first))
                yield f"X reads the end of the stream: {first}", known
            elif first is not None:
                last = min(first + self.window, self.numbers) - 1
                seals = state.seals | sum(1 << n for n in range(first, last + 1))
                if seals != state.seals:
                    yield f"X puts seals at {first} to {last}", state._replace(seals=seals)
        at = len(state.log)
        if taker.phase == "watching" and at < self.log_numbers:
            if self._leader_is_owner(state) or not self.rules.take_over_leaves_what_was_released:
                puts = tuple(sorted({*state.puts, (at, Record("take"))}))
                trying = state._replace(taker=taker._replace(phase="undecided", at=at), puts=puts)
                yield f"X proposes at {at} of the cluster log: it takes p", trying
            else:
                left = state._replace(taker=taker._replace(phase="left"))
                yield "X finds p gone from the stream, leaves it", left
        elif taker.phase == "undecided" and at > taker.at:
            won = state.log[taker.at].kind == "take"
            following = taker._replace(phase="taken" if won else "watching")
            label = "X learns that it took p" if won else f"X lost {taker.at} of the cluster log"
            yield label, state._replace(taker=following)

    def _serving_steps(self, state: State) -> Iterator[Step]:
        taker = state.taker
        if taker.phase == "taken" and taker.end >= 0 and state.x_serves < 0:
            offset = state.offsets_below(taker.end)
            yield f"X serves p from offset {offset}", state._replace(x_serves=offset)
        release = next((record for record in state.log if record.kind == "release"), None)
        if release is not None and state.s_serves < 0:
            serving = state._replace(s_serves=release.offset)
            yield f"S serves p from offset {release.offset}", serving


def _append(state: State, record: Record) -> State:
    n = len(state.log)
    rest = tuple(put for put in state.puts if put[0] > n)
    return state._replace(log=(*state.log, record), puts=rest)


def _put(state: State, n: int, value: int) -> State:
    return state._replace(numbers=(*state.numbers[:n], value, *state.numbers[n + 1 :]))
