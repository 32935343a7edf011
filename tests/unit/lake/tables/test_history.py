"""What a table's offsets are after others have had their hands on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table

from neve.errors import DamagedError, UnsupportedError
from neve.lake.tables import (
    CommitKind,
    NoProgressError,
    commit,
    commit_range,
    declare_progress,
    read_progress,
)
from neve.lake.tables import history as history_module
from neve.lake.tables.history import TableState, summary_of
from unit.lake.tables.table_scene import (
    NAME,
    at,
    catalog_in,
    foreign_append,
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


def fill(table: Table, first: int, end: int) -> None:
    outcome = commit_range(
        table,
        written(table, rows(first, end)),
        at(first or None),
        at(end),
        letters=lambda: letters_in(table.catalog),
    )
    assert outcome.kind is CommitKind.COMMITTED


def head(table: Table) -> int:
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def expire(table: Table, *snapshot_ids: int) -> None:
    table.refresh().maintenance.expire_snapshots().by_ids(list(snapshot_ids)).commit()


def roll_back(table: Table, snapshot_id: int) -> None:
    table.refresh().manage_snapshots().set_current_snapshot(snapshot_id=snapshot_id).commit()


def foreign_rewrite(table: Table) -> None:
    """What a foreign compaction leaves: the same rows in a snapshot without our properties."""
    files = [task.file for task in table.refresh().scan().plan_files()]
    with table.transaction() as changes, changes.update_snapshot().overwrite() as changed:
        for file in files:
            changed.delete_data_file(file)
        content = table.scan().to_arrow().combine_chunks().to_batches()
        for new in written(table, *content):
            changed.append_data_file(new.entry())


def test_a_foreign_snapshot_on_top_hides_nothing(catalog: Catalog) -> None:
    table = table_in(catalog)
    fill(table, 0, 10)
    foreign_append(table, rows(900, 905))
    foreign_rewrite(table)
    assert read_progress(table) == at(10)
    fill(table, 10, 12)
    assert held(table) == once(0, 12) + once(900, 905)


def test_offsets_from_the_newest_snapshot_only_would_be_none(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: a foreign snapshot would send the pipeline back, and rows come twice."""
    table = table_in(catalog)
    fill(table, 0, 10)
    foreign_append(table, rows(900, 901))

    def newest_only(seen: Table) -> TableState:
        snapshot = seen.metadata.current_snapshot()
        text = None if snapshot is None else summary_of(snapshot).get("neve.progress")
        return TableState() if text is None else history_module._state(text, NAME)

    monkeypatch.setattr("neve.lake.tables.commits.state_of", newest_only)
    commit(table, written(table, rows(0, 10)), {}, at(10))
    assert held(table)[0, 0] == 2


def test_expired_ancestors_leave_the_table_s_property(catalog: Catalog) -> None:
    table = table_in(catalog)
    fill(table, 0, 10)
    ours = head(table)
    foreign_rewrite(table)
    middle = head(table)
    foreign_append(table, rows(900, 905))
    expire(table, ours, middle)
    assert len(table.refresh().metadata.snapshots) == 1
    assert read_progress(table) == at(10)
    fill(table, 10, 12)
    assert held(table) == once(0, 12) + once(900, 905)


def test_a_table_with_rows_and_no_offsets_is_refused(catalog: Catalog) -> None:
    table = table_in(catalog)
    fill(table, 0, 10)
    ours = head(table)
    foreign_append(table, rows(900, 901))
    expire(table, ours)
    table.refresh().transaction().remove_properties("neve.progress").commit_transaction()
    with pytest.raises(NoProgressError, match="none of its snapshots says which offsets"):
        read_progress(table)
    with pytest.raises(NoProgressError):
        commit(table, [], {}, at(10))
    declare_progress(table, at(10))
    assert read_progress(table) == at(10)


def test_a_foreign_table_that_is_empty_starts_from_nothing(catalog: Catalog) -> None:
    table = table_in(catalog)
    table.transaction().remove_properties("neve.progress").commit_transaction()
    assert read_progress(table) == {}
    foreign_append(table)
    assert read_progress(table) == {}


def test_rows_of_others_before_the_first_commit_do_not_matter(catalog: Catalog) -> None:
    table = table_in(catalog)
    foreign_append(table, rows(900, 905))
    assert read_progress(table) == {}
    fill(table, 0, 10)
    assert held(table) == once(0, 10) + once(900, 905)


# --- rolled back


def test_a_table_rolled_back_goes_on_from_where_it_was_then(catalog: Catalog) -> None:
    table = table_in(catalog)
    fill(table, 0, 10)
    then = head(table)
    fill(table, 10, 20)
    roll_back(table, then)
    assert read_progress(table) == at(10)
    fill(table, 10, 15)
    fill(table, 15, 25)
    assert held(table) == once(0, 25)


