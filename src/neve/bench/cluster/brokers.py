"""The brokers of a benchmark: one process for each node id, and what clients see of them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from neve import runtime
from neve.bench.broker.processes import Process
from neve.bench.kafka.measure import BenchError

NODES = (1, 2, 3)
POLL_SECONDS = 0.1
WAIT_SECONDS_MAX = 120.0
ANSWER_SECONDS = 10.0
_PEER_BYTES = ("neve_peer_sent_bytes_total", "neve_peer_received_bytes_total")


class Brokers:
    """Brokers in racks of their own, with settings as `name=value`. A context manager."""

    def __init__(self, store: str, *settings: str, nodes: Sequence[int] = NODES) -> None:
        self._store = store
        self._nodes = nodes
        self._settings = settings
        self._stack = ExitStack()
        self._processes: dict[int, Process] = {}
        self.addresses: dict[int, str] = {}

    def __enter__(self) -> Brokers:
        with ExitStack() as stack:
            stack.callback(self.__exit__)
            for node in self._nodes:
                self.start(node)
            stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            for process in self._processes.values():
                stack.push(process)
        self._processes.clear()

    def start(self, node: int) -> None:
        """Start a broker, at the address that its node had before if there is one."""
        named = {
            "http.listen": "127.0.0.1:0",
            "log.level": "error",
            "broker.rack": f"rack-{node}",
        }
        assignments = [*(f"{name}={value}" for name, value in named.items()), *self._settings]
        self._processes[node] = Process(
            "serve", "--store", self._store, "--node-id", str(node),
            "--listen", self.addresses.get(node, "127.0.0.1:0"),
            *(part for assignment in assignments for part in ("--set", assignment)),
        )  # fmt: skip
        self.addresses[node] = self._processes[node].address

    def kill(self, node: int) -> None:
        """End a broker as a crash would."""
        self._processes.pop(node).kill()

    def forget(self, node: int) -> None:
        """Do not name this node to clients any more."""
        self.addresses.pop(node)

    def pause(self, node: int) -> None:
        self._processes[node].signal(signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self._processes[node].signal(signal.SIGCONT)

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    @property
    def config(self) -> dict[str, Any]:
        """A client that looks for new leaders quickly."""
        return self.config_without()

    def config_without(self, *nodes: int) -> dict[str, Any]:
        """The same, without the addresses of some nodes."""
        known = [address for node, address in self.addresses.items() if node not in nodes]
        return {
            "bootstrap.servers": ",".join(known),
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 200,
            "topic.metadata.refresh.fast.interval.ms": 100,
            "log_level": 0,
        }

    def peer_bytes(self) -> float:
        """Return what the brokers have sent each other so far, requests and responses."""
        return sum(map(self.total, _PEER_BYTES))

    def produced_bytes(self) -> float:
        return self.total("neve_produced_bytes_total")

    def total(self, name: str) -> float:
        """Return the sum of a metric without labels over all brokers."""
        return sum(process.counter(name) for process in self._processes.values())


class Topics:
    """Topics and their leaders, as one client sees them."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        from confluent_kafka.admin import AdminClient

        self._admin = AdminClient(dict(config))

    def create(self, name: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        from confluent_kafka.admin import NewTopic

        new = NewTopic(name, partitions, -1, config=dict(configs or {}))
        self._admin.create_topics([new])[name].result(ANSWER_SECONDS)
        wait_until(f"topic {name} has leaders", lambda: -1 not in self.leaders(name).values())

    def leaders(self, name: str) -> dict[int, int]:
        """Return the leader's node id of each partition; -1 for none."""
        found = self._admin.list_topics(name, timeout=ANSWER_SECONDS).topics[name]
        return {number: row.leader for number, row in sorted(found.partitions.items())}

    def settle(self, name: str, seconds: float) -> dict[int, int]:
        """Wait until the leaders were the same for `seconds`, and live. Returns them."""
        leaders: dict[int, int] = {}
        since = runtime.monotonic()

        def is_settled() -> bool:
            nonlocal leaders, since
            now = self.leaders(name)
            if now != leaders or -1 in now.values():
                leaders, since = now, runtime.monotonic()
            return runtime.monotonic() - since >= seconds

        wait_until(f"the leaders of {name} are settled", is_settled)
        return leaders


def wait_until(what: str, is_so: Callable[[], bool]) -> None:
    """Wait, at most WAIT_SECONDS_MAX. Raises BenchError if it does not happen."""
    ends_at = runtime.monotonic() + WAIT_SECONDS_MAX
    while not is_so():
        if runtime.monotonic() > ends_at:
            raise BenchError(f"not within {WAIT_SECONDS_MAX:g} s: {what}")
        runtime.run(runtime.sleep(POLL_SECONDS))
