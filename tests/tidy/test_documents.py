"""Pages say what is so: every link leads somewhere, every command and setting named exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import neve
import settings_table
from neve.cli import main
from neve.settings import COMMAND_VARIABLES, declared
from tidy.repository import PROJECT, ROOT, links_of, pages, shown_name, source_files

OPERATORS = ROOT / "docs" / "operators"
SETTINGS = (OPERATORS / "settings.md").read_text(encoding="utf-8")
MONITOR = (OPERATORS / "monitor.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def code_of(page: Path) -> str:
    """What a page shows as code, a piece a line."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```\w*\n(.*?)```", text, flags=re.DOTALL)
    indented = re.findall(r"^    (.*)$", text, flags=re.MULTILINE)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return "\n".join([*blocks, *indented, *spans])


# --- links


def test_every_link_leads_to_a_file() -> None:
    dead = [
        f"{shown_name(page)} -> {target}"
        for page in pages()
        for target in links_of(page)
        if not target.exists()
    ]
    assert dead == []


def test_every_page_is_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.suffix == ".md" and page.is_file():
            reached.add(page)
            waiting += links_of(page)
    assert sorted(shown_name(page) for page in set(pages()) - reached) == []


# --- settings


def test_the_table_of_settings_is_the_code_s() -> None:
    assert settings_table.updated(SETTINGS) == SETTINGS, "run `make docs`"


@pytest.mark.parametrize("about", declared().values(), ids=lambda about: about.name)
def test_every_setting_is_described_with_its_default(
    about: settings_table.SettingDefinition,
) -> None:
    rows = [line for line in SETTINGS.splitlines() if line.startswith(f"| `{about.name}` |")]
    assert len(rows) == 1
    cells = [cell.strip() for cell in rows[0].strip("|").split(" | ")]
    default = str(about.default).lower() if about.kind is bool else str(about.default)
    assert cells[1].split(" ")[0].strip("`") == (default or "empty")
    assert about.doc in rows[0]
    assert f"`{about.variable}`" in rows[0]


def test_every_setting_described_exists() -> None:
    named = re.findall(r"^\| `([a-z.]+)` \|", SETTINGS, flags=re.MULTILINE)
    assert sorted(set(named) - set(declared())) == []


def test_every_variable_named_anywhere_exists() -> None:
    variables = {about.variable for about in declared().values()} | COMMAND_VARIABLES
    named = {
        variable
        for page in pages()
        for variable in re.findall(r"\bNEVE_[A-Z_]+\b", page.read_text(encoding="utf-8"))
    }
    assert sorted(named - variables) == []


# --- commands


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z]+):", MAKEFILE, flags=re.MULTILINE))


def test_every_make_command_named_exists() -> None:
    named = {
        (shown_name(page), target)
        for page in pages()
        for target in re.findall(r"\bmake ([a-z]+)\b", code_of(page))
    }
    assert {target for _, target in named} >= {"test", "demo"}
    assert sorted(each for each in named if each[1] not in make_targets()) == []


def test_every_target_is_phony_and_has_a_line_of_help() -> None:
    helped = set(re.findall(r"^([a-z]+):.*## \S", MAKEFILE, flags=re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, flags=re.MULTILINE)
    assert phony is not None
    assert make_targets() == helped == set(phony[1].split())


def neve_commands() -> list[str]:
    """Every `neve …` that a page shows, up to its first argument."""
    shown = "\n".join(map(code_of, pages()))
    words = re.findall(r"(?:^|\s)neve((?: [a-z][a-z-]*(?=\s|$))+)", shown)
    return sorted({found.strip() for found in words})


@pytest.mark.skipif(not (ROOT / "src/neve/cli/__init__.py").is_file(), reason="no command yet")
@pytest.mark.parametrize("command", neve_commands())
def test_every_neve_command_named_exists(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    printed = capsys.readouterr().out
    usage = re.search(r"Usage: (neve(?: [a-z][a-z-]*)*)", printed)
    assert usage is not None, printed
    # What follows a command may be a name it is given, as in an example.
    assert f"neve {command} ".startswith(f"{usage[1]} ")
    assert "COMMAND" not in printed or usage[1] == f"neve {command}"


# --- versions


def test_the_change_log_has_the_current_version() -> None:
    version = PROJECT["project"]["version"]
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert headings[0] == version
    assert neve.__version__ == version


# --- hints


def test_no_hint_installs_neve_from_pypi() -> None:
    """It is not there yet."""
    places = [*pages(), *source_files()]
    wrong = [
        shown_name(place)
        for place in places
        if re.search(r"install\s+'?neve\b", place.read_text(encoding="utf-8"))
    ]
    assert wrong == []


# --- events


def test_every_event_that_is_logged_is_described() -> None:
    source = "\n".join(file.read_text(encoding="utf-8") for file in source_files())
    found = re.findall(r'event\(\s*_?log,\s*logging\.(\w+),\s*"([^"]+)"', source)
    assert len(found) > 10
    rows = [line for line in MONITOR.splitlines() if line.startswith("| `")]
    missing = [
        what
        for level, what in found
        if not any(f"`{what}`" in row and f"| {level.lower()} |" in row for row in rows)
    ]
    assert missing == []
