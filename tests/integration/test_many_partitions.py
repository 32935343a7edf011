"""Two thousand partitions in one process on a local folder: starting, idling, superseded."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from neve import runtime
from neve.cluster.background_loops import BackgroundLoops
from neve.cluster.node import Node
from neve.errors import FencedError, NeveError
from neve.settings import ClusterSettings, MaintenanceSettings, Settings
from neve.store.folder import FolderStore
from neve.store.url import stack
from support.brokers import RunningBroker, start_broker
from support.node_world import append, batch_of, take_over

PARTITIONS = 2_000
START_SECONDS_MAX = 10.0
RATE = 600.0
LINGER_MS = 20

Place = tuple[str, int]


async def started(folder: Path, settings: Settings, node_id: int = 1) -> Node:
    store = stack(FolderStore(folder), settings.store).store
    return await Node.start(store, settings, node_id=node_id)


@pytest.mark.soak
async def test_a_topic_of_many_partitions_is_led_soon_and_idles_cheaply(tmp_path: Path) -> None:
    settings = Settings()
    node = await started(tmp_path, settings)
    await node.topics.create("t", PARTITIONS)
    for leader in list(node.led.partitions.values()):
        leader.append(batch_of(["a"], timestamp=runtime.now_ms()))
    await node.writer.flush()
    await runtime.gather(*(leader.tier() for leader in list(node.led.partitions.values())[::40]))
    await node.close()

    began = time.monotonic()
    node = await started(tmp_path, settings)
    await take_over(node)
    taken = time.monotonic() - began
    assert len(node.led.partitions) == PARTITIONS
    assert all(leader.log.next_offset == 1 for leader in node.led.partitions.values())
    assert taken < START_SECONDS_MAX

    upkeep = BackgroundLoops(node, settings)
    upkeep.start()
    await runtime.sleep(3)
    before, began = time.process_time(), time.monotonic()
    await runtime.sleep(5)
    idle_share = (time.process_time() - before) / (time.monotonic() - began)
    await upkeep.close()
    await node.close()
    assert idle_share < 0.05


class Figures:
    """A broker's own figures at one moment."""

    def __init__(self, broker: RunningBroker) -> None:
        with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=30) as answer:
            text = answer.read().decode()
        found = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        self._found = found
        self.cpu_seconds = self._sum("process_cpu_seconds_total")
        self.store_requests = self._sum("neve_store_requests_total")
        self.wal_objects = sum(
            value
            for (name, labels), value in found.items()
            if name == "neve_objects_written_total" and ("kind", "wal") in labels
        )

    def _sum(self, name: str) -> float:
        values = [value for (each, _), value in self._found.items() if each == name]
        assert values, f"{name} is not told"
        return sum(values)


def write_to_each(bootstrap: str, places: list[Place], rate: float) -> None:
    """One record to each place in turn, so many a second, each in a request of its own."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    failures: list[object] = []
    began = time.monotonic()
    for number, (topic, partition) in enumerate(places):
        producer.produce(
            topic,
            b"value",
            partition=partition,
            on_delivery=lambda error, _: error and failures.append(error),
        )
        producer.poll(max(0.0, began + number / rate - time.monotonic()))
    assert producer.flush(60) == 0
    assert failures == []


def wal_objects_of(broker: RunningBroker, places: list[Place]) -> float:
    """How many it writes for a steady stream to these places."""
    write_to_each(broker.bootstrap, places[:20], RATE)  # metadata and connections are not counted
    before = Figures(broker).wal_objects
    write_to_each(broker.bootstrap, places, RATE)
    return Figures(broker).wal_objects - before


def started_soon(bucket: Path, log: Path) -> RunningBroker:
    began = time.monotonic()
    broker = start_broker(bucket, log, wal_linger_ms=LINGER_MS)
    assert time.monotonic() - began < START_SECONDS_MAX
    return broker


@pytest.mark.slow
def test_a_broker_with_many_partitions_starts_soon_and_idles_cheaply(tmp_path: Path) -> None:
    topics = [f"t{at}" for at in range(200)]
    each = PARTITIONS // len(topics)
    places = [(topic, partition) for topic in topics for partition in range(each)]
    bucket, log = tmp_path / "bucket", tmp_path / "log"
    broker = started_soon(bucket, log)
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for done in admin.create_topics([NewTopic(name, each, 1) for name in topics]).values():
            done.result(60)
        write_to_each(broker.bootstrap, places, 10 * RATE)
        assert broker.stop() == 0
        broker = started_soon(bucket, log)
        one, many = (wal_objects_of(broker, to) for to in (places[:1] * PARTITIONS, places))
        broker.kill()
        broker = started_soon(bucket, log)
        # Whatever the partitions, what comes together is written together.
        assert many < 1.25 * one < 0.5 * PARTITIONS
        time.sleep(3)
        before, began = Figures(broker), time.monotonic()
        time.sleep(6)
        after, seconds = Figures(broker), time.monotonic() - began
        assert (after.cpu_seconds - before.cpu_seconds) / seconds < 0.05
        assert (after.store_requests - before.store_requests) / seconds <= 2
    finally:
        broker.kill()


async def test_the_second_process_of_a_node_ends_the_first(tmp_path: Path) -> None:
    settings = Settings(
        cluster=ClusterSettings(poll_ms=100),
        maintenance=MaintenanceSettings(interval_ms=100, gc_interval_ms=100),
    )
    first = await started(tmp_path, settings)
    await first.topics.create("t", 1)
    topic = first.cluster.state.topic("t")
    assert topic is not None
    await append(first, ["a"], timestamp=runtime.now_ms()).commit.wait()
    told: list[NeveError] = []
    upkeep = BackgroundLoops(first, settings, on_fenced=told.append)
    upkeep.start()
    second = await started(tmp_path, settings)
    await take_over(second)
    async with runtime.deadline(10):
        while not told:
            await runtime.sleep(0.05)
    assert isinstance(told[0], FencedError)
    assert first.led.partitions == {}
    appended = append(second, ["b"], timestamp=runtime.now_ms())
    await appended.commit.wait()
    assert appended.base_offset == 1
    await upkeep.close()
    await first.abort()
    await second.close()
