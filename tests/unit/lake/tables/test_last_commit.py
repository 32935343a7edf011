"""When a pipeline last moved a table's offsets, whoever else wrote to the table since."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyiceberg.table import Table

from neve import runtime
from neve.lake.tables import commit, commit_dead_letters
from neve.lake.tables.commit_attempt import attempt, propose
from neve.lake.tables.history import TableState
from neve.lake.tables.last_commit import LastCommit, last_commit_of
from neve.lake.tables.maintenance import MaintenancePolicy, MaintenanceReport
from neve.lake.tables.maintenance.small_files import merge_small_files
from unit.lake.tables.table_scene import (
    at,
    catalog_in,
    foreign_append,
    letter_rows,
    letters_in,
    rows,
    table_in,
    written,
)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    with catalog_in(tmp_path) as catalog:
        yield table_in(catalog)


def filled(table: Table, commits: int = 2) -> int:
    """The time of the last commit."""
    for number in range(commits):
        done = commit(
            table,
            written(table, rows(5 * number, 5 * number + 5)),
            at(5 * number) if number else {},
            at(5 * number + 5),
        )
        assert done.in_table
    return newest_ms(table)


def newest_ms(table: Table) -> int:
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    return snapshot.timestamp_ms


def merge(table: Table) -> None:
    report = MaintenanceReport()
    merge_small_files(table, MaintenancePolicy(merge_files_least=2), report)
    assert report.files_merged


def claim(table: Table) -> None:
    letters = letters_in(table.catalog)
    broken = written(letters, letter_rows([10]))
    commit_dead_letters(table, letters, broken, at(10), at(11))


def close_a_replay(table: Table) -> None:
    attempt(table, propose(table.refresh(), TableState(at(10))))


def append(table: Table) -> None:
    foreign_append(table, rows(100, 101))


@pytest.mark.parametrize("others", [merge, claim, close_a_replay, append])
def test_what_others_write_is_no_commit(table: Table, others: Callable[[Table], None]) -> None:
    committed_ms = filled(table)
    runtime.run(runtime.sleep(0.002))
    others(table)
    assert newest_ms(table) > committed_ms
    assert last_commit_of(table.refresh()) == LastCommit(committed_ms)


@pytest.mark.parametrize("others", [merge, claim, append])
def test_where_the_commit_was_expired_it_is_known_what_it_was_before(
    table: Table, others: Callable[[Table], None]
) -> None:
    filled(table)
    ours = [each.snapshot_id for each in table.snapshots()]
    others(table)
    first_ms = newest_ms(table)
    runtime.run(runtime.sleep(0.002))
    append(table)
    table.refresh().maintenance.expire_snapshots().by_ids(ours).commit()
    assert last_commit_of(table.refresh()) == LastCommit(first_ms, expired=True)


def test_the_only_commit_that_is_left_counts(table: Table) -> None:
    filled(table, 1)
    (first,) = [each.snapshot_id for each in table.snapshots()]
    committed_ms = filled_again(table)
    table.refresh().maintenance.expire_snapshots().by_ids([first]).commit()
    assert last_commit_of(table.refresh()) == LastCommit(committed_ms)


def filled_again(table: Table) -> int:
    assert commit(table, written(table, rows(5, 10)), at(5), at(10)).in_table
    return newest_ms(table)


def test_a_table_that_no_pipeline_filled_has_none(tmp_path: Path) -> None:
    with catalog_in(tmp_path) as catalog:
        table = table_in(catalog)
        assert last_commit_of(table) is None
        append(table)
        assert last_commit_of(table.refresh()) is None, "a stranger's rows"


def test_a_claim_before_the_first_commit_is_none(table: Table) -> None:
    letters = letters_in(table.catalog)
    commit_dead_letters(table, letters, written(letters, letter_rows([0])), {}, at(1))
    assert last_commit_of(table.refresh()) is None
