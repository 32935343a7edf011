"""A WAL stream: a pipelined writer, sealers, trimming, a lagging reader, and "still leading".

Every put that was issued, data or seal, may land at any later time, for ever: hedges, retries, lost
answers, processes that died, puts that come back after their number was deleted. The writer never
stops by itself; it learns that it is fenced only by meeting a seal. Deletes below the checkpoint,
and of seals above the end, may come between any two steps.

The reader keeps what it was told; the sealers declare an end and serve. The leadership check
belongs to one request: it is stale when a successor served before the request arrived.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .search import Model

TWO_ENDS = "two successors serve with different ends"
ACKED_BEYOND_END = "an acknowledged record lies beyond the end of a serving successor"
ACKED_BEYOND_CLOSED = "an acknowledged record lies beyond the end that a reader reported"
READER_DISAGREES = "a reader and a serving successor disagree on the end"
READER_PASSED = "a reader delivered a record at or beyond the end"
READER_SKIPPED = "a reader delivered a record beyond one that it never saw"
HOLE = "a number below the end of a serving successor is missing"
FALSE_LEADER = "the writer takes itself for the leader though a successor served before the request"

ABSENT, DATA, SEAL = 0, 1, 2


@dataclass(frozen=True)
class Rules:
    """The rules of a WAL stream as the design has them; a field set to False drops one."""

    commit_in_order: bool = True
    sealer_serves_at_first_seal_in_order: bool = True
    sealer_looks_after_reading_the_end: bool = True
    reader_stops_at_missing: bool = True
    missing_number_closes_nothing: bool = True
    seal_above_missing_closes_nothing: bool = True
    reader_looks_after_reading_the_end: bool = True
    checkpoint_never_above_end: bool = True
    end_seal_kept: bool = True
    greatest_checkpoint_kept: bool = True
    check_at_lowest_uncommitted: bool = True
    check_looks_at_checkpoint: bool = True
    commit_proves_only_requests_before_its_create: bool = True
    only_commit_in_order_proves: bool = True


class Sealer(NamedTuple):
    phase: str  # "idle", "walk", "missed" and "sealed" (both before the look), "serving"
    position: int


class Reader(NamedTuple):
    phase: str  # "walk", "missed" and "sealed" (both before the look), "closed"
    position: int
    skipped: bool


class Request(NamedTuple):
    phase: str  # "none", "waiting", "absent" (before the look), "passed", "false"
    tried: int  # how many creates the writer had issued when the request arrived
    stale: bool
    position: int


class State(NamedTuple):
    numbers: tuple[int, ...]
    tried: int  # numbers below were put by the writer
    durable: int  # mask: what the writer knows to hold its own object
    fenced: bool
    seals: int  # mask: seals that were put and may land
    checkpoint: int
    sealers: tuple[Sealer, ...]
    reader: Reader | None
    request: Request | None

    @property
    def committed(self) -> int:
        """How many numbers the writer knows committed: those it acknowledged, in order."""
        count = 0
        while self.durable >> count & 1:
            count += 1
        return count

    @property
    def ends(self) -> list[int]:
        return [position for phase, position in self.sealers if phase == "serving"]


Step = tuple[str, State]


@dataclass(frozen=True)
class WalModel(Model[State]):
    numbers: int = 3
    window: int = 2
    sealers: int = 2
    with_reader: bool = True
    with_request: bool = False
    rules: Rules = Rules()

    def initial(self) -> State:
        return State(
            numbers=(ABSENT,) * self.numbers,
            tried=0,
            durable=0,
            fenced=False,
            seals=0,
            checkpoint=0,
            sealers=(Sealer("idle", 0),) * self.sealers,
            reader=Reader("walk", 0, False) if self.with_reader else None,
            request=Request("none", 0, False, 0) if self.with_request else None,
        )

    def canonical(self, state: State) -> State:
        # Sealers are alike, and nothing in the store says which of them put a seal.
        ordered = tuple(sorted(state.sealers))
        return state if ordered == state.sealers else state._replace(sealers=ordered)

    def harms(self, state: State) -> tuple[str, ...]:
        ends, reader = state.ends, state.reader
        found = []
        acked = self._acked(state)
        if ends:
            if len(set(ends)) > 1:
                found.append(TWO_ENDS)
            if acked > min(ends):
                found.append(ACKED_BEYOND_END)
            if any(there != DATA for there in state.numbers[state.checkpoint : min(ends)]):
                found.append(HOLE)
        if reader is not None:
            found += _reader_harms(reader, ends, acked)
        if state.request is not None and state.request.phase == "false":
            found.append(FALSE_LEADER)
        return tuple(found)

    def _acked(self, state: State) -> int:
        if self.rules.commit_in_order:
            return state.committed
        return state.durable.bit_length()

    def steps(self, state: State) -> Iterator[Step]:
        yield from self._landings(state)
        yield from self._writer_steps(state)
        for index, sealer in enumerate(state.sealers):
            yield from self._sealer_steps(state, index, sealer)
        yield from self._trim_steps(state)
        if state.reader is not None:
            yield from self._reader_steps(state, state.reader)
        if state.request is not None:
            yield from self._request_steps(state, state.request)

    def _landings(self, state: State) -> Iterator[Step]:
        for n, there in enumerate(state.numbers):
            if there != ABSENT:
                continue
            if n < state.tried:
                yield f"the writer's put of {n} lands", _put(state, n, DATA)
            if state.seals >> n & 1:
                yield f"a seal lands at {n}", _put(state, n, SEAL)

    def _writer_steps(self, state: State) -> Iterator[Step]:
        tried = state.tried
        if not state.fenced and tried < self.numbers:
            before = tried - self.window
            if before < 0 or state.durable >> before & 1:
                yield f"the writer puts {tried}", state._replace(tried=tried + 1)
        for n in range(tried):
            if state.durable >> n & 1:
                continue
            if state.numbers[n] == DATA:
                learned = state._replace(durable=state.durable | 1 << n)
                yield f"the writer learns that {n} holds its own object", self._prove(learned, n)
            elif state.numbers[n] == SEAL and not state.fenced:
                yield f"the writer meets the seal at {n}: fenced", state._replace(fenced=True)

    def _prove(self, state: State, n: int) -> State:
        """A commit answers the waiting request where it proves that the writer still leads."""
        request = state.request
        if request is None or request.phase not in ("waiting", "absent"):
            return state
        if self.rules.only_commit_in_order_proves:
            if n >= state.committed:
                return state
            n = state.committed - 1
        if n >= request.tried or not self.rules.commit_proves_only_requests_before_its_create:
            return state._replace(request=_passed(request))
        return state

    def _sealer_steps(self, state: State, index: int, sealer: Sealer) -> Iterator[Step]:
        name, at, above = "BC"[index], sealer.position, state.checkpoint
        if sealer.phase == "idle":
            starts = Sealer("walk", above)
            yield f"{name} starts at checkpoint {above}", _with_sealer(state, index, starts)
        elif sealer.phase == "walk" and at < self.numbers:
            yield self._sealer_gets(state, index, sealer)
            if not self.rules.sealer_serves_at_first_seal_in_order and state.seals >> at & 1:
                for n in range(at, min(at + self.window, self.numbers)):
                    if state.numbers[n] == SEAL:
                        serving = _with_sealer(state, index, Sealer("serving", n))
                        yield f"{name} serves: the lowest seal it sees is {n}", serving
                        break
        elif sealer.phase in ("missed", "sealed"):
            looks = sealer.phase == "missed" or self.rules.sealer_looks_after_reading_the_end
            if above > at and looks:
                again = _with_sealer(state, index, Sealer("walk", above))
                yield f"{name} sees checkpoint {above} above {at}, starts again from it", again
            elif sealer.phase == "sealed":
                serving = _with_sealer(state, index, Sealer("serving", at))
                yield f"{name} serves, end {at}", serving
            else:
                last = min(at + self.window, self.numbers) - 1
                window = sum(1 << n for n in range(at, last + 1))
                putting = state._replace(seals=state.seals | window)
                walking = _with_sealer(putting, index, Sealer("walk", at))
                yield f"{name} puts seals at {at} to {last}", walking

    def _sealer_gets(self, state: State, index: int, sealer: Sealer) -> Step:
        name, at = "BC"[index], sealer.position
        there = state.numbers[at]
        if there == DATA:
            return f"{name} reads {at}", _with_sealer(state, index, Sealer("walk", at + 1))
        if there == SEAL:
            return f"{name} reads the seal at {at}", _with_sealer(
                state, index, Sealer("sealed", at)
            )
        return f"{name} finds {at} missing", _with_sealer(state, index, Sealer("missed", at))

    def _trim_steps(self, state: State) -> Iterator[Step]:
        ends, above = state.ends, state.checkpoint
        # The owner checkpoints what it acknowledged, a successor what lies before the end.
        beyond = 0 if self.rules.checkpoint_never_above_end else 1
        limit = max([state.committed, *(end + beyond for end in ends)])
        if above < min(limit, self.numbers):
            yield f"checkpoint {above + 1} is created", state._replace(checkpoint=above + 1)
        for n, there in enumerate(state.numbers):
            above_end = bool(ends) and there == SEAL and n > min(ends)
            if there != ABSENT and (n < above or above_end):
                yield f"number {n} is deleted", _put(state, n, ABSENT)
        if ends:
            end = min(ends)
            if not self.rules.end_seal_kept and state.numbers[end] == SEAL:
                yield f"the end seal {end} is deleted", _put(state, end, ABSENT)
            if not self.rules.greatest_checkpoint_kept and above == end > 0:
                yield f"checkpoint {above} is deleted", state._replace(checkpoint=0)

    def _reader_steps(self, state: State, reader: Reader) -> Iterator[Step]:
        phase, at, _ = reader
        above = state.checkpoint
        if phase == "walk" and at < self.numbers:
            there = state.numbers[at]
            if there == DATA:
                read = state._replace(reader=reader._replace(position=at + 1))
                yield f"R delivers {at}", read
            else:
                met = "sealed" if there == SEAL else "missed"
                label = f"R reads the seal at {at}" if there == SEAL else f"R finds {at} missing"
                yield label, state._replace(reader=reader._replace(phase=met))
        elif phase in ("missed", "sealed"):
            looks = phase == "missed" or self.rules.reader_looks_after_reading_the_end
            if above > at and looks:
                jumped = state._replace(reader=reader._replace(phase="walk", position=above))
                yield f"R sees checkpoint {above} above {at}, starts again from it", jumped
            elif phase == "sealed":
                closed = state._replace(reader=reader._replace(phase="closed"))
                yield f"R reports the stream closed at {at}", closed
            else:
                waits = state._replace(reader=reader._replace(phase="walk"))
                yield f"R waits for {at}", waits
                yield from self._reader_beyond_missing(state, reader)

    def _reader_beyond_missing(self, state: State, reader: Reader) -> Iterator[Step]:
        at, following = reader.position, reader.position + 1
        beyond = state.numbers[following] if following < self.numbers else ABSENT
        if beyond == SEAL and not self.rules.missing_number_closes_nothing:
            closed = state._replace(reader=reader._replace(phase="closed"))
            yield f"R sees a seal at {following}, reports the stream closed at {at}", closed
        if beyond == SEAL and not self.rules.seal_above_missing_closes_nothing:
            closed = state._replace(reader=reader._replace(phase="closed", position=following))
            yield f"R sees a seal at {following}, reports the stream closed there", closed
        if beyond == DATA and not self.rules.reader_stops_at_missing:
            skipped = state._replace(reader=Reader("walk", following + 1, True))
            yield f"R skips {at} and delivers {following}", skipped

    def _request_steps(self, state: State, request: Request) -> Iterator[Step]:
        if state.fenced:
            return
        if request.phase == "none":
            stale = bool(state.ends)
            arrived = Request("waiting", state.tried, stale, 0)
            yield (
                f"a request arrives at the writer ({state.tried} tried)",
                state._replace(request=arrived),
            )
        elif request.phase == "waiting":
            at = state.committed if self.rules.check_at_lowest_uncommitted else state.tried
            if at < self.numbers and state.numbers[at] == ABSENT:
                idle = state.tried == state.committed
                done = idle or not self.rules.check_looks_at_checkpoint
                answer = _passed(request) if done else Request("absent", *request[1:3], at)
                label = f"the writer finds {at} missing" + (", so it leads" if done else "")
                yield label, state._replace(request=answer)
        elif request.phase == "absent":
            if state.checkpoint > request.position:
                again = request._replace(phase="waiting", position=0)
                yield (
                    f"the writer sees checkpoint {state.checkpoint} above",
                    state._replace(request=again),
                )
            else:
                yield (
                    "the writer sees no checkpoint above, so it leads",
                    state._replace(request=_passed(request)),
                )


def _reader_harms(reader: Reader, ends: list[int], acked: int) -> Iterator[str]:
    if reader.phase == "closed":
        if any(end != reader.position for end in ends):
            yield READER_DISAGREES
        if acked > reader.position:
            yield ACKED_BEYOND_CLOSED
    if ends and reader.position > min(ends):
        yield READER_PASSED
    if reader.skipped:
        yield READER_SKIPPED


def _passed(request: Request) -> Request:
    return Request("false" if request.stale else "passed", 0, False, 0)


def _put(state: State, n: int, value: int) -> State:
    return state._replace(numbers=(*state.numbers[:n], value, *state.numbers[n + 1 :]))


def _with_sealer(state: State, index: int, sealer: Sealer) -> State:
    others = state.sealers
    return state._replace(sealers=(*others[:index], sealer, *others[index + 1 :]))
