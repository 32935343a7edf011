"""No dead file, every layer in its place, and time and chance only from neve.runtime."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from neve.cli.application import COMMANDS
from tidy.repository import PROJECT, ROOT, SOURCE, module_of, source_files, syntax_of

ENTRIES = {"neve", "neve.cli", "neve.cli.__main__", "neve.lake.spark.worker_daemon", "pyspark_neve"}
"""What is reached from outside: by import, by the command, by Spark (which is told the names)."""


def imports_of(file: Path, modules: set[str]) -> set[str]:
    """The modules of this source that a file imports, wherever in it."""
    package = module_of(file) if file.name == "__init__.py" else module_of(file).rpartition(".")[0]
    named: set[str] = set()
    for node in ast.walk(syntax_of(file)):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*above, node.module or ""]).strip(".") if node.level else node.module
            named |= {f"{base}", *(f"{base}.{alias.name}" for alias in node.names)}
    parents = {name.rsplit(".", up)[0] for name in named for up in range(name.count(".") + 1)}
    return (named | parents) & modules


def unimported() -> set[str]:
    modules = {module_of(file): file for file in source_files()}
    imported: set[str] = set()
    for name, file in modules.items():
        imported |= imports_of(file, set(modules)) - {name}
    # Commands are loaded by name when they are called.
    imported |= {f"neve.cli.{where.partition(':')[0]}" for where, _ in COMMANDS.values()}
    return set(modules) - imported - ENTRIES


def test_no_source_file_is_dead() -> None:
    assert sorted(unimported()) == [], "nothing in src imports these"


def test_the_contracts_hold() -> None:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_layer_that_exists_has_its_place() -> None:
    contract = next(
        each for each in PROJECT["tool"]["importlinter"]["contracts"] if each["type"] == "layers"
    )
    placed = re.findall(r"\w+", " ".join(contract["layers"]))
    rooms = {
        path.stem
        for path in (SOURCE / "neve").iterdir()
        if (path.is_dir() and any(path.rglob("*.py"))) or path.suffix == ".py"
    }
    assert sorted(rooms - set(placed) - {"__init__", "__main__"}) == []
    assert contract["exhaustive"], "import-linter itself is to refuse a room without a place"
    assert len(placed) == len(set(placed))


def test_handlers_reach_the_node_only_through_services() -> None:
    handlers = [file for file in source_files() if "broker/handlers/" in file.as_posix()]
    assert handlers
    reaching = [
        f"{file.name}:{node.lineno}"
        for file in handlers
        for node in ast.walk(syntax_of(file))
        if isinstance(node, ast.Attribute) and node.attr == "node"
    ]
    assert reaching == [], "a service of neve.broker.admin should do this"


def banned() -> list[str]:
    return list(PROJECT["tool"]["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"])


def ruff_on(source: str, name: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    command = [ruff, "check", "--no-cache", "--output-format=concise", "--stdin-filename", name]
    done = subprocess.run(
        [*command, "-"], input=source, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def uses(name: str) -> str:
    """A line that uses one banned name the way code would."""
    module, _, member = name.rpartition(".")
    return f"from {module} import {member}" if module else f"import {name}"


@pytest.mark.parametrize("where", ["log", "store", "broker", "cli"])
def test_every_ban_is_active_outside_the_runtime(where: str) -> None:
    said = ruff_on("\n".join(uses(name) for name in banned()), f"src/neve/{where}/sample.py")
    lines = {int(line.split(":")[1]) for line in said.splitlines() if "TID251" in line}
    missed = [name for number, name in enumerate(banned(), 1) if number not in lines]
    assert missed == []


def test_a_banned_call_is_refused_too() -> None:
    assert "TID251" in ruff_on("import time\nNOW = time.time()\n", "src/neve/log/sample.py")


def test_the_runtime_may_use_what_it_wraps() -> None:
    assert "TID251" not in ruff_on("import time\nNOW = time.time()\n", "src/neve/runtime/sample.py")


def test_the_ban_covers_clock_sleep_chance_tasks_and_threads() -> None:
    least = {"time.time", "time.monotonic", "asyncio.sleep", "random", "asyncio.create_task"}
    assert least | {"threading.Thread", "concurrent.futures"} <= set(banned())
