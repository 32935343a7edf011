from __future__ import annotations

from typing import Any

import pytest

from neve.broker.handlers import delete_records
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.delete_records import DELETE_RECORDS
from support.broker_world import NOT_THERE, StandIn, ask, produce, start_broker, versions

LOWEST, HIGHEST = DELETE_RECORDS.min_version, DELETE_RECORDS.max_version
_Request = DELETE_RECORDS.Request


async def told(
    broker: StandIn, offset: int, *, name: str = "t", partition: int = 0, version: int = HIGHEST
) -> Any:
    rows = [_Request.Partition(partition_index=partition, offset=offset)]
    topics = [_Request.Topic(name=name, partitions=rows)]
    answer = await ask(broker, delete_records, DELETE_RECORDS, version, topics=topics)
    (topic,) = answer.topics
    assert topic.name == name
    (row,) = topic.partitions
    assert row.partition_index == partition
    return row


@pytest.mark.parametrize("version", versions(DELETE_RECORDS))
async def test_the_log_starts_where_it_was_asked_to(version: int) -> None:
    broker = await start_broker({"t": 1})
    await produce(broker, "t", 5)
    row = await told(broker, 3, version=version)
    assert (row.error_code, row.low_watermark) == (0, 3)
    assert broker.node.leader("t", 0).log.start_offset == 3
    await broker.node.abort()


async def test_minus_one_stands_for_the_high_watermark() -> None:
    broker = await start_broker({"t": 1})
    await produce(broker, "t", 5)
    row = await told(broker, -1)
    assert (row.error_code, row.low_watermark) == (0, 5)
    await broker.node.abort()


async def test_what_is_gone_already_stays_gone() -> None:
    broker = await start_broker({"t": 1})
    await produce(broker, "t", 5)
    await told(broker, 4)
    row = await told(broker, 2)
    assert (row.error_code, row.low_watermark) == (0, 4)
    await broker.node.abort()


@pytest.mark.parametrize("version", [LOWEST, HIGHEST])
@pytest.mark.parametrize("offset", [6, -2, 2**62])
async def test_an_offset_that_is_not_there_is_refused(offset: int, version: int) -> None:
    broker = await start_broker({"t": 1})
    await produce(broker, "t", 5)
    row = await told(broker, offset, version=version)
    assert (row.error_code, row.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert broker.node.leader("t", 0).log.start_offset == 0
    await broker.node.abort()


@pytest.mark.parametrize(
    ("name", "partition", "code"),
    [*NOT_THERE, ("__consumer_offsets", 0, ErrorCode.INVALID_TOPIC_EXCEPTION)],
)
async def test_a_partition_that_cannot_be_is_told_as_such(
    name: str, partition: int, code: ErrorCode
) -> None:
    broker = await start_broker({"t": 1, "__consumer_offsets": 1})
    row = await told(broker, 0, name=name, partition=partition)
    assert (row.error_code, row.low_watermark) == (code, -1)
    await broker.node.abort()


async def test_a_partition_that_another_leads_is_told_as_such() -> None:
    broker = await start_broker({"t": 1})
    broker.node.led.serving.clear()
    row = await told(broker, 0)
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await broker.node.abort()
