"""BackgroundLoops changes nothing that a reader or a pipeline can see, except what it frees."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation

from neve import runtime
from neve.errors import InvalidError
from neve.lake.tables import (
    CommitKind,
    MaintenancePolicy,
    MaintenanceReport,
    catalog_of,
    commit,
    commit_dead_letters,
    commit_range,
    maintain,
    read_progress,
)
from neve.lake.tables.history import NoProgressError, summary_of
from neve.lake.tables.live_files import LiveFile, bounds_of, live_entries
from neve.lake.tables.maintenance import small_files
from neve.lake.tables.maintenance.orphan_files import remove_orphans
from neve.lake.tables.maintenance.small_files import merge_small_files
from neve.lake.tables.maintenance.snapshot_expiry import expire
from unit.lake.tables.table_scene import (
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

NOW = "neve.runtime.now_ms"
DAY_MS = 86_400_000
POLICY = MaintenancePolicy(merge_files_least=2, keep_snapshots_least=2)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with catalog_in(tmp_path) as opened:
        yield opened


def filled(catalog: Catalog, commits: int = 4, size: int = 50) -> Table:
    table = table_in(catalog)
    for number in range(commits):
        first, end = number * size, (number + 1) * size
        commit(table, written(table, rows(first, end)), at(first or None), at(end))
    return table


def later(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    now_ms = runtime.now_ms() + round(days * DAY_MS)
    monkeypatch.setattr(NOW, lambda: now_ms)


def objects(table: Table) -> set[Path]:
    return {path for path in Path(table.location()).rglob("*") if path.is_file()}


# --- merging


def test_small_files_of_a_day_become_one_with_rows_in_order(catalog: Catalog) -> None:
    table = filled(catalog)
    report = MaintenanceReport()
    merge_small_files(table, POLICY, report)
    assert (report.files_merged, report.files_written) == (4, 2)
    files = [each.data_file for each in live_entries(table)]
    assert sorted(bounds_of(table, each, "_kafka.offset") or () for each in files) == [
        (0, 99),
        (100, 199),
    ]
    scanned = table.scan(row_filter="number < 100").to_arrow()["number"].to_pylist()
    assert scanned == list(range(100))
    assert held(table) == once(0, 200)


def test_a_merge_carries_the_offsets_and_says_that_no_row_changed(catalog: Catalog) -> None:
    table = filled(catalog)
    merge_small_files(table, POLICY, MaintenanceReport())
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation is Operation.REPLACE
    assert "neve.progress" in summary_of(snapshot)
    assert summary_of(snapshot)["total-records"] == "200"
    assert read_progress(table) == at(200)


def test_merging_again_finds_nothing_to_do(catalog: Catalog) -> None:
    table = filled(catalog)
    merge_small_files(table, POLICY, MaintenanceReport())
    report = MaintenanceReport()
    merge_small_files(table, POLICY, report)
    assert report == MaintenanceReport()


def test_rows_of_others_are_merged_too(catalog: Catalog) -> None:
    table = filled(catalog, commits=2, size=10)
    strange = rows(20, 22).drop_columns(["_kafka"])
    foreign_append(table, strange, strange)
    foreign_append(table, strange)
    report = MaintenanceReport()
    merge_small_files(table, POLICY, report)
    assert report.files_merged == 4
    assert len(table.refresh().scan().to_arrow()) == 26
    assert read_progress(table) == at(20)


def interfere(monkeypatch: pytest.MonkeyPatch, target: Catalog, act: Callable[[], None]) -> None:
    real: Any = target.commit_table
    done = False

    def commit_table(*arguments: Any) -> Any:
        nonlocal done
        if not done:
            done = True
            act()
        return real(*arguments)

    monkeypatch.setattr(target, "commit_table", commit_table)


def test_a_pipeline_s_commit_in_between_goes_first(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = filled(catalog)
    with catalog_in(tmp_path) as other:
        busy = table_in(other)
        files = written(busy, rows(200, 210))
        interfere(monkeypatch, catalog, lambda: commit(busy, files, at(200), at(210)) and None)
        merge_small_files(table, POLICY, MaintenanceReport())
    assert read_progress(table) == at(210)
    assert held(table) == once(0, 210)


def test_two_merges_of_the_same_files_are_one(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = filled(catalog)
    report = MaintenanceReport()
    with catalog_in(tmp_path) as other:
        rival = table_in(other)
        interfere(
            monkeypatch, catalog, lambda: merge_small_files(rival, POLICY, MaintenanceReport())
        )
        merge_small_files(table, POLICY, report)
    assert report.merges_postponed > 0
    assert report.files_merged == 0
    assert held(table) == once(0, 200)


def test_files_with_foreign_deletes_are_left_alone(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(catalog)
    real = live_entries
    monkeypatch.setattr(
        small_files,
        "live_entries",
        lambda seen: (LiveFile(each.data_file, True) for each in real(seen)),
    )
    report = MaintenanceReport()
    merge_small_files(table, POLICY, report)
    assert report.files_merged == 0


def test_a_claim_outlives_a_merge(catalog: Catalog) -> None:
    table, letters = filled(catalog), letters_in(catalog)
    claim = commit_dead_letters(
        table, letters, written(letters, letter_rows([205])), at(200), at(210)
    )
    merge_small_files(table, POLICY, MaintenanceReport())
    merge_small_files(letters, POLICY, MaintenanceReport())
    good = written(table, rows(200, 205), rows(206, 210))
    assert commit(table, good, at(200), at(210)).kind is CommitKind.CLAIMED
    outcome = commit(table, good, at(200), at(210), claim=claim)  # type: ignore[arg-type]
    assert outcome.kind is CommitKind.COMMITTED


def test_letters_are_merged_as_well(catalog: Catalog) -> None:
    table, letters = table_in(catalog), letters_in(catalog)
    for first in (0, 10, 20):
        files = written(letters, letter_rows([first + 1]))
        claim = commit_dead_letters(table, letters, files, at(first or None), at(first + 10))
        commit(table, [], at(first or None), at(first + 10), claim=claim)  # type: ignore[arg-type]
    report = MaintenanceReport()
    merge_small_files(letters, POLICY, report)
    assert (report.files_merged, report.files_written) == (3, 1)
    assert sorted(letters_held(letters)) == [(0, 1), (0, 11), (0, 21)]


# --- expiring


def test_old_snapshots_go_with_what_only_they_needed(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(catalog)
    merge_small_files(table, POLICY, MaintenanceReport())
    before = {path.suffix: 0 for path in objects(table)}
    old = [path for path in objects(table) if path.suffix == ".parquet"]
    later(monkeypatch, 6)
    report = MaintenanceReport()
    expire(table, MaintenancePolicy(keep_snapshots_least=1), report)
    assert len(table.refresh().metadata.snapshots) == 1
    assert report.snapshots_expired == 5
    left = [path for path in objects(table) if path.suffix == ".parquet"]
    assert (len(old), len(left)) == (6, 2)
    assert before.keys() >= {".parquet", ".avro", ".json"}
    assert held(table) == once(0, 200)
    assert read_progress(table) == at(200)


def test_young_snapshots_and_the_newest_stay(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(catalog)
    report = MaintenanceReport()
    expire(table, POLICY, report)
    assert report.snapshots_expired == 0
    later(monkeypatch, 6)
    expire(table, POLICY, report)
    assert report.snapshots_expired == 2


def test_too_many_snapshots_go_however_young(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(catalog)
    few = MaintenancePolicy(keep_snapshots_least=1, keep_snapshots_most=3)
    report = MaintenanceReport()
    expire(table, few, report)
    assert report.snapshots_expired == 0, "somebody may be reading them"
    later(monkeypatch, 0.1)
    expire(table, few, report)
    assert report.snapshots_expired == 1


def test_what_tells_a_table_set_to_what_it_had_left_is_kept(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so is the snapshot that its operator is told to set it back to."""
    table = filled(catalog, commits=2)
    then, left = (each.snapshot_id for each in table.refresh().snapshots()[-2:])
    table.manage_snapshots().set_current_snapshot(snapshot_id=then).commit()
    letters = letters_in(catalog)
    went_on = commit_range(
        table,
        written(table, rows(50, 90)),
        at(50),
        at(90),
        letters=lambda: letters,
        letter_files=[],
    )
    assert went_on.in_table
    last = table.refresh().current_snapshot()
    assert last is not None
    table.manage_snapshots().set_current_snapshot(snapshot_id=left).commit()
    later(monkeypatch, 60)
    expire(table, MaintenancePolicy(keep_snapshots_least=1), MaintenanceReport())
    with pytest.raises(NoProgressError, match=str(last.snapshot_id)):
        read_progress(table)
    table.manage_snapshots().set_current_snapshot(snapshot_id=last.snapshot_id).commit()
    assert held(table) == once(0, 90)
    assert read_progress(table) == at(90)
    expire(table, MaintenancePolicy(keep_snapshots_least=1), MaintenanceReport())
    assert [each.snapshot_id for each in table.refresh().snapshots()] == [last.snapshot_id]


