"""Every request that has a current_leader_epoch is checked by Kafka's rule (KIP-320)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest

from neve.broker.broker import Broker
from neve.protocol.codes import ErrorCode
from neve.protocol.messages import APIS
from support.node_world import release
from support.two_brokers import two_running_brokers
from support.wire import Wire

Ask: TypeAlias = Callable[[Wire, Broker, int, str, int, int], Awaitable[int]]


def versions(key: int, since: int) -> range:
    return range(since, APIS[key].max_version + 1)


async def fetch(wire: Wire, broker: Broker, version: int, name: str, index: int, epoch: int) -> int:
    request: Any = APIS[1].Request
    topic = broker.node.cluster.state.topic(name)
    part = request.Partition(
        partition=index, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1 << 20
    )
    row = request.Topic(
        topic=name, topic_id=b"?" * 16 if topic is None else topic.id_bytes, partitions=[part]
    )
    answer = await wire.ask(APIS[1], version, request(max_wait_ms=0, min_bytes=1, topics=[row]))
    return int(answer.responses[0].partitions[0].error_code)


async def list_offsets(
    wire: Wire, broker: Broker, version: int, name: str, index: int, epoch: int
) -> int:
    del broker
    request: Any = APIS[2].Request
    part = request.Partition(partition_index=index, current_leader_epoch=epoch, timestamp=-1)
    row = request.Topic(name=name, partitions=[part])
    answer = await wire.ask(APIS[2], version, request(replica_id=-1, topics=[row]))
    return int(answer.topics[0].partitions[0].error_code)


async def end_of_epoch(
    wire: Wire, broker: Broker, version: int, name: str, index: int, epoch: int
) -> int:
    del broker
    request: Any = APIS[23].Request
    part = request.Partition(partition=index, current_leader_epoch=epoch, leader_epoch=0)
    row = request.Topic(topic=name, partitions=[part])
    answer = await wire.ask(APIS[23], version, request(replica_id=-1, topics=[row]))
    return int(answer.topics[0].partitions[0].error_code)


APIS_WITH_EPOCHS: list[tuple[Ask, int, int]] = [
    (fetch, 1, 9),
    (list_offsets, 2, 4),
    (end_of_epoch, 23, 2),
]


@pytest.mark.parametrize(("ask", "key", "since"), APIS_WITH_EPOCHS)
async def test_the_epoch_of_a_client_is_compared_with_the_leader_s(
    ask: Ask, key: int, since: int
) -> None:
    async with two_running_brokers() as (one, two), Wire.to(two) as wire:
        await release(one.node, two.node, "t", 0)
        for version in versions(key, since):
            codes = {epoch: await ask(wire, two, version, "t", 0, epoch) for epoch in range(-3, 4)}
            fenced, unknown = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH
            assert codes == {-3: fenced, -2: fenced, -1: 0, 0: fenced, 1: 0, 2: unknown, 3: unknown}


@pytest.mark.parametrize(("ask", "key", "since"), APIS_WITH_EPOCHS)
async def test_a_broker_that_does_not_lead_the_partition_compares_nothing(
    ask: Ask, key: int, since: int
) -> None:
    async with two_running_brokers() as (one, two), Wire.to(one) as wire:
        await release(one.node, two.node, "t", 0)
        for version in versions(key, since):
            for epoch in (-1, 0, 1, 2):
                code = await ask(wire, one, version, "t", 0, epoch)
                assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                for name, index in (("t", 2), ("t", -1), ("none", 0)):
                    code = await ask(wire, one, version, name, index, epoch)
                    by_id = ask is fetch and version >= 13 and name == "none"
                    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    assert code == (ErrorCode.UNKNOWN_TOPIC_ID if by_id else unknown)
