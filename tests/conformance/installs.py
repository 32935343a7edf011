"""Clients that come from npm and from Maven: fetched once into `.tools`, or skipped with a reason.

Only what cannot be had is skipped: no command, no way to the registry. A pin that is wrong fails.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parent.parent / ".tools"
FETCH_SECONDS = 300
_COPYING = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
_NO_WAY_THERE = re.compile(
    r"ENOTFOUND|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EAI_AGAIN|ENETUNREACH|EHOSTUNREACH|network"
    r"|Could not transfer|[Cc]onnection (?:refused|reset|timed out)|Unknown host"
    r"|\b(?:403|407|50\d)\b"
)


def command(name: str) -> str:
    """Where it is; the test is skipped where it is not."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def kafkajs_modules() -> Path:
    """KafkaJS and its codecs, as package-lock.json pins them."""
    npm = command("npm")
    source = HERE / "kafkajs"

    def fetch(folder: Path) -> None:
        for name in ("package.json", "package-lock.json"):
            shutil.copy(source / name, folder)
        quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"]
        patience = ["--fetch-retries=2", "--fetch-timeout=30000"]
        patience += ["--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=5000"]
        _run([npm, "ci", *quiet, *patience], folder)

    return _made("kafkajs", [source / "package-lock.json"], fetch) / "node_modules"


def java_libraries(source: Path = HERE / "java", name: str = "java-clients") -> Path:
    """What the pom.xml of a folder pins, with all it needs: Kafka's client and tools, or others."""
    mvn = command("mvn")
    pom = source / "pom.xml"

    def fetch(folder: Path) -> None:
        shutil.copy(pom, folder)
        asked = ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
        patience = ["-Dmaven.wagon.rto=30000", "-Daether.connector.connectTimeout=15000"]
        _run([mvn, "-B", "-q", f"{_COPYING}:copy-dependencies", *asked, *patience], folder)

    return _made(name, [pom], fetch)


def java_classes(libraries: Path, source: Path = HERE / "java", name: str = "java-driver") -> Path:
    """The program of a folder, compiled: the driver, or another."""
    javac = command("javac")
    sources = sorted(source.glob("*.java"))

    def compiled(folder: Path) -> None:
        path = str(libraries / "*")
        _run([javac, "-proc:none", "-d", str(folder), "-cp", path, *map(str, sources)], folder)

    return _made(name, [source / "pom.xml", *sources], compiled)


def _made(name: str, pins: Sequence[Path], make: Callable[[Path], None]) -> Path:
    """A folder that is made once for these files; half of one is never left under its name."""
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in pins)).hexdigest()[:12]
    folder = TOOLS / f"{name}-{digest}"
    if folder.is_dir():
        return folder
    TOOLS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=TOOLS, prefix=f"{name}-making-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        make(made)
        try:
            made.rename(folder)
        except OSError:
            assert folder.is_dir()  # another worker was quicker
    return folder


def _run(argv: Sequence[str], folder: Path) -> None:
    tool = Path(argv[0]).name
    try:
        done = subprocess.run(
            argv,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{tool} did not end within {FETCH_SECONDS} s")
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()
        if found := _NO_WAY_THERE.search(said):
            pytest.skip(f"{tool} cannot reach its registry: {found[0]}")
        pytest.fail(f"{tool} failed: {said[-3000:]}")
