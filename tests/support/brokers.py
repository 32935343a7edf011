"""Real brokers: `neve serve` as separate processes on free ports."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

NEVE = ("-m", "neve.cli")
READY_SECONDS = 60
STOP_SECONDS = 15
_READY = re.compile(r"ready: kafka (\S+?:\d+), http (\S+?:\d+|off).*, node (\d+)")


class BrokerAddress(NamedTuple):
    """Where a broker is: for Kafka's clients, and for those of its health and metrics."""

    node_id: int
    bootstrap: str
    http: str

    @classmethod
    def of(cls, ready_line: str) -> BrokerAddress:
        found = _READY.search(ready_line)
        assert found is not None, ready_line
        return cls(int(found[3]), found[1], found[2])

    @property
    def host(self) -> str:
        return self.bootstrap.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])


class RunningBroker:
    """One process of `neve serve`, with one broker or several (`nodes`).

    `bootstrap` is where Kafka's clients go, `http` where health and metrics are: those of the first
    broker if there are several.
    """

    def __init__(self, process: subprocess.Popen[str], log: Path, *ready_lines: str) -> None:
        self.process = process
        self._log = log
        self.nodes = sorted(BrokerAddress.of(line) for line in ready_lines)
        self.bootstrap, self.http = self.nodes[0].bootstrap, self.nodes[0].http
        self.ready_line = ready_lines[0]

    @property
    def node_ids(self) -> set[int]:
        return {node.node_id for node in self.nodes}

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [(node.host, node.port) for node in self.nodes]

    @property
    def host(self) -> str:
        return self.bootstrap.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])

    @property
    def log(self) -> str:
        """What it wrote to standard error so far."""
        return self._log.read_text(encoding="utf-8")

    def stop(self) -> int:
        """Ask it to end, and wait; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_SECONDS * len(self.nodes))
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()
        return code

    def kill(self) -> None:
        """End it as a power cut would."""
        brokers = _children(self.process.pid) if len(self.nodes) > 1 else []
        self.process.kill()
        for pid in brokers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(each) for each in text.split()]


def start_broker(
    store: str | Path,
    log: Path,
    *,
    port: int = 0,
    node_id: int = 1,
    brokers: int = 1,
    program: Sequence[str] = NEVE,
    **settings: object,
) -> RunningBroker:
    """Start `neve serve` and wait until it is ready. Settings are named with _ for the dots.

    `program` is another program with the same commands.
    """
    command = [sys.executable, *program, "serve", "--store", str(store)]
    command += ["--listen", f"127.0.0.1:{port}", "--node-id", str(node_id)]
    if brokers > 1:
        command += ["--brokers", str(brokers)]
    command += ["--set", "http.listen=127.0.0.1:0"]
    for name, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        command += ["--set", f"{name.replace('_', '.')}={text}"]
    environment = {name: text for name, text in os.environ.items() if not name.startswith("NEVE_")}
    with log.open("a", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(brokers)]
    if not all(lines):
        process.terminate()
        process.wait(READY_SECONDS)
        process.stdout.close()
        raise AssertionError(f"the broker ended with {process.returncode}: {log.read_text()}")
    return RunningBroker(process, log, *lines)
