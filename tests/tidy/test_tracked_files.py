"""What is committed holds on any machine: no registry's host, nobody's folder, no loose pin."""

from __future__ import annotations

import os
import re
from importlib.metadata import distributions
from pathlib import Path

import pytest

from tidy.repository import PROJECT, ROOT, shown_name, tracked_files

# Written in parts, so that this file passes its own test.
HOSTS = [
    "pypi" + r"\.org",
    "python" + r"hosted\.org",
    "npm" + r"js\.(?:org|com)",
    "maven" + r"\.org",
    "maven" + r"\.apache\.org",
    "docker" + r"\.(?:io|com)",
    "gh" + r"cr\.io",
    "quay" + r"\.io",
    "arti" + "factory",
    "crates" + r"\.io",
    "conda" + r"\.(?:org|io)",
    "debian" + r"\.org",
    "ubuntu" + r"\.com",
]
OPTIONS = ["--(?:extra-)?index" + "-url", "--find" + "-links", "--trusted" + "-host"]
FOLDERS = [rf"(?<![\w.:/~-])/(?:{name})/" for name in ("root", "home", "work", "Users", "opt")]


def texts() -> list[tuple[Path, str]]:
    found = []
    for file in tracked_files():
        try:
            found.append((file, file.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue  # a sample of bytes
    return found


@pytest.mark.parametrize("pattern", [*HOSTS, *OPTIONS, *FOLDERS])
def test_no_file_names_a_registry_or_a_machine_s_folder(pattern: str) -> None:
    wanted = re.compile(pattern, re.IGNORECASE)
    found = [
        f"{shown_name(file)}:{number}: {line.strip()[:80]}"
        for file, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if wanted.search(line)
    ]
    assert found == []


def test_what_is_run_may_be_run() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


# --- pins


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line and not line.startswith("#")]
    loose = [row for row in rows if not re.fullmatch(r"[\w.-]+==[\w.]+(?: ; .+)?", row)]
    assert loose == [], "a pin is name==version"
    return {normalised(row.split("==")[0]): row.split("==")[1].split(" ")[0] for row in rows}


def test_everything_installed_is_pinned() -> None:
    pinned = pins()
    installed = {normalised(each.metadata["Name"]): each.version for each in distributions()}
    installed.pop("neve")
    wrong = {name: version for name, version in installed.items() if pinned.get(name) != version}
    assert wrong == {}, "constraints.txt and the environment differ: pin it, or run `make setup`"


def test_everything_asked_for_is_pinned() -> None:
    project = PROJECT["project"]
    extras = project["optional-dependencies"].values()
    groups = PROJECT["dependency-groups"].values()
    asked = [*project["dependencies"], *(each for group in (*extras, *groups) for each in group)]
    names = {normalised(re.split(r"[\[<>=; ]", each)[0]) for each in asked} - {"neve"}
    assert sorted(names - set(pins())) == []


def test_pandas_stays_below_three() -> None:
    assert int(pins()["pandas"].split(".")[0]) < 3


def test_no_tracked_file_is_a_link() -> None:
    assert [shown_name(file) for file in tracked_files() if file.is_symlink()] == []
