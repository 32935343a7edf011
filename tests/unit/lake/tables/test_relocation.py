"""A folder with tables that is moved or copied: refused until its paths are its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog

from neve.cli import main
from neve.errors import InvalidError
from neve.lake.tables import MaintenancePolicy, catalog_of, commit, maintain, read_progress
from neve.lake.tables.catalogs import local_catalog
from neve.lake.tables.relocation import relocate
from unit.lake.tables.table_scene import (
    NAME,
    at,
    catalog_in,
    held,
    letter_rows,
    letters_in,
    once,
    rows,
    table_in,
    written,
)

DAY_MS = 86_400_000
REFUSED = "was made in .* its tables refer to files under"


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A folder with two snapshots of one table, and one of another."""
    folder = tmp_path / "original"
    with catalog_in(folder) as catalog:
        table, letters = table_in(catalog), letters_in(catalog)
        commit(table, written(table, rows(0, 150)), {}, at(150))
        commit(table, written(table, rows(150, 200)), at(150), at(200))
        commit(letters, written(letters, letter_rows([3])), {}, at(1))
    return folder


def go_on(catalog: Catalog, first: int, end: int) -> None:
    table = table_in(catalog)
    commit(table, written(table, rows(first, end)), at(first), at(end))


def local_at(folder: Path) -> list[str]:
    local = local_catalog({}, str(folder / "store"))
    assert local is not None
    return relocate(local)


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("how", ["moved", "copied"])
def test_elsewhere_a_catalog_is_refused_and_touches_nothing(original: Path, how: str) -> None:
    there = original.parent / how
    before = files_of(original)
    if how == "moved":
        original.rename(there)
    else:
        shutil.copytree(original, there)
    with pytest.raises(InvalidError, match=REFUSED) as refused:
        catalog_of({}, str(there / "store"))
    assert str(original) in str(refused.value)
    assert "neve lake relocate" in str(refused.value)
    assert files_of(there) == before


def test_a_moved_folder_has_its_tables_after_it_was_relocated(original: Path) -> None:
    there = original.rename(original.parent / "moved")
    assert local_at(there) == [NAME, f"{NAME}_dead_letters"]
    assert local_at(there) == []
    with catalog_in(there) as catalog:
        table = table_in(catalog)
        assert held(table) == once(0, 200)
        assert read_progress(table) == at(200)
        first = table.metadata.snapshots[0].snapshot_id
        assert len(table.scan(snapshot_id=first).to_arrow()) == 150, "older snapshots too"
        go_on(catalog, 200, 250)
        assert held(table) == once(0, 250)
        assert len(letters_in(catalog).scan().to_arrow()) == 1
    assert not original.exists()


@pytest.mark.parametrize("place", ["below", "above"])
def test_a_folder_can_be_moved_into_or_out_of_its_old_place(original: Path, place: str) -> None:
    lake = original / "store" / "lake"
    aside = lake.rename(original / "aside")
    there = lake / "v1" / "v2" if place == "below" else original / "store"
    if place == "above":
        lake.parent.rmdir()
    there.parent.mkdir(parents=True, exist_ok=True)
    aside.rename(there)
    spec = {"folder": str(there), "warehouse": str(there)}
    local = local_catalog(spec, "memory://x")
    assert local is not None
    assert relocate(local) == [NAME, f"{NAME}_dead_letters"]
    with catalog_of(spec, "memory://x") as catalog:
        table = table_in(catalog)
        assert held(table) == once(0, 200)
        assert table.location().startswith(str(there))
        go_on(catalog, 200, 250)
        assert held(table) == once(0, 250)


