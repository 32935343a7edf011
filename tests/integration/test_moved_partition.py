"""Real clients, two live brokers, and what moves from one to the other meanwhile."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import confluent_kafka
import pytest

from neve.broker.broker import Broker
from neve.broker.offsets_topic import OFFSETS_TOPIC
from support.node_world import release
from support.two_brokers import refresh, two_running_brokers

pytestmark = pytest.mark.slow
SECONDS = 20


def settings(broker: Broker, **more: Any) -> dict[str, Any]:
    address = f"{broker.advertised.host}:{broker.advertised.port}"
    return {"bootstrap.servers": address, "retry.backoff.ms": 50, "log_level": 0, **more}


def send(producer: confluent_kafka.Producer, partition: int) -> int:
    """Produce one record, and return its offset."""
    done: list[Any] = []
    producer.produce("t", b"v", partition=partition, on_delivery=lambda *said: done.append(said))
    assert producer.flush(SECONDS) == 0
    ((error, message),) = done
    assert error is None
    return int(message.offset())


def read(consumer: confluent_kafka.Consumer) -> int:
    """Return the offset of the next record."""
    ends_at = time.monotonic() + SECONDS
    while time.monotonic() < ends_at:
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None
            return int(message.offset())
    raise AssertionError("no record came")


@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_producer_follows_a_partition_without_metadata(
    idempotent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata stays as it was: only the refusal names the new leader."""
    async with two_running_brokers() as (one, two):
        for broker in (one, two):
            topic = broker.node.cluster.state.topic("t")
            assert topic is not None
            before = broker.cluster.partitions(topic, range(2))
            monkeypatch.setattr(broker.cluster, "partitions", lambda *_, before=before: before)
        about = {"enable.idempotence": idempotent, "linger.ms": 0}
        producer = confluent_kafka.Producer(settings(one, **about))
        assert await asyncio.to_thread(send, producer, 1) == 0
        await release(one.node, two.node, "t", 1)
        assert await asyncio.to_thread(send, producer, 1) == 1
        assert two.metrics.produce_batches == 1


async def test_a_group_follows_its_partitions_and_its_coordinator() -> None:
    about = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    async with two_running_brokers() as (one, two):
        await one.offsets_topic.ensure()
        await refresh(two)
        number = one.groups.partition_of("g")
        producer = confluent_kafka.Producer(settings(one, **{"linger.ms": 0}))
        consumer = confluent_kafka.Consumer(settings(one, **about))
        try:
            consumer.subscribe(["t"])
            for offset, (source, to) in enumerate([(one, two), (two, one), (one, two)]):
                assert await asyncio.to_thread(send, producer, 0) == offset
                assert await asyncio.to_thread(read, consumer) == offset
                await release(source.node, to.node, "t", 0)
                await release(source.node, to.node, OFFSETS_TOPIC, number)
                await asyncio.to_thread(consumer.commit, asynchronous=False)
            partition = confluent_kafka.TopicPartition("t", 0)
            (kept,) = await asyncio.to_thread(consumer.committed, [partition])
            assert kept.offset == 3
            assert consumer.assignment(), "it has stayed a member"
        finally:
            await asyncio.to_thread(consumer.close)