def test_tags_and_the_way_to_the_offsets_stay(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(catalog, commits=3)
    first = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().create_tag(first, "kept").commit()
    for number in range(3):
        foreign_append(table, rows(900 + number, 901 + number))
    later(monkeypatch, 6)
    expire(table, MaintenancePolicy(keep_snapshots_least=1), MaintenanceReport())
    left = [each.snapshot_id for each in table.refresh().metadata.snapshots]
    # The tagged one; the last of ours and the three foreign ones on top of it.
    assert len(left) == 5
    assert first in left
    table.transaction().remove_properties("neve.progress").commit_transaction()
    assert read_progress(table) == at(150)
    assert len(table.scan(snapshot_id=first).to_arrow()) == 50


# --- orphans


def aged(path: Path, days: float) -> Path:
    then = runtime.now_ms() / 1000 - days * 86_400
    os.utime(path, (then, then))
    return path


def test_only_old_files_that_nothing_refers_to_are_removed(catalog: Catalog) -> None:
    table = filled(catalog)
    lost, waiting = (Path(written(table, rows(0, 5))[0].path) for _ in range(2))
    stranger = Path(table.location()) / "data" / "notes.txt"
    stranger.write_text("mine")
    for path in objects(table) - {waiting}:
        aged(path, 4)
    aged(waiting, 2)
    report = MaintenanceReport()
    remove_orphans(table, POLICY, report)
    assert not lost.exists()
    assert waiting.exists()
    assert stranger.exists()
    assert report.orphans_deleted == 1
    assert held(table) == once(0, 200)


def test_files_of_another_catalog_s_table_in_the_same_place_stay(tmp_path: Path) -> None:
    """Two machines with a catalog each, and one bucket for both."""
    spec = {"warehouse": str(tmp_path / "lake")}
    with (
        catalog_of({**spec, "folder": str(tmp_path / "one")}, "memory://x") as one,
        catalog_of({**spec, "folder": str(tmp_path / "other")}, "memory://x") as other,
    ):
        table, rival = filled(one), filled(other, commits=2)
        assert table.location() == rival.location()
        lost = [Path(written(each, rows(0, 5))[0].path) for each in (table, rival)]
        for path in objects(table):
            aged(path, 4)
        report = MaintenanceReport()
        remove_orphans(table, POLICY, report)
        assert report.orphans_deleted == 1
        assert [path.exists() for path in lost] == [False, True]
        assert (held(table), held(rival)) == (once(0, 200), once(0, 100))
        commit(rival, written(rival, rows(100, 110)), at(100), at(110))
        assert held(rival) == once(0, 110)


def test_files_from_another_place_are_not_deleted_with_their_snapshot(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = filled(catalog, commits=1)
    (file,) = written(table, rows(50, 60))
    elsewhere = Path(file.path).rename(tmp_path / "mine.parquet")
    table.refresh().add_files([str(elsewhere)])
    table.delete("number >= 50 and number < 60")
    commit(table, written(table, rows(50, 70)), at(50), at(70))
    later(monkeypatch, 6)
    report = MaintenanceReport()
    expire(table, MaintenancePolicy(keep_snapshots_least=1), report)
    assert report.snapshots_expired == 3
    assert elsewhere.exists()
    assert held(table) == once(0, 70)


def test_a_policy_that_would_endanger_waiting_files_is_refused() -> None:
    with pytest.raises(InvalidError, match="two days"):
        MaintenancePolicy(orphan_age_ms=DAY_MS)
    with pytest.raises(InvalidError, match="merged repeatedly"):
        MaintenancePolicy(small_bytes=2, target_bytes=1)
    with pytest.raises(InvalidError, match="keep_snapshots_least"):
        MaintenancePolicy(keep_snapshots_least=0)


# --- all of it, killed anywhere


class Killed(BaseException):
    """Not caught by anything, like the end of a process."""


@pytest.mark.parametrize("step", [0, 1, 2, 3, 5, 9])
def test_killed_at_any_step_the_next_run_finishes(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    table = filled(catalog, commits=2)
    policy = MaintenancePolicy(merge_files_least=2, keep_snapshots_least=1)
    later(monkeypatch, 6)
    with monkeypatch.context() as broken:
        steps = _counted(broken, catalog, table, step)
        try:
            maintain(table, policy)
        except Killed:
            assert steps() > step
    assert held(table_in(catalog)) == once(0, 100)
    maintain(table_in(catalog), policy)
    table = table_in(catalog)
    assert held(table) == once(0, 100)
    assert read_progress(table) == at(100)
    # Six days on by our clock, whatever a kill left behind is an orphan and gone.
    files = [path for path in objects(table) if path.suffix == ".parquet"]
    assert len(files) == len(list(live_entries(table)))


def _counted(
    patch: pytest.MonkeyPatch, catalog: Catalog, table: Table, last: int
) -> Callable[[], int]:
    """Dies before or behind step number `last` of those that change anything."""
    count = 0

    def dying(real: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            count += 1
            if count > last and count % 2:
                raise Killed
            answer = real(*arguments, **named)
            if count > last:
                raise Killed
            return answer

        return act

    patch.setattr(catalog, "commit_table", dying(catalog.commit_table))
    patch.setattr(type(table.io), "delete", dying(type(table.io).delete))
    return lambda: count
