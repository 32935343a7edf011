"""Tables, sizes, complaints and bars."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from neve.cli import output
from neve.errors import InvalidError


def test_tables_line_up(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("name", "count"), [("a", 5), ("long name", 1234)])
    assert capsys.readouterr().out == "NAME       COUNT\na              5\nlong name   1234\n"


def test_a_table_without_rows_has_its_titles(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("name", "count"), [])
    assert capsys.readouterr().out == "NAME  COUNT\n"


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 * 2**30, "3.0 GiB"), (2**41, "2.0 TiB")],
)
def test_sizes_are_for_people(count: int, shown: str) -> None:
    assert output.human_bytes(count) == shown


def test_a_complaint_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.complain("two\nlines")
    assert capsys.readouterr().err == "neve: two lines\n"


def test_settings_come_from_file_and_flags(tmp_path: Path) -> None:
    file = tmp_path / "neve.toml"
    file.write_text("reader.poll.ms = 7\nprefetch.window = 9\n")
    chosen = output.SettingsFlags(file, ["prefetch.window = 11"]).load()
    assert (chosen.reader.poll_ms, chosen.prefetch.window) == (7, 11)
    with pytest.raises(InvalidError, match="must be an integer from 1 to 1024"):
        output.SettingsFlags(None, ["prefetch.window=x"]).load()


def test_a_bar_is_shown_on_a_terminal_after_a_while(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with output.progress("things") as bar:
        bar.show(1, 2)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with output.progress("things") as bar:
        bar.show(1, 2)  # too soon
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(output, "PROGRESS_AFTER_SECONDS", 0.0)
    with output.progress("things") as bar:
        bar.show(1, 2)
    assert "things" in capsys.readouterr().err
