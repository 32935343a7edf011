"""Real brokers in three racks on a folder, and librdkafka's consumers that name their racks."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from support.brokers import RunningBroker, start_broker

pytestmark = pytest.mark.slow

SECONDS = 60
TOPIC, PARTITIONS = "t", 6
RACKS = {1: "a", 2: "b", 3: "c"}
QUICK = {
    "cluster_session_ms": 3_000,
    "cluster_follow_ms": 500,
    "cluster_rebalance_delay_ms": 500,
    "wal_tail_objects": 40,
}


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[dict[int, RunningBroker]]:
    found: dict[int, RunningBroker] = {}
    try:
        for node_id, rack in RACKS.items():
            found[node_id] = start_broker(
                tmp_path / "bucket",
                tmp_path / f"{node_id}.log",
                node_id=node_id,
                broker_rack=rack,
                **QUICK,
            )
        yield found
    finally:
        for broker in found.values():
            broker.kill()


def settings(brokers: dict[int, RunningBroker], **more: Any) -> dict[str, Any]:
    alive = [each.bootstrap for each in brokers.values() if each.process.poll() is None]
    return {"bootstrap.servers": ",".join(alive), "log_level": 0, **more}


def metric(broker: RunningBroker, name: str) -> list[float]:
    with urllib.request.urlopen(f"http://{broker.http}/metrics") as page:
        text = page.read().decode()
    families = text_string_to_metric_families(text)
    return [row.value for each in families for row in each.samples if row.name == name]


def until(happened: Callable[[], object]) -> None:
    ends_at = time.monotonic() + SECONDS
    while not happened():
        assert time.monotonic() < ends_at, "it has not happened in time"
        time.sleep(0.1)


class Writer:
    """Produces numbered records and knows which were acknowledged."""

    def __init__(self, brokers: dict[int, RunningBroker]) -> None:
        about = {"enable.idempotence": True, "linger.ms": 0, "message.timeout.ms": SECONDS * 1000}
        self._producer = confluent_kafka.Producer(settings(brokers, **about))
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self._count = 0

    def write(self, count: int) -> None:
        for _ in range(count):
            value = b"%d" % self._count
            self._producer.produce(
                TOPIC,
                value,
                partition=self._count % PARTITIONS,
                on_delivery=lambda error, message, value=value: self._done(error, message, value),
            )
            self._count += 1
            self._producer.poll(0.001)
        assert self._producer.flush(SECONDS) == 0

    def _done(self, error: Any, message: Any, value: bytes) -> None:
        assert error is None, error
        self.acknowledged[message.partition(), message.offset()] = value


class Reader:
    """A consumer of all partitions in one rack. What it has read never changes."""

    def __init__(self, brokers: dict[int, RunningBroker], rack: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            settings(
                brokers,
                **{
                    "group.id": f"rack-{rack}",
                    "client.rack": rack,
                    "auto.offset.reset": "error",
                    "enable.auto.commit": False,
                    "fetch.wait.max.ms": 200,
                    "topic.metadata.refresh.interval.ms": 2_000,
                },
            )
        )
        self._consumer.assign(
            [confluent_kafka.TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
        )
        self.read: dict[tuple[int, int], bytes] = {}
        self.rack = rack

    def read_up_to(self, writer: Writer) -> None:
        ends_at = time.monotonic() + SECONDS
        while missing := writer.acknowledged.keys() - self.read.keys():
            assert time.monotonic() < ends_at, (self.rack, sorted(missing)[:5], len(missing))
            message = self._consumer.poll(0.2)
            if message is None:
                continue
            assert message.error() is None, message.error()
            at = message.partition(), message.offset()
            assert at not in self.read, "an offset is read once"
            self.read[at] = message.value()
        assert self.read == writer.acknowledged

    def close(self) -> None:
        self._consumer.close()


def test_consumers_read_in_their_racks_and_read_on_when_leaders_die(
    brokers: dict[int, RunningBroker],
) -> None:
    admin = AdminClient(settings(brokers))
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(SECONDS)
    writer = Writer(brokers)
    writer.write(300)
    readers = [Reader(brokers, rack) for rack in RACKS.values()]
    for reader in readers:
        reader.read_up_to(writer)
    # Each leads a third, and its followers are in the two other racks.
    topic = admin.list_topics(TOPIC, timeout=SECONDS).topics[TOPIC]
    leaders = [row.leader for row in topic.partitions.values()]
    assert sorted(set(leaders)) == [1, 2, 3]
    for row in topic.partitions.values():
        assert (row.replicas[0], sorted(row.replicas), sorted(row.isrs)) == (
            row.leader,
            [1, 2, 3],
            [1, 2, 3],
        )
    for _ in range(5):
        writer.write(120)
        for reader in readers:
            reader.read_up_to(writer)
    for node_id, broker in brokers.items():
        others = sum(leader != node_id for leader in leaders)
        assert metric(broker, "neve_replica_partitions_open") == [others]
        assert len(metric(broker, "neve_replica_lag_objects")) == 2
        assert metric(broker, "neve_replica_cached_bytes")[0] > 0
        assert set(metric(broker, "kafka_topic_partition_replicas")) == {3.0}
        assert set(metric(broker, "kafka_topic_partition_in_sync_replica")) == {3.0}
        until(lambda broker=broker: metric(broker, "neve_replica_lag_objects") == [0.0, 0.0])
    brokers[2].kill()
    writer.write(240)
    for reader in readers:
        reader.read_up_to(writer)
    for node_id in (1, 3):
        assert "is damaged" not in brokers[node_id].log
    for reader in readers:
        reader.close()
