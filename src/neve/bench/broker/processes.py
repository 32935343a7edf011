"""The processes that a benchmark starts, with their CPU time, memory and metrics."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from neve import runtime
from neve.bench.kafka.measure import BenchError

STOP_SECONDS = 30
SETTLE_SECONDS_MAX = 60
IDLE_SHARE = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")
_NEVE = (sys.executable, "-m", "neve.cli")
_HTTP = re.compile(r"http (127\.0\.0\.1:\d+)")
_ADDRESS = re.compile(r"(127\.0\.0\.1:\d+)")


class Process:
    """A server process that prints its address. A context manager, which stops the process."""

    def __init__(self, *arguments: str) -> None:
        command = [*_NEVE, *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = _ADDRESS.search(line)
        if found is None:
            self.__exit__()
            raise BenchError(f"{' '.join(arguments)} did not start: {line!r}")
        self.address = found.group(1)
        self._http = _HTTP.search(line)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def cpu_seconds(self) -> float:
        """Return the user and system time of all its threads so far."""
        text = Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii")
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def settle(self) -> None:
        """Sync the disks, then wait until the process is idle, at most SETTLE_SECONDS_MAX."""
        os.sync()
        for _ in range(SETTLE_SECONDS_MAX):
            before = self.cpu_seconds()
            runtime.run(runtime.sleep(1.0))
            if self.cpu_seconds() - before < IDLE_SHARE:
                return

    def counter(self, name: str) -> float:
        """Return the current value of a metric, which has no labels."""
        assert self._http is not None, "it was started without http"
        with urllib.request.urlopen(f"http://{self._http.group(1)}/metrics") as response:
            text = response.read().decode()
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        assert found is not None, name
        return float(found.group(1))

    def memory_peak_bytes(self) -> int:
        """Return its peak resident memory; 0 if the system does not report it."""
        text = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        found = re.search(r"VmHWM:\s+(\d+) kB", text)
        return int(found.group(1)) * 1024 if found else 0


def serve(store: str, *settings: str, http: str = "") -> Process:
    """Start a broker on this store, with settings as `name=value`."""
    more = [part for setting in settings for part in ("--set", setting)]
    return Process(
        "serve", "--store", store, "--listen", "127.0.0.1:0", "--set", f"http.listen={http}",
        "--set", "log.level=warning", *more,
    )  # fmt: skip


def mock() -> Process:
    """Start librdkafka's mock cluster."""
    return Process("bench", "mock")


def load(kind: str, address: str, *arguments: str) -> dict[str, Any]:
    """Run `neve bench …` in a separate process. Returns the result that it printed."""
    return Load(kind, address, *arguments).result()


class Load:
    """`neve bench …` in a separate process, started at once and running in the background."""

    def __init__(self, kind: str, address: str, *arguments: str) -> None:
        command = [*_NEVE, "bench", kind, "--bootstrap", address, "--json", *arguments]
        self._name = " ".join(command[2:])
        self._process = subprocess.Popen(  # noqa: S603
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def result(self) -> dict[str, Any]:
        """Wait until it ends. Returns the result that it printed; raises BenchError on failure."""
        printed, errors = self._process.communicate()
        if self._process.returncode != 0:
            raise BenchError(f"{self._name} failed: {errors.strip()}")
        result: dict[str, Any] = json.loads(printed)
        if result.get("errors"):
            raise BenchError(f"{self._name}: {result['errors']} records were lost: {result}")
        return result
