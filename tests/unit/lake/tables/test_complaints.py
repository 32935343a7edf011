"""A table tells what last kept a pipeline from filling it."""

from __future__ import annotations

from pathlib import Path

from neve.lake.tables import commit, read_progress
from neve.lake.tables.complaints import LAST_ERROR, TEXT_MAX, complaint_of, note_complaint
from unit.lake.tables.table_scene import at, catalog_in, rows, table_in, written


def test_a_complaint_stays_until_it_is_taken_away(tmp_path: Path) -> None:
    with catalog_in(tmp_path) as catalog:
        table = table_in(catalog)
        assert complaint_of(table) is None
        note_complaint(table, "the store is gone")
        found = complaint_of(table_in(catalog))
        assert found is not None
        assert found.text == "the store is gone"
        assert found.at_ms > 0
        note_complaint(table, None)
        assert complaint_of(table_in(catalog)) is None


def test_the_same_again_writes_nothing(tmp_path: Path) -> None:
    with catalog_in(tmp_path) as catalog:
        table = table_in(catalog)
        note_complaint(table, "x" * 2 * TEXT_MAX)
        before = table.metadata_location
        note_complaint(table, "x" * 2 * TEXT_MAX)
        assert table.metadata_location == before


def test_offsets_stand_beside_it(tmp_path: Path) -> None:
    with catalog_in(tmp_path) as catalog:
        table = table_in(catalog)
        note_complaint(table, "slow")
        assert commit(table, written(table, rows(0, 5)), {}, at(5)).in_table
        assert read_progress(table) == at(5)
        assert complaint_of(table) is not None


def test_words_of_others_are_shown_as_they_are(tmp_path: Path) -> None:
    with catalog_in(tmp_path) as catalog:
        table = table_in(catalog)
        table.transaction().set_properties({LAST_ERROR: "plain words"}).commit_transaction()
        found = complaint_of(table)
        assert found is not None
        assert found.text == "plain words"
