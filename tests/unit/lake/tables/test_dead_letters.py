"""Dead letters and rows stay in line, whoever dies between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from neve import runtime
from neve.lake.tables import (
    Claim,
    CommitKind,
    CommitOutcome,
    commit,
    commit_dead_letters,
    commit_range,
    dead_letter_files,
    read_progress,
)
from neve.lake.tables.commit_outcome import FILE_AGE_MAX_MS
from neve.lake.tables.live_files import live_entries
from unit.lake.tables.table_scene import (
    at,
    catalog_in,
    held,
    letter_rows,
    letters_held,
    letters_in,
    once,
    rows,
    table_in,
    written,
)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with catalog_in(tmp_path) as opened:
        yield opened


def claimed(table: Table, letters: Table, offsets: list[int], first: int, end: int) -> Claim:
    files = written(letters, letter_rows(offsets))
    claim = commit_dead_letters(table, letters, files, at(first or None), at(end))
    assert isinstance(claim, Claim)
    return claim


def test_letters_come_first_and_rows_close_the_claim(catalog: Catalog) -> None:
    table, letters = table_in(catalog), letters_in(catalog)
    claim = claimed(table, letters, [3], 0, 10)
    assert letters_held(letters) == {(0, 3): ["broken"]}
    assert read_progress(table) == {}
    good = written(table, rows(0, 3), rows(4, 10))
    assert commit(table, good, {}, at(10), claim=claim).kind is CommitKind.COMMITTED
    assert commit(table, written(table, rows(10, 12)), at(10), at(12)).in_table
    assert held(table) + once(3, 4) == once(0, 12)


def test_killed_after_its_letters_the_range_is_done_again(catalog: Catalog) -> None:
    table, letters = table_in(catalog), letters_in(catalog)
    claimed(table, letters, [3, 8], 0, 10)
    # The next one plans less, with other eyes: 3 is good by now.
    outcome = commit_range(
        table,
        written(table, rows(0, 5)),
        {},
        at(5),
        letters=lambda: letters,
    )
    assert outcome.kind is CommitKind.COMMITTED
    assert letters_held(letters) == {}
    outcome = commit_range(
        table,
        written(table, rows(5, 8), rows(9, 10)),
        at(5),
        at(10),
        letters=lambda: letters,
        letter_files=written(letters, letter_rows([8], reason="again")),
    )
    assert outcome.kind is CommitKind.COMMITTED
    assert letters_held(letters) == {(0, 8): ["again"]}
    assert held(table) + once(8, 9) == once(0, 10)


def test_rows_alone_are_refused_while_letters_are_open(catalog: Catalog) -> None:
    table, letters = table_in(catalog), letters_in(catalog)
    claimed(table, letters, [3], 0, 10)
    outcome = commit(table, written(table, rows(0, 10)), {}, at(10))
    assert outcome.kind is CommitKind.CLAIMED
    assert held(table) == {}


def test_whoever_was_overtaken_commits_neither_letters_nor_rows(catalog: Catalog) -> None:
    table, letters = table_in(catalog), letters_in(catalog)
    slow = claimed(table, letters, [3], 0, 10)
    quick = claimed(table, letters, [4], 0, 10)
    outcome = commit(table, written(table, rows(0, 3), rows(4, 10)), {}, at(10), claim=slow)
    assert outcome.kind is CommitKind.CLAIMED
    good = written(table, rows(0, 4), rows(5, 10))
    assert commit(table, good, {}, at(10), claim=quick).kind is CommitKind.COMMITTED
    late = commit_dead_letters(table, letters, written(letters, letter_rows([3])), {}, at(10))
    assert isinstance(late, CommitOutcome)
    assert late.kind is CommitKind.ALREADY
    assert letters_held(letters) == {(0, 4): ["broken"]}


def test_letters_of_a_slow_one_cannot_land_after_another_s_rows(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked at the letters and put its claim; before it writes, the range is committed."""
    table, letters = table_in(catalog), letters_in(catalog)
    rival, rival_letters = table_in(catalog), letters_in(catalog)
    late = written(letters, letter_rows([3], reason="late"))
    real = catalog.commit_table
    raced = False

    def race(seen: Table, *arguments: object) -> object:
        nonlocal raced
        if seen is letters and not raced:
            raced = True
            outcome = commit_range(
                rival,
                written(rival, rows(0, 10)),
                {},
                at(10),
                letters=lambda: rival_letters,
            )
            assert outcome.kind is CommitKind.COMMITTED
        return real(seen, *arguments)

    monkeypatch.setattr(catalog, "commit_table", race)
    outcome = commit_dead_letters(table, letters, late, {}, at(10))
    assert raced
    assert isinstance(outcome, CommitOutcome)
    assert outcome.kind is CommitKind.ALREADY
    assert letters_held(letters) == {}
    assert held(table) == once(0, 10)


