from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from neve.broker.admin.offsets import OffsetSpec
from neve.broker.handlers import list_offsets
from neve.cluster.node import Node
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.list_offsets import LIST_OFFSETS as API
from neve.store.memory import MemoryStore
from support.broker_world import (
    NOT_THERE,
    StandIn,
    ask,
    produce,
    second_epoch,
    start_broker,
    versions,
)
from support.node_world import take_over

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = OffsetSpec
EPOCHS_SINCE = 4
EARLIEST_PENDING_UPLOAD = -6
_Request = API.Request


async def earliest(broker: StandIn, **about: Any) -> Any:
    return await listed(broker, EARLIEST, **about)


async def listed(
    broker: StandIn,
    timestamp: int,
    *,
    epoch: int = -1,
    name: str = "t",
    partition: int = 0,
    version: int = API.max_version,
) -> Any:
    asked = _Request.Partition(
        partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp
    )
    topics = [_Request.Topic(name=name, partitions=[asked])]
    answer = await ask(broker, list_offsets, API, version, replica_id=-1, topics=topics)
    ((row,),) = (topic.partitions for topic in answer.topics)
    assert row.partition_index == partition
    return row


@pytest.mark.parametrize("version", versions(API))
async def test_a_client_that_tells_no_epoch_is_answered(version: int) -> None:
    broker = await second_epoch()
    row = await earliest(broker, version=version)
    assert (row.error_code, row.offset) == (0, 0)
    await broker.node.abort()


@pytest.mark.parametrize("version", range(EPOCHS_SINCE, API.max_version + 1))
@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (1, ErrorCode.NONE),
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (-2, ErrorCode.FENCED_LEADER_EPOCH),
        (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
async def test_a_client_with_another_view_of_the_leadership_is_refused(
    epoch: int, code: ErrorCode, version: int
) -> None:
    broker = await second_epoch()
    row = await earliest(broker, epoch=epoch, version=version)
    assert row.error_code == code
    assert row.offset == (0 if code == ErrorCode.NONE else -1)
    await broker.node.abort()


async def test_a_partition_that_is_named_twice_is_refused_and_no_other() -> None:
    broker = await start_broker({"t": 2})
    parts = [_Request.Partition(partition_index=at, timestamp=EARLIEST) for at in (0, 1)]
    topics = [
        _Request.Topic(name="t", partitions=parts),
        _Request.Topic(name="t", partitions=parts[:1]),
    ]
    answer = await ask(broker, list_offsets, API, API.max_version, replica_id=-1, topics=topics)
    rows = [
        (row.partition_index, row.error_code, row.offset)
        for each in answer.topics
        for row in each.partitions
    ]
    refused = (0, ErrorCode.INVALID_REQUEST, -1)
    assert rows == [refused, (1, ErrorCode.NONE, 0), refused]
    await broker.node.close()


@pytest.mark.parametrize(("name", "partition", "code"), NOT_THERE)
async def test_a_partition_that_is_not_there_is_told_as_such(
    name: str, partition: int, code: ErrorCode
) -> None:
    broker = await start_broker({"t": 1})
    row = await earliest(broker, name=name, partition=partition)
    assert (row.error_code, row.offset) == (code, -1)
    await broker.node.abort()


async def test_a_partition_that_another_leads_is_told_as_such() -> None:
    broker = await start_broker({"t": 1})
    broker.node.led.serving.clear()
    assert (await earliest(broker)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await broker.node.abort()


async def test_where_segments_end_is_told_by_the_times_of_tiered_logs() -> None:
    broker = await start_broker({"t": 1})
    await produce(broker, "t", 3)

    async def offsets() -> list[int]:
        rows = [await listed(broker, time) for time in (EARLIEST_LOCAL, LATEST_TIERED)]
        assert [row.error_code for row in rows] == [0, 0]
        return [row.offset for row in rows]

    assert await offsets() == [0, -1], "no segment has anything yet"
    assert await broker.node.leader("t", 0).log.tier()
    await produce(broker, "t", 2)
    assert await offsets() == [3, 2]
    row = await listed(broker, LATEST_TIERED)
    assert (row.timestamp, row.leader_epoch) == (-1, broker.node.leader("t", 0).log.epoch)
    refused = await listed(broker, EARLIEST_PENDING_UPLOAD)
    assert (refused.error_code, refused.offset) == (ErrorCode.UNSUPPORTED_VERSION, -1)
    await broker.node.abort()


@pytest.mark.parametrize(
    ("timestamp", "since"), [(MAX_TIMESTAMP, 7), (EARLIEST_LOCAL, 8), (LATEST_TIERED, 9)]
)
async def test_what_later_versions_may_ask_for_is_refused_to_those_before(
    timestamp: int, since: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def youngest(_: object) -> None:
        return None

    broker = await start_broker({"t": 1})
    reader = SimpleNamespace(max_timestamp=youngest)
    monkeypatch.setattr(broker, "reader", reader, raising=False)
    await produce(broker, "t", 3)
    refused = {
        version
        for version in versions(API)
        if (await listed(broker, timestamp, version=version)).error_code
        == ErrorCode.UNSUPPORTED_VERSION
    }
    assert refused == set(range(API.min_version, since))
    await broker.node.abort()


@pytest.mark.parametrize("timestamp", [MAX_TIMESTAMP, 5_000, LATEST])
async def test_a_deposed_leader_does_not_say_what_its_successor_knows_better(
    timestamp: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that is answered -1 goes on at the end, and skips what the successor has."""

    async def none(*_: object) -> None:
        return None

    broker = await start_broker({"t": 1})
    reader = SimpleNamespace(max_timestamp=none, offset_for_time=none)
    monkeypatch.setattr(broker, "reader", reader, raising=False)
    assert (await listed(broker, timestamp)).error_code == ErrorCode.NONE
    other = await Node.start(MemoryStore(broker.bucket), broker.settings, node_id=8)
    await take_over(other)
    row = await listed(broker, timestamp)
    assert (row.error_code, row.offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    await other.abort()
    await broker.node.abort()


async def test_the_first_record_of_a_time_needs_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    async def found(*_: object) -> tuple[int, int]:
        return 1, 1_000

    broker = await start_broker({"t": 1})
    reader = SimpleNamespace(offset_for_time=found)
    monkeypatch.setattr(broker, "reader", reader, raising=False)
    monkeypatch.setattr(broker, "still_leading", None)
    assert (await listed(broker, 1_000)).offset == 1
    await broker.node.abort()
