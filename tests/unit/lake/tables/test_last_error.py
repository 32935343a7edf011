"""A table tells what last kept a pipeline from filling it."""

from __future__ import annotations

from pathlib import Path

from neve.lake.tables import commit, read_progress
from neve.lake.tables.last_error import LAST_ERROR, TEXT_MAX, last_error_of, record_error
from unit.lake.tables.table_scene import at, catalog_in, rows, table_in, written


def test_a_complaint_stays_until_it_is_taken_away(tmp_path: Path) -> None:
    with catalog_in(tmp_path) as catalog:
        table = table_in(catalog)
        assert last_error_of(table) is None
        record_error(table, "the store is gone")
        found = last_error_of(table_in(catalog))
        assert found is not None
        assert found.text == "the store is gone"
        assert found.at_ms > 0
        record_error(table, None)
        assert last_error_of(table_in(catalog)) is None


def test_the_same_again_writes_nothing(tmp_path: Path) -> None:
    with catalog_in(tmp_path) as catalog:
        table = table_in(catalog)
        record_error(table, "x" * 2 * TEXT_MAX)
        before = table.metadata_location
        record_error(table, "x" * 2 * TEXT_MAX)
        assert table.metadata_location == before


def test_offsets_stand_beside_it(tmp_path: Path) -> None:
    with catalog_in(tmp_path) as catalog:
        table = table_in(catalog)
        record_error(table, "slow")
        assert commit(table, written(table, rows(0, 5)), {}, at(5)).in_table
        assert read_progress(table) == at(5)
        assert last_error_of(table) is not None


def test_words_of_others_are_shown_as_they_are(tmp_path: Path) -> None:
    with catalog_in(tmp_path) as catalog:
        table = table_in(catalog)
        table.transaction().set_properties({LAST_ERROR: "plain words"}).commit_transaction()
        found = last_error_of(table)
        assert found is not None
        assert found.text == "plain words"
