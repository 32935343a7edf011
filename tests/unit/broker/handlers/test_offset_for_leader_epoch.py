from __future__ import annotations

from typing import Any

import pytest

from neve.broker.handlers import offset_for_leader_epoch
from neve.cluster.node import Node
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH as API
from neve.store.memory import MemoryStore
from support.broker_world import StandIn, ask, produce, second_epoch, start_broker, versions
from support.node_world import take_over

LOWEST, HIGHEST = API.min_version, API.max_version
_Request = API.Request


async def told(
    broker: StandIn,
    epoch: int,
    *,
    current: int = -1,
    name: str = "t",
    partition: int = 0,
    version: int = HIGHEST,
) -> Any:
    asked = _Request.Partition(
        partition=partition, current_leader_epoch=current, leader_epoch=epoch
    )
    topics = [_Request.Topic(topic=name, partitions=[asked])]
    answer = await ask(broker, offset_for_leader_epoch, API, version, topics=topics)
    (topic,) = answer.topics
    assert topic.topic == name
    (row,) = topic.partitions
    assert row.partition == partition
    return row


@pytest.mark.parametrize("version", versions(API))
async def test_an_epoch_ends_where_the_next_begins_and_the_last_at_the_end(version: int) -> None:
    broker = await second_epoch()
    await produce(broker, "t", 2)
    before = await told(broker, 0, current=1, version=version)
    assert (before.error_code, before.leader_epoch, before.end_offset) == (0, 0, 5)
    now = await told(broker, 1, current=1, version=version)
    assert (now.error_code, now.leader_epoch, now.end_offset) == (0, 1, 7)
    await broker.node.abort()


async def test_an_epoch_before_the_start_of_the_log_ends_where_the_log_begins() -> None:
    broker = await second_epoch()
    await produce(broker, "t", 2)
    await broker.node.leader("t", 0).move_start(6)
    before = await told(broker, 0)
    assert (before.error_code, before.leader_epoch, before.end_offset) == (0, 0, 6)
    await broker.node.abort()


async def test_an_epoch_that_has_not_been_has_no_end() -> None:
    broker = await second_epoch()
    row = await told(broker, 9)
    assert (row.error_code, row.leader_epoch, row.end_offset) == (0, -1, -1)
    await broker.node.abort()


@pytest.mark.parametrize("version", [LOWEST, HIGHEST])
@pytest.mark.parametrize(
    ("current", "code"),
    [
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (-2, ErrorCode.FENCED_LEADER_EPOCH),
        (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
async def test_a_client_with_another_view_of_the_leadership_is_refused(
    current: int, code: ErrorCode, version: int
) -> None:
    broker = await second_epoch()
    row = await told(broker, 0, current=current, version=version)
    assert (row.error_code, row.leader_epoch, row.end_offset) == (code, -1, -1)
    await broker.node.abort()


@pytest.mark.parametrize(
    ("name", "partition", "code"),
    [
        ("none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_a_partition_that_is_not_there_is_told_as_such(
    name: str, partition: int, code: ErrorCode
) -> None:
    broker = await start_broker({"t": 1})
    row = await told(broker, 0, name=name, partition=partition)
    assert row.error_code == code
    await broker.node.abort()


async def test_a_partition_that_another_leads_is_told_as_such() -> None:
    broker = await start_broker({"t": 1})
    broker.node.led.serving.clear()
    assert (await told(broker, 0)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await broker.node.abort()


async def test_a_deposed_leader_does_not_say_where_its_epoch_ends() -> None:
    """A consumer that has read further from the successor would take it for truncation."""
    broker = await second_epoch()
    other = await Node.start(MemoryStore(broker.bucket), broker.settings, node_id=8)
    await take_over(other)
    assert (await told(broker, 0)).end_offset == 5, "an epoch that is over stays as it was"
    for epoch in (1, 9):
        assert (await told(broker, epoch)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await other.abort()
    await broker.node.abort()
