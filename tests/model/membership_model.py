"""Membership: the release of a partition, racing with expire, register, leaving and moves back.

Process 0 of node A leads partition p at epoch 0; process 1 of node B is live; process 2 is node A,
started again. A live process that leads p may release it to any other live one. A process that
accepts no records may leave, whether or not it has released p. X, which stands for all of them,
expires any process that it believes dead, at any time. Whoever wins p seals the
streams that were not released, reads their ends and serves. Every put, of data, seals and
cluster-log numbers, may land at any later time, but a put of a cluster-log number only while that
number is the next.

Only the first number of a stream may carry no record of p: the release model has all the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .membership_fold import NODE_OF, NONE, Membership, Record, Rules, fold
from .search import Model

DEAD_LEADER = "the leader of p is a process that the cluster log has ended"
LEADERLESS = "p has no leader though a process is live"
TWO_LEADERS = "two processes serve p at one epoch"
HOLE = "a successor serves from an offset below which a record of p is not committed"
ACKED_BEYOND = "a record of p was acknowledged beyond where a later epoch began"
FALSE_ANSWER = "a process answers for p though a later epoch is served"

ABSENT, DATA, SEAL = 0, 1, 2


class Stream(NamedTuple):
    numbers: tuple[int, ...]
    epochs: tuple[int, ...] = ()  # of p's record in each number that was tried, or NONE
    durable: int = 0
    fenced: bool = False
    seals: int = 0

    @property
    def committed(self) -> int:
        count = 0
        while self.durable >> count & 1:
            count += 1
        return count

    def records_of(self, epoch: int, end: int) -> int:
        return sum(each == epoch for each in self.epochs[:end])

    def end_for(self, epoch: int) -> int:
        """The number before which all records of this epoch lie."""
        return max((n + 1 for n, each in enumerate(self.epochs) if each == epoch), default=0)


class Process(NamedTuple):
    # "absent", "idle", "recovering", "leading", "stopped", "undecided", "leaving", "over"
    phase: str
    epoch: int = NONE
    position: int = 0  # in the cluster log
    at: int = NONE  # the cluster-log number that it proposed at
    proposal: Record | None = None


class Expiry(NamedTuple):
    at: int
    record: Record


class Term(NamedTuple):
    epoch: int
    process: int
    start: int  # the offset that it serves from


class State(NamedTuple):
    log: tuple[Record, ...]
    puts: frozenset[tuple[int, Record]]
    streams: tuple[Stream, ...]
    processes: tuple[Process, ...]
    expiry: Expiry | None
    expiries: int
    terms: tuple[Term, ...]
    false_answer: bool
    hole: bool


Step = tuple[str, State]


@dataclass(frozen=True)
class MembershipModel(Model[State]):
    numbers: int = 1
    window: int = 2
    log_numbers: int = 3
    rejoins: bool = True
    leaves: bool = False
    rules: Rules = field(default_factory=Rules)

    def initial(self) -> State:
        count = 3 if self.rejoins else 2
        idle = (Process("idle"), Process("absent"))
        return State(
            log=(),
            puts=frozenset(),
            streams=(Stream((ABSENT,) * self.numbers),) * count,
            processes=(Process("leading", 0), *idle)[:count],
            expiry=None,
            expiries=0,
            terms=(Term(0, 0, 0),),
            false_answer=False,
            hole=False,
        )

    def membership(self, state: State) -> Membership:
        return fold(state.log, self.rules)

    def harms(self, state: State) -> tuple[str, ...]:
        found = []
        known = self.membership(state)
        if known.leader == NONE:
            found.append(LEADERLESS)
        elif known.leader not in known.live:
            found.append(DEAD_LEADER)
        if len({term.epoch for term in state.terms}) < len(state.terms):
            found.append(TWO_LEADERS)
        if any(
            later.epoch > term.epoch and later.start < self._acked_end(state, term)
            for term in state.terms
            for later in state.terms
        ):
            found.append(ACKED_BEYOND)
        if state.hole:
            found.append(HOLE)
        if state.false_answer:
            found.append(FALSE_ANSWER)
        return tuple(found)

    def _acked_end(self, state: State, term: Term) -> int:
        stream = state.streams[term.process]
        return term.start + stream.records_of(term.epoch, stream.committed)

    def steps(self, state: State) -> Iterator[Step]:
        yield from self._landings(state)
        for me, process in enumerate(state.processes):
            yield from self._stream_steps(state, me, process)
            if process.phase == "absent":
                yield from self._register_steps(state, me)
            else:
                yield from self._reading_steps(state, me, process)
                yield from self._leader_steps(state, me, process)
                if self.leaves:
                    yield from self._leaving_steps(state, me, process)
        yield from self._expiry_steps(state)

    # -- the store -----------------------------------------------------------------------------

    def _landings(self, state: State) -> Iterator[Step]:
        for me, stream in enumerate(state.streams):
            for n, there in enumerate(stream.numbers):
                if there == ABSENT and n < len(stream.epochs):
                    yield f"{me}'s put of {n} lands", _landed(state, me, n, DATA)
                if there == ABSENT and stream.seals >> n & 1:
                    yield f"a seal lands at {n} of {me}'s stream", _landed(state, me, n, SEAL)
        at = len(state.log)
        for number, record in sorted(state.puts):
            if number == at:
                later = frozenset(put for put in state.puts if put[0] > at)
                label = f"{_shown(record)} lands at {at} of the cluster log"
                yield label, state._replace(log=(*state.log, record), puts=later)

    def _stream_steps(self, state: State, me: int, process: Process) -> Iterator[Step]:
        stream = state.streams[me]
        tried = len(stream.epochs)
        free = tried < self.window or stream.durable >> (tried - self.window) & 1
        if process.phase == "leading" and not stream.fenced and tried < self.numbers and free:
            carrying = stream._replace(epochs=(*stream.epochs, process.epoch))
            yield f"{me} puts {tried} with a record of p", _with_stream(state, me, carrying)
            if tried == 0:
                without = stream._replace(epochs=(NONE,))
                yield f"{me} puts 0 without p", _with_stream(state, me, without)
        for n in range(tried):
            if stream.durable >> n & 1:
                continue
            if stream.numbers[n] == DATA:
                learned = stream._replace(durable=stream.durable | 1 << n)
                yield f"{me} learns that {n} holds its object", _with_stream(state, me, learned)
            elif stream.numbers[n] == SEAL and not stream.fenced:
                fenced = _with_stream(state, me, stream._replace(fenced=True))
                if process.phase in ("leading", "stopped", "recovering"):
                    fenced = _with_process(fenced, me, process._replace(phase="idle", epoch=NONE))
                yield f"{me} meets the seal at {n}: fenced", fenced

    # -- a process -----------------------------------------------------------------------------

    def _register_steps(self, state: State, me: int) -> Iterator[Step]:
        if any(record.kind == "register" for record in state.log):
            yield f"{me} learns that it is registered", _with_process(state, me, Process("idle"))
            return
        known = self.membership(state)
        orphans = known.leader != NONE and NODE_OF[known.leader] == NODE_OF[me]
        record = self._moving("register", me, me, known, orphans)
        yield from self._proposals(state, record, f"{me} proposes {_shown(record)}")

    def _moving(
        self, kind: str, process: int, successor: int, known: Membership, orphans: bool
    ) -> Record:
        """A record that ends a process, with the move of p if it would orphan it."""
        if orphans and self.rules.records_move_what_they_orphan:
            return Record(kind, process, known.epoch + 1, successor)
        return Record(kind, process, NONE)

    def _proposals(self, state: State, record: Record, label: str) -> Iterator[Step]:
        at = len(state.log)
        if at < self.log_numbers and (at, record) not in state.puts:
            yield f"{label} at {at} of the cluster log", _proposed(state, at, record)

    def _reading_steps(self, state: State, me: int, process: Process) -> Iterator[Step]:
        if process.phase == "undecided":
            yield from self._undecided_steps(state, me, process)
        elif process.phase != "leaving" and process.position < len(state.log):
            read = self._after_reading(state, me, process)
            label = f"{me} reads the cluster log up to {len(state.log)}: {read.phase}"
            yield label, _with_process(state, me, read)

    def _after_reading(self, state: State, me: int, process: Process) -> Process:
        known = self.membership(state)
        position = len(state.log)
        fenced = state.streams[me].fenced
        if me not in known.live:
            return Process("over", position=position)
        leads = known.leader == me and not fenced
        if process.phase != "idle" and leads and known.epoch == process.epoch:
            return process._replace(position=position)
        if leads:
            return Process("recovering", known.epoch, position)
        return Process("idle", position=position)

    def _undecided_steps(self, state: State, me: int, process: Process) -> Iterator[Step]:
        release = process.proposal
        assert release is not None
        if len(state.log) <= process.at:
            if not self.rules.stays_stopped_while_undecided:
                resumed = Process("leading", process.epoch, process.position)
                yield f"{me} gives up waiting, resumes p", _with_process(state, me, resumed)
            return
        stopped = process._replace(phase="stopped", at=NONE, proposal=None)
        read = self._after_reading(state, me, stopped)
        if read.phase != "stopped":
            yield f"{me} learns that p is no longer its own", _with_process(state, me, read)
        else:
            resumed = read._replace(phase="leading")
            yield f"{me} lost {process.at}, resumes p", _with_process(state, me, resumed)
            yield f"{me} lost {process.at}, still stopped", _with_process(state, me, read)
        if not self.rules.loser_starts_over and state.log[process.at] != release:
            again = process._replace(at=len(state.log))
            for label, following in self._proposals(state, release, f"{me} proposes the same"):
                yield label, _with_process(following, me, again)

    def _leader_steps(self, state: State, me: int, process: Process) -> Iterator[Step]:
        if process.phase == "recovering":
            yield from self._recovery_steps(state, me, process)
        elif process.phase == "leading":
            yield from self._answers(state, me, process)
            stopped = process._replace(phase="stopped")
            yield f"{me} stops p", _with_process(state, me, stopped)
        elif process.phase in ("stopped", "undecided"):
            if not self.rules.stopped_owner_is_silent:
                yield from self._answers(state, me, process)
            if process.phase == "stopped":
                yield from self._release_steps(state, me, process)

    def _answers(self, state: State, me: int, process: Process) -> Iterator[Step]:
        stream = state.streams[me]
        first = stream.committed
        looked = first < self.numbers and stream.numbers[first] == ABSENT
        served = any(term.epoch > process.epoch for term in state.terms)
        if served and not stream.fenced and (looked or not self.rules.answers_after_a_look):
            yield f"{me} answers for p", state._replace(false_answer=True)

    def _release_steps(self, state: State, me: int, process: Process) -> Iterator[Step]:
        stream = state.streams[me]
        end = stream.end_for(process.epoch)
        committed = stream.committed >= end
        if not self.rules.waits_until_committed:
            committed = end == 0 or bool(stream.durable >> end - 1 & 1)
        if stream.fenced or not committed:
            return
        read = self._after_reading(state, me, process)
        if read.phase != "stopped":
            yield f"{me} reads the cluster log: p is gone", _with_process(state, me, read)
            return
        for successor in sorted(self.membership(state).live - {me}):
            record = Record("release", me, process.epoch + 1, successor, end)
            waiting = read._replace(phase="undecided", at=len(state.log), proposal=record)
            for label, following in self._proposals(state, record, f"{me} proposes"):
                yield f"{label}: {_shown(record)}", _with_process(following, me, waiting)

    def _leaving_steps(self, state: State, me: int, process: Process) -> Iterator[Step]:
        """Leave the cluster. As with an expiry, the successor of what is left seals the stream."""
        if process.phase == "leaving":
            if len(state.log) <= process.at:
                return
            if state.log[process.at] == process.proposal or me not in self.membership(state).live:
                gone = Process("over", position=len(state.log))
                yield f"{me} learns that it has left", _with_process(state, me, gone)
                return
        elif process.phase not in ("idle", "stopped"):
            return
        known = self.membership(state)
        if me not in known.live or len(known.live) == 1:
            return
        if process.phase == "leaving" and not self.rules.loser_starts_over:
            record = process.proposal
            assert record is not None
        else:
            successor = min(known.live - {me})
            record = self._moving("deregister", me, successor, known, known.leader == me)
        waiting = Process("leaving", position=process.position, at=len(state.log), proposal=record)
        for label, following in self._proposals(state, record, f"{me} proposes {_shown(record)}"):
            yield label, _with_process(following, me, waiting)

    def _recovery_steps(self, state: State, me: int, process: Process) -> Iterator[Step]:
        known = fold(state.log[: process.position], self.rules)
        start, hole = 0, False
        for part in known.parts:
            if part.epoch >= process.epoch:
                continue
            stream = state.streams[part.process]
            first = next((n for n, it in enumerate(stream.numbers) if it != DATA), self.numbers)
            end = first if part.end == NONE else part.end
            if part.end != NONE:
                hole |= first < part.end
            elif self._to_be_sealed(stream, first):
                yield from self._seal_steps(state, me, part.process, first)
                return
            start += stream.records_of(part.epoch, end)
        serving = _with_process(state, me, process._replace(phase="leading"))
        term = Term(process.epoch, me, start)
        terms = tuple(sorted({*state.terms, term}))
        label = f"{me} serves p at epoch {process.epoch} from offset {start}"
        yield label, serving._replace(terms=terms, hole=state.hole or hole)

    def _to_be_sealed(self, stream: Stream, first: int) -> bool:
        sealed = first == self.numbers or stream.numbers[first] == SEAL
        return self.rules.seals_before_serving and not sealed

    def _seal_steps(self, state: State, me: int, owner: int, first: int) -> Iterator[Step]:
        stream = state.streams[owner]
        last = min(first + self.window, self.numbers) - 1
        seals = stream.seals | sum(1 << n for n in range(first, last + 1))
        if seals != stream.seals:
            sealed = _with_stream(state, owner, stream._replace(seals=seals))
            yield f"{me} puts seals at {first} to {last} of {owner}'s stream", sealed

    # -- expiry ---------------------------------------------------------------------------------

    def _expiry_steps(self, state: State) -> Iterator[Step]:
        known = self.membership(state)
        if state.expiry is None:
            if state.expiries == 0 and len(known.live) > 1:
                for process in sorted(known.live):
                    yield from self._expire(state, known, process)
            return
        at, record = state.expiry
        if len(state.log) <= at:
            return
        if state.log[at] == record:
            yield "X learns that it won", state._replace(expiry=None)
        elif record.process not in known.live or len(known.live) == 1:
            yield f"X lost {at}, gives up", state._replace(expiry=None)
        elif self.rules.loser_starts_over:
            yield from self._expire(state, known, record.process)
        else:
            yield from self._put_expiry(state, record)

    def _expire(self, state: State, known: Membership, process: int) -> Iterator[Step]:
        successor = min(known.live - {process})
        orphans = known.leader == process
        record = self._moving("expire", process, successor, known, orphans)
        yield from self._put_expiry(state, record)

    def _put_expiry(self, state: State, record: Record) -> Iterator[Step]:
        at = len(state.log)
        for label, following in self._proposals(state, record, f"X proposes {_shown(record)}"):
            yield label, following._replace(expiry=Expiry(at, record), expiries=1)


def _shown(record: Record) -> str:
    if record.kind == "release":
        return f"the release of p, up to {record.end}, to {record.successor}"
    verb = {"register": "registration", "expire": "expiry", "deregister": "departure"}[record.kind]
    moves = "" if record.epoch == NONE else f" with p to {record.successor}"
    return f"the {verb} of {record.process}{moves}"


def _proposed(state: State, at: int, record: Record) -> State:
    return state._replace(puts=state.puts | {(at, record)})


def _landed(state: State, owner: int, n: int, value: int) -> State:
    stream = state.streams[owner]
    numbers = (*stream.numbers[:n], value, *stream.numbers[n + 1 :])
    return _with_stream(state, owner, stream._replace(numbers=numbers))


def _with_stream(state: State, owner: int, stream: Stream) -> State:
    streams = (*state.streams[:owner], stream, *state.streams[owner + 1 :])
    return state._replace(streams=streams)


def _with_process(state: State, me: int, process: Process) -> State:
    processes = (*state.processes[:me], process, *state.processes[me + 1 :])
    return state._replace(processes=processes)