def fill_with_a_letter(table: Table, letters: Table) -> None:
    """Offsets 10 to 19, of which 13 is a dead letter."""
    outcome = commit_range(
        table,
        written(table, rows(10, 13), rows(14, 20)),
        at(10),
        at(20),
        letters=lambda: letters,
        letter_files=written(letters, letter_rows([13])),
    )
    assert outcome.in_table


def test_dead_letters_of_what_was_rolled_back_are_open_again(catalog: Catalog) -> None:
    table, letters = table_in(catalog), letters_in(catalog)
    fill(table, 0, 10)
    then = head(table)
    fill_with_a_letter(table, letters)
    roll_back(table, then)
    # Read with other eyes, 13 is good now; its letter must not stay beside its row.
    assert commit(table, [], at(10), at(20)).kind is CommitKind.CLAIMED
    fill(table, 10, 20)
    assert held(table) == once(0, 20)
    assert letters_held(letters) == {}


def test_a_table_set_forward_to_what_it_had_left_is_refused(catalog: Catalog) -> None:
    """Its dead letters were overwritten when the table went on elsewhere."""
    table, letters = table_in(catalog), letters_in(catalog)
    fill(table, 0, 10)
    then = head(table)
    fill_with_a_letter(table, letters)
    left = head(table)
    roll_back(table, then)
    roll_back(table, left)  # nothing was committed in between: nothing is lost
    assert read_progress(table) == at(20)
    roll_back(table, then)
    fill(table, 10, 20)
    last = head(table)
    assert letters_held(letters) == {}
    roll_back(table, left)
    for act in (read_progress, lambda table: commit(table, [], at(20), at(30))):
        with pytest.raises(NoProgressError, match=f"Set the table back to snapshot {last}"):
            act(table)
    foreign_append(table, rows(900, 905))
    with pytest.raises(NoProgressError, match="which it had left"):
        read_progress(table)
    roll_back(table, last)
    fill(table, 20, 30)
    assert held(table) == once(0, 30)
    roll_back(table, then)  # back is still allowed
    assert read_progress(table) == at(10)


def test_a_roll_back_is_believed_where_the_ancestors_between_were_expired(catalog: Catalog) -> None:
    table = table_in(catalog)
    fill(table, 0, 10)
    then = head(table)
    fill(table, 10, 20)
    between = head(table)
    fill(table, 20, 30)
    roll_back(table, then)
    expire(table, between)
    assert read_progress(table) == at(10)


def test_a_commit_planned_before_a_roll_back_is_stale(catalog: Catalog) -> None:
    table = table_in(catalog)
    fill(table, 0, 10)
    then = head(table)
    fill(table, 10, 20)
    late = written(table, rows(20, 30))
    roll_back(table, then)
    assert commit(table, late, at(20), at(30)).kind is CommitKind.STALE
    assert held(table) == once(0, 10)


def test_a_roll_back_whose_offsets_are_gone_is_refused(catalog: Catalog) -> None:
    """The property speaks of rows that the table no longer has: going on would skip them."""
    table = table_in(catalog)
    fill(table, 0, 10)
    first = head(table)
    foreign_append(table, rows(900, 901))
    then = head(table)
    fill(table, 10, 20)
    newest = head(table)
    roll_back(table, then)
    expire(table, first)
    with pytest.raises(NoProgressError, match="rolled back"):
        read_progress(table)
    expire(table, newest)
    with pytest.raises(NoProgressError, match="rolled back"):
        read_progress(table)


def test_a_roll_back_covered_by_foreign_commits_is_seen_by_its_rows(catalog: Catalog) -> None:
    table = table_in(catalog)
    fill(table, 0, 10)
    first = head(table)
    fill(table, 10, 20)
    newest = head(table)
    roll_back(table, first)
    foreign_append(table, rows(900, 905))
    expire(table, first, newest)
    with pytest.raises(NoProgressError, match="held 20 rows at its last commit and 10"):
        read_progress(table)


def test_a_table_replaced_by_another_is_refused(catalog: Catalog) -> None:
    """A first snapshot looks like one whose ancestors were expired, and has no rows before it."""
    table = table_in(catalog)
    fill(table, 0, 10)
    ours = head(table)
    table.refresh().delete(AlwaysTrue())
    emptied = head(table)
    foreign_append(table, rows(900, 950))
    expire(table, ours, emptied)
    with pytest.raises(NoProgressError, match="held 10 rows"):
        read_progress(table)


# --- what cannot be read


def test_a_property_that_others_have_damaged_is_named(catalog: Catalog) -> None:
    table = table_in(catalog)
    table.transaction().set_properties({"neve.progress": "{"}).commit_transaction()
    foreign_append(table, rows(0, 1))
    with pytest.raises(DamagedError, match=r"property neve\.progress is damaged"):
        read_progress(table)


def test_offsets_of_a_newer_neve_are_refused(catalog: Catalog) -> None:
    table = table_in(catalog)
    newer = '{"version":2,"topics":{}}'
    table.transaction().set_properties({"neve.progress": newer}).commit_transaction()
    with pytest.raises(UnsupportedError, match="version 2"):
        read_progress(table)
