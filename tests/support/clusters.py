"""Several brokers on one bucket, each a process of its own that a test ends and starts by name."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.brokers import RunningBroker, start_broker

WAIT_SECONDS = 60


class Brokers:
    """`neve serve` once for each node id, on a port that it keeps. Use as `with`.

    A broker listens at `listens`; `advertise` returns, for its node id and port, the address that
    it gives to clients and to other brokers, and `store_of` the bucket's URL as this node sees it.
    """

    def __init__(
        self,
        folder: Path,
        store: str | Path,
        count: int = 3,
        *,
        advertise: Callable[[int, int], str] | None = None,
        settings_of: Callable[[int], Mapping[str, object]] = lambda _: {},
        **settings: object,
    ) -> None:
        self.folder = folder
        self.store = store
        self.node_ids = range(1, count + 1)
        self.running: dict[int, RunningBroker] = {}
        self.ports = dict.fromkeys(self.node_ids, 0)
        self._advertise = advertise
        self._settings_of = settings_of
        self._settings = settings

    def __enter__(self) -> Brokers:
        try:
            self.start_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.running.values():
            if broker.process.poll() is None:
                broker.process.send_signal(signal.SIGCONT)
            broker.kill()

    @property
    def bootstrap(self) -> str:
        """The addresses of all."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def log_file(self, node: int) -> Path:
        return self.folder / f"broker-{node}.log"

    @property
    def log(self) -> str:
        """What all of them wrote to standard error so far."""
        files = [self.log_file(node) for node in self.node_ids]
        return "".join(file.read_text(encoding="utf-8") for file in files if file.exists())

    def start(self, node: int) -> RunningBroker:
        more = dict(self._settings) | dict(self._settings_of(node))
        if self._advertise is not None:
            more["broker_advertise"] = self._advertise(node, self.ports[node])
        started = start_broker(
            self.store, self.log_file(node), port=self.ports[node], node_id=node, **more
        )
        self.running[node] = started
        self.ports[node] = started.port
        return started

    def start_all(self) -> None:
        self.together(self.start)

    def stop(self, node: int) -> None:
        """SIGTERM; it must end well."""
        code = self.running[node].stop()
        assert code == 0, f"broker {node} ended with {code}: {self.log_file(node).read_text()}"

    def stop_all(self) -> None:
        self.together(self.stop)

    def kill(self, node: int) -> None:
        self.running[node].kill()

    def kill_all(self) -> None:
        for broker in self.running.values():
            broker.process.kill()
        for broker in self.running.values():
            broker.kill()

    def together(self, work: Callable[[int], object]) -> None:
        """Do something with every node, all at once; the first failure is raised."""
        with ThreadPoolExecutor(len(self.node_ids)) as threads:
            list(threads.map(work, self.node_ids))


def wait_for(what: str, is_so: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
    ends_at = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < ends_at, f"not within {seconds} s: {what}"
        time.sleep(0.05)
