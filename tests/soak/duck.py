"""duckdb with its Iceberg extension, in an environment of its own beside the tests'.

It is what somebody else reads our tables with. Both come from PyPI, once, into `.tools`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

VERSION = "1.5.5"
PACKAGES = ("duckdb", "duckdb-extension-avro", "duckdb-extension-iceberg")
TOOLS = Path(__file__).resolve().parents[2] / ".tools"
SECONDS = 300
PROGRAM = """
import json, pathlib, sys
import duckdb, duckdb_extension_avro, duckdb_extension_iceberg
link = duckdb.connect()
for module in (duckdb_extension_avro, duckdb_extension_iceberg):
    folder = pathlib.Path(module.__file__).parent
    (file,) = folder.glob("extensions/*/*.duckdb_extension")
    link.execute(f"LOAD '{file}'")
rows, places, ids = link.execute(
    "SELECT count(*), count(DISTINCT (_kafka.partition, _kafka.offset)), sum(id) "
    "FROM iceberg_scan(?) WHERE _kafka IS NOT NULL", [sys.argv[1]]
).fetchone()
print(json.dumps({"rows": rows, "places": places, "ids": int(ids or 0)}))
"""


class Duck:
    """Asks duckdb about a table, by its metadata file."""

    def __init__(self) -> None:
        self._python = _environment() / "bin" / "python"

    def ask(self, metadata: str) -> Any:
        done = _run([str(self._python), "-c", PROGRAM, metadata])
        return json.loads(done)


def _environment() -> Path:
    folder = TOOLS / f"duckdb-{VERSION}"
    if folder.is_dir():
        return folder
    TOOLS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TOOLS, prefix="duckdb-making-") as scratch:
        made = Path(scratch) / "made"
        _run([sys.executable, "-m", "venv", str(made)])
        pinned = [f"{name}=={VERSION}" for name in PACKAGES]
        _run([str(made / "bin" / "python"), "-m", "pip", "install", "-q", *pinned])
        try:
            made.rename(folder)
        except OSError:
            assert folder.is_dir()  # another worker was quicker
    return folder


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