def test_a_copy_and_its_original_go_on_without_each_other(
    original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files_of(original)
    copy = original.parent / "copy"
    shutil.copytree(original, copy)
    local_at(copy)
    with catalog_in(copy) as catalog:
        go_on(catalog, 200, 230)
    assert files_of(original) == before, "a run on the copy changes nothing of the original"
    kept = files_of(copy)
    with catalog_in(original) as catalog:
        go_on(catalog, 200, 220)
        _maintain_a_week_later(catalog, monkeypatch)
        assert held(table_in(catalog)) == once(0, 220)
    assert files_of(copy) == kept, "nor does the original's upkeep change the copy"
    with catalog_in(copy) as catalog:
        _maintain_a_week_later(catalog, monkeypatch)
        assert held(table_in(catalog)) == once(0, 230)
    with catalog_in(original) as catalog:
        assert held(table_in(catalog)) == once(0, 220)


def _maintain_a_week_later(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    from neve import runtime

    with monkeypatch.context() as patch:
        later_ms = runtime.now_ms() + 7 * DAY_MS
        patch.setattr("neve.runtime.now_ms", lambda: later_ms)
        maintain(table_in(catalog), MaintenancePolicy(merge_files_least=2, keep_snapshots_least=1))


def test_killed_before_the_end_it_is_run_again(
    original: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = original.rename(original.parent / "moved")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("neve.lake.tables.relocation.move_home", killed)
        with pytest.raises(KeyboardInterrupt):
            local_at(there)
    with pytest.raises(InvalidError, match=REFUSED):
        catalog_of({}, str(there / "store"))
    local_at(there)
    with catalog_in(there) as catalog:
        assert held(table_in(catalog)) == once(0, 200)


def test_a_link_to_the_folder_is_the_folder(original: Path) -> None:
    link = original.parent / "link"
    link.symlink_to(original)
    with catalog_in(link) as catalog:
        assert held(table_in(catalog)) == once(0, 200)


def test_a_copied_catalog_of_tables_that_were_not_copied_is_refused(tmp_path: Path) -> None:
    spec = {"folder": str(tmp_path / "one"), "warehouse": str(tmp_path / "tables")}
    with catalog_of(spec, "memory://x") as catalog:
        table_in(catalog)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    spec["folder"] = str(tmp_path / "two")
    with pytest.raises(InvalidError, match=REFUSED):
        catalog_of(spec, "memory://x")
    local = local_catalog(spec, "memory://x")
    assert local is not None
    with pytest.raises(InvalidError, match="copy the tables too"):
        relocate(local)
    shutil.copytree(tmp_path / "tables", tmp_path / "more")
    local = local_catalog({**spec, "warehouse": str(tmp_path / "more")}, "memory://x")
    assert local is not None
    assert relocate(local) == [NAME]


def test_a_catalog_of_before_learns_its_place(original: Path) -> None:
    import sqlite3

    with sqlite3.connect(original / "store" / "lake" / "catalog.db") as database:
        database.execute("DROP TABLE neve_home")
    database.close()
    copy = original.parent / "copy"
    shutil.copytree(original, copy)
    with pytest.raises(InvalidError, match="open it once in that place"):
        catalog_of({}, str(copy / "store"))
    with catalog_in(original) as catalog:
        assert held(table_in(catalog)) == once(0, 200)


def test_the_command_says_what_it_did(
    original: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    there = original.rename(tmp_path / "moved")
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"store: {there}/store\ntopics: [{{topic: orders}}]\n")
    assert main(["lake", "status", "-f", str(file)]) == 1
    assert "neve lake relocate" in capfd.readouterr().err
    assert main(["lake", "relocate"]) == 2
    assert main(["lake", "relocate", "--store", f"{there}/store"]) == 0
    assert f"{NAME}: paths updated" in capfd.readouterr().out
    assert main(["lake", "relocate", "-f", str(file)]) == 0
    assert "nothing to do" in capfd.readouterr().out
    file.write_text("store: s3://bucket\ntopics: [{topic: orders}]\n")
    assert main(["lake", "relocate", "-f", str(file)]) == 1
    assert "are valid everywhere" in capfd.readouterr().err
