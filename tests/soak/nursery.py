"""Brokers that start quickly, on one port, and can be killed at any moment.

One nursery process (see `planted_broker`) forks them. A broker that is started again gets the same
port, so that clients find it, as they would find a server that was restarted.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("planted_broker.py")
_READY = re.compile(r"ready: kafka \S+?:(\d+), http (\S+?:\d+|off)")
READY_POLL_SECONDS = 0.005


class BrokerEndedError(Exception):
    """A broker ended by itself. `code` is its exit code, negative for a signal."""

    def __init__(self, code: int, log: Path) -> None:
        lines = log.read_text(encoding="utf-8").splitlines()[-15:] if log.exists() else []
        super().__init__("\n".join([f"the broker ended with {code}; its log ends with", *lines]))
        self.code = code


class Nursery:
    """Brokers of one bucket, one at a time. Use as `with`."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, object],
        bug: str = "",
        *,
        store: str = "",
        port: int = 0,
        host: str = "",
    ) -> None:
        self.folder = folder
        self.bucket = folder / "bucket"
        self._host = host
        self._store = store or str(self.bucket)
        self.log = folder / "broker.log"
        self.tally = folder / "tally.txt"
        self.control = folder / "control.json"
        self.port = port or free_port()
        self.http = ""
        self.starts = 0
        self._settings = settings
        self._bug = bug
        self._pid: int | None = None
        self._lock = threading.Lock()
        environment = {key: text for key, text in os.environ.items() if key[:5] != "NEVE_"}
        # Fewer threads in a process that forks.
        environment |= {"OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
        self._process = subprocess.Popen(
            [sys.executable, str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _order(self, **order: object) -> dict[str, Any]:
        with self._lock:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._process.stdout.readline())
            return answer

    # -- one broker --------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        assert self._pid is not None
        return self._pid

    @property
    def pid_or_none(self) -> int | None:
        return self._pid

    def launch(self, death: Mapping[str, object] | None = None) -> None:
        """Start a broker; it is not ready yet."""
        assert self._pid is None
        self.starts += 1
        argv = ["serve", "--store", self._store, "--listen", f"127.0.0.1:{self.port}"]
        for name, value in {"http.listen": "127.0.0.1:0", **self._settings}.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            argv += ["--set", f"{name}={text}"]
        answer = self._order(
            do="start",
            argv=argv,
            output=str(self._output),
            log=str(self.log),
            tally=str(self.tally),
            control=str(self.control),
            death=death,
            bug=self._bug,
            host=self._host,
        )
        self._pid = answer["pid"]

    @property
    def _output(self) -> Path:
        return self.folder / f"ready-{self.starts}.txt"

    def is_ready(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            found = _READY.search(self._output.read_text(encoding="utf-8"))
            if found is not None:
                assert int(found[1]) == self.port
                self.http = found[2]
                return True
        return False

    def wait_ready(self, seconds: float) -> None:
        """Return when it serves; BrokerEndedError, or TimeoutError, where it does not."""
        until = time.monotonic() + seconds
        while not self.is_ready():
            self.check_alive()
            if time.monotonic() > until:
                raise TimeoutError(f"the broker was not ready within {seconds} s")
            time.sleep(READY_POLL_SECONDS)

    def check_alive(self) -> None:
        """Raise BrokerEndedError if it has ended."""
        code = self._order(do="poll", pid=self.pid)["code"]
        if code is not None:
            self._pid = None
            raise BrokerEndedError(code, self.log)

    def kill(self) -> int:
        """kill -9; the exit code, which is another where it had ended before."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        return self._wait()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        os.kill(self.pid, signal.SIGTERM)
        return self._wait()

    def _wait(self) -> int:
        code: int = self._order(do="wait", pid=self.pid)["code"]
        self._pid = None
        return code

    def steer(self, **faults: object) -> None:
        """Make the store behave like this from now on; without faults, well."""
        fresh = self.control.with_suffix(".new")
        fresh.write_text(json.dumps(faults))
        fresh.replace(self.control)

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    # -- what all of them did ----------------------------------------------------------------

    def _notes(self) -> Iterator[tuple[str, str, str]]:
        for line in self.tally.read_text().splitlines():
            pid, sign, name = line.split(" ", 2)
            yield pid, sign, name

    def writes(self) -> Counter[str]:
        """How often each kind of write was done, such as `create segment`."""
        return Counter(name for _, sign, name in self._notes() if sign == "-")

    def interrupted(self) -> Counter[str]:
        """Writes that were on their way when their broker was killed."""
        open_calls: Counter[tuple[str, str]] = Counter()
        for pid, sign, name in self._notes():
            open_calls[pid, name] += 1 if sign == "+" else -1
        found: Counter[str] = Counter()
        for (_, name), count in open_calls.items():
            found[name] += count
        return found


def free_port() -> int:
    """A port that nobody has at this moment, outside the range that the system hands out."""
    for port in range(20_000 + os.getpid() % 5_000, 32_000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port
    raise AssertionError("no free port")
