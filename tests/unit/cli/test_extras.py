"""Commands that need packages which are not installed: one line that says how to get them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from neve.cli.extras import LAKE_PACKAGES, lake_is_installed, missing_extra

PROGRAM = """
import contextlib, io, json, sys
without, commands = json.loads(sys.argv[1])
class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in without:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from neve.cli import main
found = []
for command in commands:
    with contextlib.redirect_stderr(io.StringIO()) as told:
        found.append((main(command), told.getvalue()))
print(json.dumps(found))
"""


def test_every_command_that_needs_the_extra_says_how_to_install_it(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"store: {tmp_path}\ntopics: [{{topic: orders}}]\n")
    store = str(tmp_path / "store")
    commands = [
        ["lake", "run", "-f", str(file), "--once"],
        ["lake", "status", "-f", str(file)],
        ["lake", "replay", "-f", str(file)],
        ["lake", "relocate", "-f", str(file)],
        ["sql", "SELECT 1", "--store", store],
        ["sql", "--serve", "127.0.0.1:0", "--trust", "--store", store],
        ["bench", "spark"],
        ["bench", "lake"],
    ]
    asked = json.dumps([sorted(LAKE_PACKAGES), commands])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, asked], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for command, (code, told) in zip(commands, json.loads(done.stdout), strict=True):
        assert (code, told.count("\n")) == (1, 1), (command, told)
        assert "pip install '.[lake]'" in told, command


def test_another_missing_module_is_a_bug_and_not_an_extra() -> None:
    assert missing_extra(ModuleNotFoundError("No module named 'neve.x'", name="neve.x")) is None
    assert "pyspark" in (missing_extra(ModuleNotFoundError("no", name="pyspark.sql")) or "")


def test_the_extra_is_there_only_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lake_is_installed()
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    assert not lake_is_installed()