def test_decided_letters_stay_and_shared_files_are_taken_apart(catalog: Catalog) -> None:
    table, letters = table_in(catalog), letters_in(catalog)
    claim = claimed(table, letters, [1, 2, 30, 31], 0, 10)
    commit(table, [], {}, at(10), claim=claim)
    before = [each.data_file.file_path for each in live_entries(letters)]
    claimed(table, letters, [12], 10, 20)
    assert letters_held(letters) == {(0, 1): ["broken"], (0, 2): ["broken"], (0, 12): ["broken"]}
    after = [each.data_file.file_path for each in live_entries(letters)]
    assert set(before).isdisjoint(after)


def test_files_old_enough_to_be_orphans_are_not_committed(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is suspended for more than a day, after it has rewritten a file of letters."""
    table, letters = table_in(catalog), letters_in(catalog)
    claim = claimed(table, letters, [1, 30], 0, 10)
    commit(table, [], {}, at(10), claim=claim)
    before = letters.metadata_location
    original = dead_letter_files.write_files

    def suspended(*given: Any) -> Any:
        files = original(*given)
        later_ms = runtime.now_ms() + FILE_AGE_MAX_MS + 1
        monkeypatch.setattr("neve.runtime.now_ms", lambda: later_ms)
        return files

    files = written(letters, letter_rows([12]))
    monkeypatch.setattr(dead_letter_files, "write_files", suspended)
    outcome = commit_dead_letters(table, letters, files, at(10), at(20))
    assert isinstance(outcome, CommitOutcome)
    assert outcome.kind is CommitKind.STALE
    assert letters.refresh().metadata_location == before


def test_files_of_decided_letters_are_not_touched(catalog: Catalog) -> None:
    table, letters = table_in(catalog), letters_in(catalog)
    commit(table, [], {}, at(10), claim=claimed(table, letters, [1], 0, 10))
    before = {each.data_file.file_path for each in live_entries(letters)}
    claimed(table, letters, [12], 10, 20)
    assert before < {each.data_file.file_path for each in live_entries(letters)}


def test_another_topic_s_letters_above_its_offsets_go_too(catalog: Catalog) -> None:
    """An attempt of another pipeline on the same table was overtaken: it will write them anew."""
    table, letters = table_in(catalog), letters_in(catalog)
    other = at(5, topic_id="b" * 32)
    files = written(letters, letter_rows([2], topic_id="b" * 32, reason="other"))
    first = commit_dead_letters(table, letters, files, {}, other)
    assert isinstance(first, Claim)
    claim = claimed(table, letters, [1], 0, 10)
    commit(table, [], {}, at(10), claim=claim)
    outcome = commit_range(table, [], {}, other, letters=lambda: letters, letter_files=files)
    assert outcome.kind is CommitKind.COMMITTED
    assert letters_held(letters) == {(0, 1): ["broken"], (0, 2): ["other"]}


def test_the_same_letters_may_be_committed_again(catalog: Catalog) -> None:
    table, letters = table_in(catalog), letters_in(catalog)
    files = written(letters, letter_rows([3]))
    for _ in range(2):
        claim = commit_dead_letters(table, letters, files, {}, at(10))
    assert isinstance(claim, Claim)
    assert letters_held(letters) == {(0, 3): ["broken"]}
    assert commit(table, [], {}, at(10), claim=claim).kind is CommitKind.COMMITTED
