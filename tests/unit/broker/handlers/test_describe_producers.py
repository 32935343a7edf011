from __future__ import annotations

from typing import Any

import pytest

from neve.broker.handlers import describe_producers
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.describe_producers import DESCRIBE_PRODUCERS
from support.broker_world import StandIn, ask, produce, start_broker
from support.node_world import TIMESTAMP


async def told(broker: StandIn, name: str = "t", index: int = 0) -> Any:
    asked = [DESCRIBE_PRODUCERS.Request.Topic(name=name, partition_indexes=[index])]
    answer = await ask(broker, describe_producers, DESCRIBE_PRODUCERS, 0, topics=asked)
    (topic,) = answer.topics
    assert topic.name == name
    (row,) = topic.partitions
    assert row.partition_index == index
    return row


async def test_the_producers_of_a_partition_are_told() -> None:
    broker = await start_broker({"t": 2})
    await produce(broker, "t", 3, producer_id=11, sequence=0)
    await produce(broker, "t", 2, producer_id=11, sequence=3)
    await produce(broker, "t", 1, producer_id=4, sequence=0)
    await produce(broker, "t", 1)
    row = await told(broker)
    assert (row.error_code, row.error_message) == (0, None)
    shown = [
        (each.producer_id, each.producer_epoch, each.last_sequence) for each in row.active_producers
    ]
    assert shown == [(4, 0, 0), (11, 0, 4)]
    for each in row.active_producers:
        assert (each.last_timestamp, each.current_txn_start_offset) == (TIMESTAMP, -1)
    assert (await told(broker, index=1)).active_producers == []
    await broker.node.abort()


@pytest.mark.parametrize(
    ("name", "index", "code"),
    [
        ("none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 2, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a b", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
async def test_a_partition_that_cannot_be_is_told_as_such(
    name: str, index: int, code: ErrorCode
) -> None:
    broker = await start_broker({"t": 2})
    row = await told(broker, name, index)
    assert (row.error_code, row.active_producers) == (code, [])
    assert row.error_message
    await broker.node.abort()


async def test_a_partition_that_another_leads_is_told_as_such() -> None:
    broker = await start_broker({"t": 1})
    broker.node.led.serving.clear()
    assert (await told(broker)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await broker.node.abort()
