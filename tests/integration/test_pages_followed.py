"""README.md, the quick start and docs/users/clients.md, followed line by line from an empty folder.

Commands and programs are run as they stand. Only what a test may not have is put in place of what
the page names: free ports for 9092, this machine for a broker's public name, and moto for S3.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.page_steps import Command, File, Program, Step, steps_of
from support.servers import S3Server, moto_s3  # noqa: F401 (a fixture)

ROOT = Path(__file__).parents[2]
STEP_SECONDS = 120
pytestmark = pytest.mark.slow


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Follower:
    """Someone with an empty folder, who does what a page says."""

    def __init__(self, folder: Path, s3: S3Server) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[str]] = []
        self._spark: subprocess.Popen[str] | None = None
        here, elsewhere = free_address(), free_address()
        self._stand_ins = {
            "127.0.0.1:9092": here,
            "0.0.0.0:9092": elsewhere,
            "broker-1.example.com:9092": elsewhere,
            "s3://my-bucket": f"s3://{s3.new_bucket()}",
        }
        tools = Path(sys.executable).parent
        self._environment = {
            **{name: text for name, text in os.environ.items() if not name.startswith("NEVE_")},
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "NEVE_BROKER_LISTEN": here,
            "NEVE_HTTP_LISTEN": "127.0.0.1:0",
            "NEVE_BOOTSTRAP": here,
            "NEVE_STORE_ENDPOINT": s3.endpoint,
        }

    def follow(self, step: Step) -> None:
        if isinstance(step, File):
            (self._folder / step.name).write_text(self._here(step.text))
        elif step.needs_spark:
            self._on_spark(step)
        elif isinstance(step, Program):
            self._finish([sys.executable, "-c", self._here(step.text)], step.text)
        elif step.stays:
            self._stay(step)
        else:
            self._finish(["bash", "-c", self._here(step.line)], step.line)

    def _here(self, text: str) -> str:
        for named, stand_in in self._stand_ins.items():
            text = text.replace(named, stand_in)
        return text

    def _start(self, argv: list[str]) -> subprocess.Popen[str]:
        log = self._log.open("a", encoding="utf-8")
        with log:
            process = subprocess.Popen(
                argv,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._running.append(process)
        return process

    @property
    def _log(self) -> Path:
        return self._folder.with_name("errors")

    def _finish(self, argv: list[str], what: str) -> None:
        process = self._start(argv)
        said, _ = process.communicate(timeout=STEP_SECONDS)
        assert process.returncode == 0, f"{what}: {said}{self._log.read_text()}"
        self._running.remove(process)

    def _stay(self, step: Command) -> None:
        """A broker runs until the page ends; whatever else stays is interrupted once it speaks."""
        process = self._start(shlex.split(self._here(step.line)))
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"{step.line}: {self._log.read_text()}"
        if not step.line.startswith("neve serve"):
            self._interrupt(process)

    def _on_spark(self, step: Command | Program) -> None:
        if self._spark is None:
            self._spark = self._start(
                [sys.executable, str(ROOT / "tests" / "support" / "follow_spark.py")]
            )
        assert self._spark.stdin is not None
        assert self._spark.stdout is not None
        asked: str | list[str] = (
            self._here(step.text)
            if isinstance(step, Program)
            else shlex.split(self._here(step.line))[1:]
        )
        self._spark.stdin.write(json.dumps(asked) + "\n")
        self._spark.stdin.flush()
        said = ""
        while (ended := re.search(r"^ended with (\d+)$", said, re.MULTILINE)) is None:
            line = self._spark.stdout.readline()
            assert line, f"{step}: {said}{self._log.read_text()}"
            said += line
        assert ended[1] == "0", f"{step}: {said}{self._log.read_text()}"

    def _interrupt(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=STEP_SECONDS)
        self._running.remove(process)

    def end(self) -> None:
        for process in reversed(self._running[:]):
            if process is self._spark:
                process.communicate(timeout=STEP_SECONDS)
            else:
                self._interrupt(process)
                assert process.returncode == 0, self._log.read_text()

    def kill(self) -> None:
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.communicate()


@pytest.fixture
def follower(tmp_path: Path, moto_s3: S3Server) -> Iterator[Follower]:  # noqa: F811
    folder = tmp_path / "empty"
    folder.mkdir()
    made = Follower(folder, moto_s3)
    try:
        yield made
    finally:
        made.kill()


PAGES = ["README.md", "docs/users/quick-start.md", "docs/users/clients.md"]


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_followed_from_top_to_bottom(name: str, follower: Follower) -> None:
    steps = steps_of((ROOT / name).read_text(encoding="utf-8"))
    assert len(steps) > 3
    for step in steps:
        began = time.monotonic()
        follower.follow(step)
        print(f"{time.monotonic() - began:5.1f} s: {step}")
    follower.end()
