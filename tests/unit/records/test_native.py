"""The cache of compiled kernels lies where only its user can write, or nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from neve.records import native


@pytest.fixture
def cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(native.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path


SOURCES = Path(native.__file__).parent


def found(sources: Path = SOURCES) -> str:
    return native._cache_folder.__wrapped__(sources)


def test_the_users_own_cache_comes_first(cache_folder: Path) -> None:
    assert Path(found()).parent == cache_folder / "home" / "neve"
    assert Path(found()).stat().st_mode & 0o777 == 0o700


def test_an_open_umask_does_not_open_the_cache(cache_folder: Path) -> None:
    before = os.umask(0o002)
    try:
        assert Path(found()).parent == cache_folder / "home" / "neve"
    finally:
        os.umask(before)


def test_a_home_that_cannot_be_written_falls_back(cache_folder: Path) -> None:
    (cache_folder / "home").write_text("a file, no folder")
    assert Path(found()).parent == cache_folder / "tmp" / f"neve-{os.getuid()}"


def test_a_folder_that_others_can_write_is_not_trusted(cache_folder: Path) -> None:
    (cache_folder / "home").write_text("a file, no folder")
    shared = cache_folder / "tmp" / f"neve-{os.getuid()}"
    shared.mkdir()
    shared.chmod(0o777)
    assert found() == ""


def test_each_file_beside_a_kernel_has_a_say_in_the_folder(cache_folder: Path) -> None:
    beside = cache_folder / "kernels"
    beside.mkdir()
    (beside / "rows.py").write_text("one")
    before = found(beside)
    assert before not in {"", found()}
    (beside / "numbers.py").write_text("two")
    assert found(beside) != before


def test_what_lies_in_an_archive_is_not_cached(cache_folder: Path) -> None:
    assert found(cache_folder / "package.zip" / "kernels") == ""


def test_numbas_own_setting_is_left_as_it_was() -> None:
    code = "import numba, neve.records.kernel; print(repr(numba.config.CACHE_DIR))"
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "''"
