"""Moves dead letters that can be decoded now into their table, each exactly once.

Two tables cannot change atomically, so a replay takes four steps:

1. read the topic's table, then the letters, and write the rows of the readable ones;
2. append the rows, and name the letters in the same commit. It fails if letters are named already,
   or if they are no longer those of step 1;
3. read the letters, check that they are still named, and remove them from their table. It fails if
   that table has changed since it was read;
4. commit to the topic's table that no letters are named any more.

A replay that finds letters named, because another one died, takes steps 3 and 4 first. Letters that
another replay moved between steps 1 and 2 are still named at step 2, or the table of letters has
changed. A replay that was overtaken in step 3 cannot remove letters later, since the other one
changed their table.

Letters are named by runs among the letters of their partition. No letter can be added to a run
later: only letters of offsets that the table has passed are replayed.
"""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from neve.lake.tables.commit_attempt import (
    ATTEMPTS_MAX,
    Attempt,
    BusyTableError,
    attempt,
    propose,
    refreshed,
)
from neve.lake.tables.commit_outcome import stale_reason
from neve.lake.tables.dead_letter_files import (
    RECORD_ID,
    Mask,
    RecordId,
    letter_batches,
    record_ids,
    rewrite,
)
from neve.lake.tables.dead_letters import decided
from neve.lake.tables.history import LetterRun, TableState, state_of
from neve.lake.tables.progress import Progress, offset_of
from neve.lake.tables.table_ref import WrittenFile

RUNS_MAX = 4096
"""The number of runs that fit into a snapshot's summary; more need several commits."""


@dataclass(frozen=True)
class ReplayScan:
    """The result of step 1: the table's offsets, the letters, and those that are rows already."""

    progress: Progress
    letters_id: int | None
    replayed: tuple[LetterRun, ...] = ()


@dataclass
class Findings:
    """Readable and unreadable letters. A record that occurs twice is neither."""

    good: set[RecordId] = field(default_factory=set)
    bad: set[RecordId] = field(default_factory=set)
    twice: set[RecordId] = field(default_factory=set)

    def add(self, ids: Iterable[RecordId], good: Mask) -> None:
        for record, readable in zip(ids, good.tolist(), strict=True):
            if record in self.good or record in self.bad:
                self.twice.add(record)
            (self.good if readable else self.bad).add(record)

    @property
    def readable(self) -> set[RecordId]:
        return self.good - self.bad - self.twice

    def runs(self) -> list[LetterRun]:
        """Return the runs to replay, at most as many as one commit takes."""
        left = self.bad | self.twice
        found: list[LetterRun] = []
        everything = sorted(self.good | left)
        for readable, group in itertools.groupby(everything, lambda each: each not in left):
            if not readable:
                continue
            for (topic_id, partition), run in itertools.groupby(group, lambda each: each[:2]):
                offsets = [offset for _, _, offset in run]
                found.append(LetterRun(topic_id, partition, offsets[0], offsets[-1]))
        return found[:RUNS_MAX]


class LetterRuns:
    """Tests which letters are in some runs."""

    def __init__(self, runs: Sequence[LetterRun]) -> None:
        self._runs: Mapping[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        for run in sorted(runs):
            self._runs[run.topic_id, run.partition].append((run.first, run.last))

    def mask(self, batch: pa.RecordBatch) -> Mask:
        ids = record_ids(batch)
        return np.fromiter((self._has(*each) for each in ids), np.bool_, batch.num_rows)

    def _has(self, topic_id: str, partition: int, offset: int) -> bool:
        runs = self._runs.get((topic_id, partition), [])
        number = bisect.bisect_right(runs, offset, key=lambda run: run[0]) - 1
        return number >= 0 and offset <= runs[number][1]


def begin_replay(table: Table, letters: Table, *, finish: bool = True) -> ReplayScan:
    """Take step 1. Finishes an interrupted replay first if `finish` is True."""
    state = finish_replay(table, letters) if finish else state_of(refreshed(table))
    return ReplayScan(state.progress, _snapshot_id(refreshed(letters)), state.replayed)


def replayable(letters: Table, seen: ReplayScan, topic: str) -> Iterator[pa.RecordBatch]:
    """Yield a topic's letters whose offsets the table has passed; pipelines decide the others.

    Letters without a record id were written by other programs and are skipped. Topics that share a
    table share the table of letters, and have their own formats.
    """
    for batch in letter_batches(letters):
        placed = batch.filter(pc.and_(_placed(batch), pc.equal(batch.column("topic"), topic)))
        kept = placed.filter(pa.array(decided(placed, seen.progress)))
        if seen.replayed:
            kept = kept.filter(pa.array(~LetterRuns(seen.replayed).mask(kept)))
        if kept.num_rows:
            yield kept


def _placed(batch: pa.RecordBatch) -> pa.BooleanArray:
    columns = [batch.column(name).is_valid() for name in RECORD_ID]
    return pc.and_(pc.and_(columns[0], columns[1]), columns[2])


def commit_replay(
    table: Table,
    letters: Table,
    files: Sequence[WrittenFile],
    runs: Sequence[LetterRun],
    seen: ReplayScan,
) -> bool:
    """Take steps 2 to 4 for the letters in `runs`, whose rows are in `files`.

    Returns False if the tables have changed since step 1 and nothing was done.
    """
    assert 0 < len(runs) <= RUNS_MAX
    for _ in range(ATTEMPTS_MAX):
        state = state_of(refreshed(table))
        if state.replayed or not _passed(state, runs) or stale_reason(table, files):
            return False
        if _snapshot_id(refreshed(letters)) != seen.letters_id:
            return False
        naming = replace(state, replayed=tuple(runs))
        proposal = propose(table, naming, add=[file.entry() for file in files])
        if attempt(table, proposal) is Attempt.LANDED:
            finish_replay(table, letters)
            return True
    return False


def finish_replay(table: Table, letters: Table) -> TableState:
    """Take steps 3 and 4 if letters are named. Returns the table's state afterwards."""
    for _ in range(ATTEMPTS_MAX):
        refreshed(letters)
        state = state_of(refreshed(table))
        if not state.replayed:
            return state
        if _remove_letters(letters, LetterRuns(state.replayed)) is Attempt.LANDED:
            attempt(table, propose(table, replace(state, replayed=())))
    raise BusyTableError(f"table {'.'.join(table.name())} is changed too often; try later")


def _remove_letters(letters: Table, runs: LetterRuns) -> Attempt:
    return rewrite(letters, [], stays=lambda batch: ~runs.mask(batch), stays_whole=lambda _: False)


def _passed(state: TableState, runs: Sequence[LetterRun]) -> bool:
    """Return True if the table has passed all of these; it may have been rolled back."""
    ends = ((offset_of(state.progress, run.topic_id, run.partition), run.last) for run in runs)
    return all(end is not None and last < end for end, last in ends)


def _snapshot_id(table: Table) -> int | None:
    snapshot = table.metadata.current_snapshot()
    return None if snapshot is None else snapshot.snapshot_id
