"""Folding any valid sequence of manifest numbers.

A plain model keeps the listed segments in a dict and never hears of runs; the real state, with its
runs opened, must list the same. Sequences are driven by chance but are always valid, as those are
that the code writes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from neve.log.envelope import Kind, decode_payload, open_envelope, seal_envelope
from neve.log.manifest.records import (
    Add,
    Change,
    Collected,
    Doom,
    ManifestRecord,
    Reindex,
    Replace,
    Runs,
    Segment,
    Skip,
    Start,
    removal,
)
from neve.log.manifest.state import ManifestRules, ManifestState, doomed_since
from support.manifest_rows import run_of, segment

RULES = ManifestRules()


@dataclass
class Author:
    """Makes valid changes, and remembers what they should amount to."""

    chance: random.Random
    state: ManifestState = field(default_factory=ManifestState)
    listed: dict[str, Segment] = field(default_factory=dict)
    runs: dict[str, tuple[Segment, ...]] = field(default_factory=dict)
    doomed: dict[str, None] = field(default_factory=dict)
    ever_doomed: set[str] = field(default_factory=set)
    records: list[ManifestRecord] = field(default_factory=list)
    named: int = 0

    def name(self, kind: str) -> str:
        self.named += 1
        return f"{kind}{self.named}"

    def in_order(self) -> list[Segment]:
        return sorted(self.listed.values(), key=lambda row: row.base)

    def write(self, change: Change) -> None:
        record = ManifestRecord((change,))
        self.state = RULES.fold(self.state, len(self.records), record)
        self.records.append(record)

    def doom(self, *keys: str | None) -> None:
        fresh = {key: None for key in keys if key is not None}
        self.doomed |= fresh
        self.ever_doomed |= set(fresh)

    def drop(self, rows: list[Segment]) -> None:
        for row in rows:
            del self.listed[row.key]

    # -- one method a change; each does nothing where the change would not be valid

    def add(self) -> None:
        if self.state.state_bundle is not None:
            self.doom(self.state.state_bundle.key)
        base = self.state.next
        if self.chance.random() < 0.2:
            base = max(base, self.state.start)
        rows = []
        for _ in range(self.chance.randint(1, 3)):
            rows.append(segment(base, base + self.chance.randint(0, 9), name=self.name("s")))
            base = rows[-1].last + 1
        self.write(Add(tuple(rows)))
        self.listed |= {row.key: row for row in rows}

    def replace(self) -> None:
        rows = self.in_order()
        if not rows:
            return
        first = self.chance.randrange(len(rows))
        gone = rows[first : first + self.chance.randint(1, 3)]
        merged = segment(gone[0].base, gone[-1].last, name=self.name("m"))
        self.write(Replace(tuple(map(removal, gone)), (merged,)))
        self.drop(gone)
        self.listed[merged.key] = merged
        self.doom(*(key for row in gone for key in (row.key, row.index_key)))

    def start(self) -> None:
        rows = self.in_order()
        gone = rows[: self.chance.randint(0, len(rows))]
        offset = gone[-1].last + 1 if gone else self.state.start + self.chance.randint(0, 3)
        end = self.state.next
        self.write(Start(offset, tuple(map(removal, gone))))
        self.drop(gone)
        self.doom(*(row.key for row in gone))
        self.doom(*(row.index_key for row in gone if row.last + 1 != end))

    def reindex(self) -> None:
        if not self.listed:
            return
        row = self.chance.choice(self.in_order())
        fresh = msgspec.structs.replace(row, index_key=self.name("i"), index_bytes=7)
        assert fresh.index_key is not None
        self.write(Reindex(row.key, row.base, row.index_key, fresh.index_key, 7))
        self.listed[row.key] = fresh
        self.doom(row.index_key)

    def orphan(self) -> None:
        key = self.name("orphan")
        self.write(Doom((key,)))
        self.doom(key)

    def collect(self) -> None:
        keys = [key for key in self.doomed if self.chance.random() < 0.5]
        if keys:
            self.write(Collected(tuple(keys)))
            for key in keys:
                del self.doomed[key]

    def gather(self) -> None:
        loose = self.state.loose
        chosen = loose[: self.chance.randint(0, len(loose))]
        clear = chosen and all(
            run.last < chosen[0].base or run.base > chosen[-1].last for run in self.state.runs
        )
        if clear:
            self.runs[key := self.name("run")] = chosen
            self.write(Runs((run_of(key, chosen),)))

    def rewrite_run(self) -> None:
        """A run and whatever is listed within its range become another run, or none."""
        if not self.state.runs:
            return
        old = self.chance.choice(self.state.runs)
        rows = [row for row in self.in_order() if old.base <= row.base <= old.last]
        if any(row.last > old.last for row in rows):
            return  # a merge reached out of the run: not this simple kind of rewrite
        if not rows:
            self.write(Runs((), (old.key,)))
            return
        self.runs[key := self.name("run")] = tuple(rows)
        self.write(Runs((run_of(key, rows),), (old.key,)))

    def skip(self) -> None:
        self.write(Skip(0, 1, 2, "lost"))

    CHOICES = (add, add, replace, start, reindex, orphan, collect, gather, rewrite_run, skip)


def opened(state: ManifestState, runs: dict[str, tuple[Segment, ...]]) -> dict[str, Segment]:
    """What a state lists, with its runs read."""
    removed = {row.key for row in state.removed}
    reindexed = {row.key: row for row in state.reindexed}
    rows: dict[str, Segment] = {}
    for row in [*(row for run in state.runs for row in runs[run.key]), *state.loose]:
        if row.key in removed:
            continue
        assert row.key not in rows, "listed twice"
        change = reindexed.get(row.key)
        rows[row.key] = (
            row
            if change is None
            else msgspec.structs.replace(
                row, index_key=change.index_key, index_bytes=change.index_bytes
            )
        )
    return rows


def written(seed: int, length: int) -> Author:
    author = Author(random.Random(seed))
    for _ in range(length):
        author.chance.choice(Author.CHOICES)(author)
    return author


# How long an example takes says more about the machine than about folding.
unhurried = settings(deadline=None)
SEEDS = st.integers(0, 2**32)
LENGTHS = st.integers(0, 60)


@unhurried
@given(SEEDS, LENGTHS)
def test_the_listed_set_is_what_the_changes_say(seed: int, length: int) -> None:
    author = Author(random.Random(seed))
    for _ in range(length):
        author.chance.choice(Author.CHOICES)(author)
        assert opened(author.state, author.runs) == author.listed


@unhurried
@given(SEEDS, LENGTHS)
def test_every_doom_survives_until_it_is_collected(seed: int, length: int) -> None:
    author = written(seed, length)
    bundle = author.state.state_bundle
    assert set(author.state.doomed) == set(author.doomed)
    assert bundle is None or bundle.key not in author.doomed


@unhurried
@given(SEEDS, LENGTHS)
def test_nothing_listed_is_doomed(seed: int, length: int) -> None:
    author = written(seed, length)
    listed = {key for row in author.listed.values() for key in (row.key, row.index_key)}
    assert not listed & author.ever_doomed


@unhurried
@given(SEEDS, LENGTHS, st.data())
def test_a_checkpoint_and_later_numbers_are_all_numbers(
    seed: int, length: int, data: st.DataObject
) -> None:
    author = written(seed, length)
    at = data.draw(st.integers(0, len(author.records)))
    state = ManifestState()
    for number, record in enumerate(author.records[:at]):
        state = RULES.fold(state, number, record)
    envelope = seal_envelope(Kind.MANIFEST_CHECKPOINT, "p/", at, b"a" * 16, state)
    found = open_envelope(envelope, Kind.MANIFEST_CHECKPOINT, "p/", at, "key")
    state = decode_payload(found, ManifestState, "key")
    for number, record in enumerate(author.records[at:], at):
        state = RULES.fold(state, number, record)
    assert state == author.state


@unhurried
@given(SEEDS, LENGTHS)
def test_records_survive_their_envelope(seed: int, length: int) -> None:
    for record in written(seed, length).records:
        sealed = seal_envelope(Kind.MANIFEST_RECORD, "p/", 1, b"a" * 16, record)
        found = open_envelope(sealed, Kind.MANIFEST_RECORD, "p/", 1, "key")
        assert decode_payload(found, ManifestRecord, "key") == record


@unhurried
@given(SEEDS, LENGTHS)
def test_one_who_read_every_number_knows_every_doom(seed: int, length: int) -> None:
    author = written(seed, length)
    assert doomed_since(ManifestState(), author.records) == author.ever_doomed


@unhurried
@given(SEEDS, LENGTHS)
def test_only_replaced_runs_are_doomed_as_runs(seed: int, length: int) -> None:
    author = written(seed, length)
    current = {run.key for run in author.state.runs}
    doomed = {run.key for run in author.state.doomed_runs}
    assert current | doomed == set(author.runs)
    assert not current & doomed
    for run in author.state.doomed_runs:
        change = author.records[run.number].changes[0]
        assert isinstance(change, Runs)
        assert run.key in change.replaced


@unhurried
@given(SEEDS, LENGTHS)
def test_the_start_and_the_end_never_go_back(seed: int, length: int) -> None:
    state = ManifestState()
    for number, record in enumerate(written(seed, length).records):
        after = RULES.fold(state, number, record)
        assert after.start >= state.start
        assert after.next >= state.next
        state = after
