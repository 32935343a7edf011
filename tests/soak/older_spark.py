"""Environments with an older PySpark: its wheel from PyPI, once, into `.tools`.

Everything else is the tests' own environment, which each of them sees behind its own packages. So
PySpark and the py4j that it asks for are what differs, and nothing besides.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / ".tools"
SECONDS = 900
"""For 450 MB, which pip also turns into a wheel."""
_NO_WAY_THERE = re.compile(
    r"Failed to establish a new connection|Name or service not known|ConnectTimeout|ProxyError"
    r"|Temporary failure in name resolution|Network is unreachable|Read timed out"
    r"|Connection (?:refused|reset|broken|timed out)"
)


class OlderSpark:
    """Runs Python with a PySpark of this version, on the code of this working copy."""

    def __init__(self, version: str) -> None:
        self.version = version
        self._python = _environment(version) / "bin" / "python"

    def run(self, *arguments: str, seconds: int = 300) -> subprocess.CompletedProcess[str]:
        environment = {name: text for name, text in os.environ.items() if not _of_spark(name)}
        environment["PYTHONPATH"] = os.pathsep.join(str(ROOT / each) for each in ("src", "tests"))
        return subprocess.run(
            [str(self._python), *arguments],
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env=environment,
        )

    def output(self, *arguments: str) -> str:
        """What it prints; it has to succeed."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def _of_spark(name: str) -> bool:
    """Whether a variable may lead to another Spark or another Python than this one's."""
    return name == "SPARK_HOME" or name.startswith("PYSPARK_")


def _environment(version: str) -> Path:
    folder = TOOLS / f"pyspark-{version}-python{sys.version_info[0]}.{sys.version_info[1]}"
    if not folder.is_dir():
        TOOLS.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=TOOLS, prefix="pyspark-making-") as scratch:
            made = Path(scratch) / "made"
            _make(made, version)
            try:
                made.rename(folder)
            except OSError:
                assert folder.is_dir()  # another worker was quicker
    # The tests' environment may have moved since.
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "neve-tests.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return folder


def _make(folder: Path, version: str) -> None:
    done = _command([sys.executable, "-m", "venv", str(folder)])
    assert done.returncode == 0, done.stdout + done.stderr
    asked = ["install", "-q", "--retries", "1", "--timeout", "30", f"pyspark=={version}"]
    done = _command([str(folder / "bin" / "python"), "-m", "pip", *asked])
    said = done.stdout + done.stderr
    if done.returncode != 0 and _NO_WAY_THERE.search(said):
        pytest.skip(f"PyPI cannot be reached for pyspark {version}: {said.strip()[-300:]}")
    assert done.returncode == 0, said


def _command(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
