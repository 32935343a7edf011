"""Brokers of two versions in one cluster: rolling upgrades under load, refused downgrades.

The versions are real processes (`support.next_version`, `support.previous_version`). An application
produces and consumes with librdkafka throughout, and must not see an error.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from neve import runtime
from neve.cluster.log import ClusterLog
from neve.cluster.records import FEATURE_LEVEL
from neve.log.envelope import Kind, seal_envelope
from neve.log.keys import cluster_log
from neve.settings import StoreSettings
from neve.store.url import connect
from support import next_version, previous_version
from support.brokers import NEVE, RunningBroker, start_broker

NEXT = (str(Path(next_version.__file__)),)
PREVIOUS = (str(Path(previous_version.__file__)),)
TOPIC, PARTITIONS = "orders", 6
QUIET_SECONDS = 1.0  # of load between two steps
DONE_SECONDS_MAX = 120.0
# Slow machines must not make brokers look dead.
SETTINGS: dict[str, object] = {"cluster_session_ms": 20_000, "cluster_rebalance_delay_ms": 500}


class Application:
    """Produces numbers and consumes them, over whatever happens to the brokers."""

    def __init__(self, bootstrap: str) -> None:
        self.errors: list[str] = []
        self.acknowledged: set[int] = set()
        self.consumed: set[int] = set()
        self._bootstrap = bootstrap
        self._sent = 0
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._consume)]

    def create_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self._bootstrap})
        topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        for future in admin.create_topics([topic]).values():
            future.result(30)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """End the load, and wait until everything was consumed."""
        self._is_over.set()
        for thread in self._threads:
            thread.join(DONE_SECONDS_MAX)

    def check(self) -> None:
        assert self.errors == []
        assert self.acknowledged == set(range(self._sent))
        assert self.consumed == self.acknowledged
        assert self._sent > 50, "hardly anything happened"

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(f"produce: {error}")
        else:
            self.acknowledged.add(int(message.value()))

    def _produce(self) -> None:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True}
        )
        while not self._is_over.is_set():
            value = str(self._sent)
            producer.produce(TOPIC, value, key=value, on_delivery=self._delivered)
            self._sent += 1
            producer.poll(0.02)
        producer.flush(DONE_SECONDS_MAX)

    def _consume(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "application",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([TOPIC])
        ends_at: float | None = None
        while ends_at is None or time.monotonic() < ends_at:
            if self._is_over.is_set():
                ends_at = ends_at or time.monotonic() + DONE_SECONDS_MAX
                if not self._threads[0].is_alive() and len(self.consumed) >= self._sent:
                    break
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:
                self.errors.append(f"consume: {message.error()}")
            else:
                self.consumed.add(int(message.value()))
        consumer.close()


class Brokers:
    """The brokers of one bucket, each at a port that it keeps."""

    def __init__(self, folder: Path) -> None:
        self.store = folder / "bucket"
        self._folder = folder
        self._ports = dict(zip((1, 2, 3), free_ports(3), strict=True))
        self.running: dict[int, RunningBroker] = {}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def log(self, node_id: int) -> Path:
        return self._folder / f"{node_id}.log"

    def start(self, node_id: int, program: Sequence[str] = NEVE) -> RunningBroker:
        port, log = self._ports[node_id], self.log(node_id)
        broker = start_broker(
            self.store, log, port=port, node_id=node_id, program=program, **SETTINGS
        )
        self.running[node_id] = broker
        return broker

    def replace(self, node_id: int, program: Sequence[str]) -> None:
        assert self.running.pop(node_id).stop() == 0, self.log(node_id).read_text()
        self.start(node_id, program)

    def start_refused(self, node_id: int) -> str:
        """Start a broker that must refuse to; what it says. Its exit code has to be 1."""
        command = [sys.executable, *NEVE, "serve", "--store", str(self.store)]
        command += ["--listen", "127.0.0.1:0", "--node-id", str(node_id)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DONE_SECONDS_MAX)
        assert done.returncode == 1, done.stderr
        assert done.stdout == "", "it was never ready"
        return done.stderr

    def status(self, program: Sequence[str] = NEVE) -> dict[str, Any]:
        command = [sys.executable, *program, "cluster", "status", "--store", str(self.store)]
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=120)
        assert done.returncode in (0, 1), done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def levels(self, program: Sequence[str] = NEVE) -> tuple[int, dict[int, int]]:
        """The level of the cluster, and of each live broker."""
        found = self.status(program)
        rows = [row for row in found["brokers"] if row["state"] == "live"]
        return found["feature_level"], {row["node_id"]: row["level"] for row in rows}


@contextlib.contextmanager
def brokers_in(folder: Path) -> Iterator[Brokers]:
    brokers = Brokers(folder)
    try:
        yield brokers
    finally:
        for broker in brokers.running.values():
            broker.kill()


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def until(condition: Callable[[], bool]) -> None:
    ends_at = time.monotonic() + DONE_SECONDS_MAX
    while not condition():
        assert time.monotonic() < ends_at, "it did not happen"
        time.sleep(0.3)


@pytest.mark.slow
def test_a_rolling_upgrade_to_the_next_level(tmp_path: Path) -> None:
    with brokers_in(tmp_path) as brokers:
        for node_id in (1, 2, 3):
            brokers.start(node_id)
        application = Application(brokers.bootstrap)
        application.create_topic()
        application.start()
        try:
            for node_id in (1, 2, 3):
                time.sleep(QUIET_SECONDS)
                assert brokers.levels()[0] == FEATURE_LEVEL, "not every broker knows the next one"
                brokers.replace(node_id, NEXT)
                if node_id == 2:
                    assert brokers.levels() == (FEATURE_LEVEL, {1: 3, 2: 3, 3: 2})
            until(lambda: brokers.levels(NEXT) == (3, {1: 3, 2: 3, 3: 3}))
            # A broker that was downgraded is refused, and the others are not affected.
            assert brokers.running.pop(3).stop() == 0
            said = brokers.start_refused(3)
            assert "feature level 3" in said
            assert f"levels up to {FEATURE_LEVEL}" in said
            brokers.start(3, NEXT)
            time.sleep(QUIET_SECONDS)
        finally:
            application.end()
        application.check()
        assert brokers.levels(NEXT) == (3, {1: 3, 2: 3, 3: 3})


@pytest.mark.slow
def test_an_upgrade_from_one_broker_of_level_1(tmp_path: Path) -> None:
    with brokers_in(tmp_path) as brokers:
        old = brokers.start(1, PREVIOUS)
        assert brokers.levels() == (1, {1: 1})
        application = Application(brokers.bootstrap)
        application.create_topic()
        application.start()
        try:
            time.sleep(QUIET_SECONDS)
            brokers.start(2)
            # 3: another broker has taken over; 1: it has raised the level as well by now.
            assert old.process.wait(DONE_SECONDS_MAX) in (1, 3)
            brokers.running.pop(1).kill()
            brokers.start(1)
            until(lambda: brokers.levels() == (FEATURE_LEVEL, {1: FEATURE_LEVEL, 2: FEATURE_LEVEL}))
            time.sleep(QUIET_SECONDS)
        finally:
            application.end()
        application.check()


@pytest.mark.parametrize(
    "change",
    [{"type": "feature", "level": 3}, {"type": "note", "incarnation": 1}],
    ids=["level", "kind"],
)
def test_a_broker_stops_that_reads_what_it_does_not_know(
    change: dict[str, object], tmp_path: Path
) -> None:
    """It must not serve on from what it knew before."""

    async def write() -> None:
        stack = connect(str(tmp_path / "bucket"), StoreSettings())
        log = ClusterLog(stack.store)
        await log.refresh()
        number, keys = log.view.position, cluster_log()
        data = seal_envelope(
            Kind.CLUSTER_RECORD, keys.prefix, number, bytes(16), {"change": change}
        )
        await stack.store.create(keys.number(number), data)
        await stack.close()

    log = tmp_path / "log"
    broker = start_broker(tmp_path / "bucket", log, cluster_poll_ms=200)
    try:
        runtime.run(write())
        assert broker.process.wait(DONE_SECONDS_MAX) == 1, log.read_text()
    finally:
        broker.kill()
    said = log.read_text()
    level = change.get("level", FEATURE_LEVEL)
    assert "the broker has failed: " in said
    assert f"feature level {level} and this version knows levels up to {FEATURE_LEVEL}" in said
