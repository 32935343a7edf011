"""Producers against a model that forgets nothing: it holds every batch that was ever appended."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from neve import runtime
from neve.errors import NeveError
from neve.log.producers import (
    Duplicate,
    DuplicateSequenceError,
    OutOfOrderSequenceError,
    ProducerFencedError,
    Producers,
)
from neve.log.segment.history import History
from neve.log.wal.pending import Commit
from neve.records.batch import BatchHeader

ROUND = 2**31


@dataclass
class Stored:
    """One batch in the model's log. Its place is counted without ever going round."""

    epoch: int
    first: int
    last: int
    base_offset: int
    committed: bool = False


@dataclass
class Model:
    """The full history of each producer."""

    stored: dict[int, list[Stored]] = field(default_factory=dict)
    # Who had begun when the process last started: whether at 0 is not told by a bundle.
    restarted: dict[int, int] = field(default_factory=dict)

    def restart(self) -> None:
        self.restarted = {each: rows[-1].epoch for each, rows in self.stored.items()}

    def answer(self, producer: int, epoch: int, sequence: int, count: int) -> object:
        """What a batch is to be told: its kind, and where it was if it is a duplicate."""
        history = self.stored.get(producer, [])
        if not history:
            return "new"
        current = history[-1].epoch
        if epoch < current:
            return ProducerFencedError
        if epoch > current:
            return "new" if sequence == 0 else OutOfOrderSequenceError
        batches = [row for row in history if row.epoch == epoch]
        last = batches[-1].last
        if sequence == (last + 1) % ROUND:
            return "new"
        for row in batches[-5:]:
            if (row.first % ROUND, row.last % ROUND) == (sequence, (sequence + count - 1) % ROUND):
                return ("duplicate", row.base_offset)
        # Where it would have been, had it come before the oldest that is remembered.
        place = last - (last - sequence) % ROUND + count - 1
        known_from_zero = batches[0].first == 0 and self.restarted.get(producer) != epoch
        if len(batches) >= 5 and place < batches[-5].first and known_from_zero:
            near = batches[-5].first - place - 1 < ROUND // 2
            if near and batches[-5].committed:
                return DuplicateSequenceError
        return OutOfOrderSequenceError

    def append(self, producer: int, epoch: int, sequence: int, count: int, offset: int) -> Stored:
        history = self.stored.setdefault(producer, [])
        same = [row for row in history if row.epoch == epoch]
        first = same[-1].last + 1 if same else sequence
        row = Stored(epoch, first, first + count - 1, offset)
        history.append(row)
        return row


def header(producer: int, epoch: int, sequence: int, count: int, offset: int = 0) -> BatchHeader:
    return BatchHeader(
        offset, 49, 0, 2, 0, 0, count - 1, 1_000, 1_000, producer, epoch, sequence, count
    )


@st.composite
def sends(draw: st.DrawFn) -> tuple[int, int, int]:
    """Which producer, which of its recent batches relative to the next one, how the epoch moves."""
    return (
        draw(st.integers(0, 2)),
        draw(st.sampled_from([0, 0, 0, 0, -1, -1, -2, -3, -5, -6, -9, 1, 2])),
        draw(st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1])),
    )


Step = tuple[tuple[int, int, int], int, bool, bool]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([0, 0, 5, ROUND - 4]),
    st.lists(
        st.tuples(sends(), st.integers(1, 3), st.booleans(), st.sampled_from([False] * 9 + [True])),
        max_size=60,
    ),
)
def test_it_answers_as_one_who_forgets_nothing(start: int, steps: list[Step]) -> None:
    async def main() -> None:
        await _play(start, steps)

    runtime.simulate(main(), seed=1)


async def _play(start: int, steps: list[Step]) -> None:
    model, producers, history = Model(), Producers(), History("k")
    sent: dict[int, list[tuple[int, int, int]]] = {}
    waiting: list[tuple[Commit, Stored]] = []
    offset = 0
    for (producer, which, epoch_step), count, commit_all, restart in steps:
        epoch, sequence, count = _chosen(sent, producer, which, epoch_step, count, start)
        expected = model.answer(producer, epoch, sequence, count)
        made = header(producer, epoch, sequence, count)
        try:
            found: object = producers.check(made)
        except NeveError as error:
            found = type(error)
        if isinstance(found, Duplicate):
            found = ("duplicate", found.base_offset)
        assert (found or "new") == expected, (producer, epoch, sequence, count)
        if expected == "new":
            commit = Commit()
            waiting.append((commit, model.append(producer, epoch, sequence, count, offset)))
            producers.appended(made, offset, commit)
            history.observe(made._replace(base_offset=offset), b"")
            sent.setdefault(producer, []).append((epoch, sequence, count))
            offset += count
        if commit_all:
            for commit, row in waiting:
                commit.succeed()
                row.committed = True
            waiting.clear()
        assert producers.entries() == history.producers.entries()
        if restart:
            for commit, row in waiting:
                commit.succeed()
                row.committed = True
            waiting.clear()
            model.restart()
            producers = Producers(history.producers.entries())


def _chosen(
    sent: dict[int, list[tuple[int, int, int]]],
    producer: int,
    which: int,
    epoch_step: int,
    count: int,
    start: int,
) -> tuple[int, int, int]:
    before = sent.get(producer, [])
    if not before:
        return 0, start, count
    epoch, sequence, length = before[-1]
    if epoch_step:
        return max(0, epoch + epoch_step), 0 if which == 0 else 3, count
    if which < 0 and len(before) >= -which:
        return before[which]
    return epoch, (sequence + length + max(which, 0)) % ROUND, count
