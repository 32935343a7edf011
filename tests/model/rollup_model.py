"""A stream's checkpoints as roll-ups: the owner, janitors after the seal, tiering, a reader.

One stream, one partition; number i holds offset i. The owner rolls its oldest numbers up and does
not know when it is fenced; janitors, successors of a sealed stream, do the same beside it. Tiering
wins manifest numbers at any time. A checkpoint's put may land at any later time, its writer long
gone. Whoever likes deletes what the rules allow, between any two steps: the rules only ever come
to allow more, so a deleter with an old view is no worse.

The reader resolves the partition's end as recovery does: the list of streams, checkpoint and
numbers, and the manifest. Answering an end below what was committed gives offsets out twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .search import Model

LOST = "a committed, untiered record is in no roll-up and no number"
NAMED_BUT_DELETED = "the greatest checkpoint names a deleted roll-up"
SHORT_END = "the reader resolves an end below what was committed when it began"


@dataclass(frozen=True)
class Rules:
    """The rules of roll-ups and of reading a tail; a field set to False drops one."""

    checkpoint_never_overwritten: bool = True
    named_only_by_own_checkpoint: bool = True
    deleted_only_once_its_checkpoint_is_decided: bool = True
    only_won_tiering_is_left_out: bool = True
    tail_before_manifest: bool = True
    next_offset_checked: bool = True


class RollUp(NamedTuple):
    target: int  # the checkpoint it was uploaded for; its key carries it
    writer: int
    low: int  # it holds the offsets from here up to `target`

    def __str__(self) -> str:
        return f"{'OJK'[self.writer]}[{self.low},{self.target})"


Names = tuple[RollUp, ...]


class Writer(NamedTuple):
    phase: str  # "idle", "aimed", "holding", "uploaded", "waiting"
    base: int
    names: Names
    target: int
    rounds: int  # how many it may still begin


class Reader(NamedTuple):
    phase: str  # "idle", "list", "checkpoint", "rollups", "numbers", "missed", "tail", "done"
    asked: int
    tiered: int
    position: int
    names: Names
    tail: int  # mask of offsets
    short: bool


class State(NamedTuple):
    committed: int
    end: int  # -1 until sealed
    tiered: int
    listed: bool  # the cluster's list of what is not wholly tiered still has the stream
    numbers: int  # mask
    checkpoints: tuple[Names | None, ...]
    rollups: Names
    puts: tuple[tuple[int, Names], ...]  # checkpoints on their way
    writers: tuple[Writer, ...]
    reader: Reader | None

    @property
    def greatest(self) -> int:
        return max(n for n, names in enumerate(self.checkpoints) if names is not None)


Step = tuple[str, State]


@dataclass(frozen=True)
class RollUpModel(Model[State]):
    numbers: int = 2
    owner_rounds: int = 2
    janitors: int = 1
    with_reader: bool = True
    leaves_list: bool = True
    rules: Rules = Rules()

    def initial(self) -> State:
        owner = Writer("idle", 0, (), 0, self.owner_rounds)
        janitors = (Writer("idle", 0, (), 0, 1),) * self.janitors
        return State(
            committed=0,
            end=-1,
            tiered=0,
            listed=True,
            numbers=0,
            checkpoints=((), *(None,) * self.numbers),
            rollups=(),
            puts=(),
            writers=(owner, *janitors),
            reader=Reader("idle", 0, 0, 0, (), 0, False) if self.with_reader else None,
        )

    def harms(self, state: State) -> tuple[str, ...]:
        greatest = state.greatest
        named = state.checkpoints[greatest]
        assert named is not None
        found = []
        if any(rollup not in state.rollups for rollup in named):
            found.append(NAMED_BUT_DELETED)
        held = state.numbers & ~((1 << greatest) - 1) | _offsets(named, state.rollups)
        if any(not held >> offset & 1 for offset in range(state.tiered, state.committed)):
            found.append(LOST)
        if state.reader is not None and state.reader.short:
            found.append(SHORT_END)
        return tuple(found)

    def steps(self, state: State) -> Iterator[Step]:
        yield from self._stream_steps(state)
        yield from self._landings(state)
        yield from self._deletions(state)
        for index, writer in enumerate(state.writers):
            yield from self._writer_steps(state, index, writer)
        if state.reader is not None:
            yield from self._reader_steps(state, state.reader)

    def _stream_steps(self, state: State) -> Iterator[Step]:
        count = state.committed
        if state.end < 0:
            if count < self.numbers:
                grown = state._replace(committed=count + 1, numbers=state.numbers | 1 << count)
                yield f"number {count} is committed", grown
            yield f"the stream is sealed, end {count}", state._replace(end=count)
        if state.tiered < count:
            above = state.tiered + 1
            label = f"a manifest number is won: offsets below {above} are tiered"
            yield label, state._replace(tiered=above)
        elif state.end >= 0 and state.listed and self.leaves_list:
            yield "the stream, wholly tiered, leaves the list", state._replace(listed=False)

    def _landings(self, state: State) -> Iterator[Step]:
        for put in state.puts:
            n, names = put
            rest = tuple(other for other in state.puts if other != put)
            if self.rules.checkpoint_never_overwritten:
                # Creates of the same number are refused from now on.
                rest = tuple(other for other in rest if other[0] != n)
            now = (*state.checkpoints[:n], names, *state.checkpoints[n + 1 :])
            label = f"checkpoint/{n} lands, naming {_text(names)}"
            yield label, state._replace(checkpoints=now, puts=rest)

    def _deletions(self, state: State) -> Iterator[Step]:
        greatest = state.greatest
        named = state.checkpoints[greatest] or ()
        for n in range(greatest):
            if state.numbers >> n & 1:
                yield f"number {n} is deleted", state._replace(numbers=state.numbers & ~(1 << n))
        for rollup in state.rollups:
            if rollup in named or not greatest:
                continue
            decided = greatest >= rollup.target
            if decided or not self.rules.deleted_only_once_its_checkpoint_is_decided:
                rest = tuple(other for other in state.rollups if other != rollup)
                yield f"roll-up {rollup} is deleted", state._replace(rollups=rest)

    def _writer_steps(self, state: State, index: int, writer: Writer) -> Iterator[Step]:
        name = "OJK"[index]
        if writer.phase == "idle" and writer.rounds and (index == 0 or state.end >= 0):
            greatest = state.greatest
            names = state.checkpoints[greatest] or ()
            for target in range(greatest + 1, state.committed + 1):
                aimed = Writer("aimed", greatest, names, target, writer.rounds - 1)
                label = f"{name} reads checkpoint/{greatest}, aims at {target}"
                yield label, _with_writer(state, index, aimed)
        elif writer.phase == "aimed":
            wanted = ((1 << writer.target) - 1) & ~((1 << writer.base) - 1)
            whole = all(rollup in state.rollups for rollup in writer.names)
            if whole and wanted & ~state.numbers == 0:
                holding = writer._replace(phase="holding")
                label = f"{name} reads what lies below {writer.target}"
                yield label, _with_writer(state, index, holding)
            else:
                again = Writer("idle", 0, (), 0, writer.rounds + 1)
                yield f"{name} misses an object, starts again", _with_writer(state, index, again)
        elif writer.phase == "holding":
            yield from self._uploads(state, index, writer)
        elif writer.phase == "uploaded":
            puts = state.puts
            taken = state.checkpoints[writer.target] is not None
            if not (taken and self.rules.checkpoint_never_overwritten):
                puts = tuple(sorted({*puts, (writer.target, writer.names)}))
            waiting = _with_writer(state, index, writer._replace(phase="waiting"))
            label = f"{name} puts checkpoint/{writer.target}, naming {_text(writer.names)}"
            yield label, waiting._replace(puts=puts)
        elif writer.phase == "waiting" and state.checkpoints[writer.target] is not None:
            through = Writer("idle", 0, (), 0, writer.rounds)
            label = f"{name} reads checkpoint/{writer.target}: decided"
            yield label, _with_writer(state, index, through)

    def _uploads(self, state: State, index: int, writer: Writer) -> Iterator[Step]:
        covered = [state.tiered]
        if not self.rules.only_won_tiering_is_left_out and state.tiered < state.committed:
            covered.append(state.tiered + 1)
        for tiered in covered:
            low = tiered
            kept: Names = ()
            if not self.rules.named_only_by_own_checkpoint:
                low = max(low, writer.base)
                kept = tuple(rollup for rollup in writer.names if rollup.target > tiered)
            rollups, names = state.rollups, kept
            label = f"{'OJK'[index]} has nothing to roll up: offsets below {tiered} are tiered"
            if low < writer.target:
                rollup = RollUp(writer.target, index, low)
                rollups = tuple(sorted((*rollups, rollup)))
                names = tuple(sorted((*kept, rollup)))
                label = f"{'OJK'[index]} uploads roll-up {rollup}"
            if kept:
                label += f", keeps {_text(kept)}"
            done = _with_writer(state, index, writer._replace(phase="uploaded", names=names))
            yield label, done._replace(rollups=rollups)

    def _reader_steps(self, state: State, reader: Reader) -> Iterator[Step]:
        for label, following in self._reader_next(state, reader):
            yield label, state._replace(reader=following)

    def _reader_next(self, state: State, reader: Reader) -> Iterator[tuple[str, Reader]]:
        phase, at = reader.phase, reader.position
        if phase == "idle":
            begun = reader._replace(phase="list", asked=state.committed)
            label = f"R begins ({state.committed} committed)"
            if not self.rules.tail_before_manifest:
                begun = begun._replace(tiered=state.tiered)
                label += f", reads the manifest: tiered to {state.tiered}"
            yield label, begun
        elif phase == "list":
            if state.listed:
                yield "R finds the stream listed", reader._replace(phase="checkpoint")
            else:
                yield "R finds no stream listed", reader._replace(phase="tail")
        elif phase == "checkpoint":
            greatest = state.greatest
            names = state.checkpoints[greatest] or ()
            label = f"R reads checkpoint/{greatest}, naming {_text(names)}"
            yield label, reader._replace(phase="rollups", position=greatest, names=names)
        elif phase == "rollups":
            if all(rollup in state.rollups for rollup in reader.names):
                tail = _offsets(reader.names, state.rollups)
                held = reader._replace(phase="numbers", names=(), tail=tail)
                yield "R reads the roll-ups", held
            else:
                yield "R misses a roll-up, starts again", _again(reader)
        elif phase == "numbers":
            if at < self.numbers and state.numbers >> at & 1:
                held = reader._replace(position=at + 1, tail=reader.tail | 1 << at)
                yield f"R reads number {at}", held
            else:
                yield f"R finds number {at} missing", reader._replace(phase="missed")
        elif phase == "missed":
            if state.greatest > at:
                yield f"R sees checkpoint/{state.greatest} above, starts again", _again(reader)
            else:
                yield (
                    f"R sees no checkpoint above {at}: the tail ends",
                    reader._replace(phase="tail"),
                )
        elif phase == "tail":
            yield self._resolve(state, reader)

    def _resolve(self, state: State, reader: Reader) -> tuple[str, Reader]:
        tiered, label = reader.tiered, "R"
        if self.rules.tail_before_manifest:
            tiered = state.tiered
            label = f"R reads the manifest: tiered to {tiered};"
        end = tiered
        while reader.tail >> end & 1:
            end += 1
        gap = reader.tail >> end != 0
        short = self.rules.next_offset_checked and reader.position > end
        if gap or short:
            return f"{label} finds offsets from {end} on lacking, starts again", _again(reader)
        answered = Reader("done", 0, 0, 0, (), 0, end < reader.asked)
        return f"{label} resolves the end {end} of {reader.asked} committed", answered


def _again(reader: Reader) -> Reader:
    return Reader("idle", 0, 0, 0, (), 0, False)


def _offsets(names: Names, rollups: Names) -> int:
    mask = 0
    for rollup in names:
        if rollup in rollups:
            mask |= (1 << rollup.target) - (1 << rollup.low)
    return mask


def _text(names: Names) -> str:
    return " and ".join(map(str, names)) or "nothing"


def _with_writer(state: State, index: int, writer: Writer) -> State:
    others = state.writers
    return state._replace(writers=(*others[:index], writer, *others[index + 1 :]))
