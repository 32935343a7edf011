"""Two live brokers on one bucket, each of which leads some partitions."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from neve import runtime
from neve.broker.handlers import (
    delete_records,
    describe_log_dirs,
    describe_producers,
    find_coordinator,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
)
from neve.broker.offsets_topic import OFFSETS_TOPIC
from neve.coordinator.group_errors import GroupError
from neve.coordinator.group_messages import JoinRequest
from neve.coordinator.offset_requests import CommitRequest, OffsetToCommit
from neve.log.partition import PartitionLog
from neve.protocol.codes import ErrorCode
from neve.protocol.messages import APIS
from support.broker_world import produce
from support.node_world import release
from support.two_brokers import (
    GROUPS,
    GroupBroker,
    call,
    draining,
    groups_by_partition,
    two_brokers,
    until_loaded,
)

NOT_LED = ErrorCode.NOT_LEADER_OR_FOLLOWER


async def coordinator(broker: GroupBroker, *groups: str) -> list[tuple[int, str]]:
    answer = await call(broker, find_coordinator, key_type=0, coordinator_keys=list(groups))
    assert {row.error_code for row in answer.coordinators} == {ErrorCode.NONE}
    return [(row.node_id, row.host) for row in answer.coordinators]


async def commit(broker: GroupBroker, group: str, offset: int) -> GroupError | None:
    request = CommitRequest(group_id=group, offsets=[OffsetToCommit("t", 0, offset)])
    answers = await broker.groups.commit_offsets(request)
    return answers["t", 0]


async def committed(broker: GroupBroker, group: str) -> tuple[GroupError | None, int | None]:
    found = await broker.groups.fetch_offsets(group, [("t", 0)], broker.node.writer.still_leading)
    return found.error, found.offsets["t", 0].offset if found.offsets else None


# --- partitions


async def test_each_broker_serves_its_own_partitions_only() -> None:
    async with two_brokers() as (one, two):
        assert await produce(one, "t", 3, partition=0) == 0
        assert await produce(two, "t", 3, partition=1) == 0
        for broker, own in ((one, 0), (two, 1)):
            request = APIS[2].Request
            parts = [request.Partition(partition_index=at, timestamp=-1) for at in (0, 1)]
            topics = [request.Topic(name="t", partitions=parts)]
            answer = await call(broker, list_offsets, replica_id=-1, topics=topics)
            rows = {row.partition_index: row for row in answer.topics[0].partitions}
            assert (rows[own].error_code, rows[own].offset) == (ErrorCode.NONE, 3)
            assert (rows[1 - own].error_code, rows[1 - own].offset) == (NOT_LED, -1)


async def test_both_brokers_name_the_same_leaders() -> None:
    async with two_brokers() as (one, two):
        for broker in (one, two):
            answer = await call(broker, metadata, topics=[APIS[3].Request.Topic(name="t")])
            found = [
                (row.partition_index, row.leader_id, row.error_code)
                for row in answer.topics[0].partitions
            ]
            assert found == [(0, 1, ErrorCode.NONE), (1, 2, ErrorCode.NONE)]


async def test_every_api_about_one_partition_refuses_what_another_broker_leads() -> None:
    async with two_brokers() as (one, _):
        request = APIS[21].Request
        parts = [request.Partition(partition_index=1, offset=0)]
        topics = [request.Topic(name="t", partitions=parts)]
        answer = await call(one, delete_records, topics=topics, timeout_ms=1_000)
        assert answer.topics[0].partitions[0].error_code == NOT_LED

        request = APIS[23].Request
        parts = [request.Partition(partition=1, current_leader_epoch=-1, leader_epoch=0)]
        topics = [request.Topic(topic="t", partitions=parts)]
        answer = await call(one, offset_for_leader_epoch, replica_id=-1, topics=topics)
        assert answer.topics[0].partitions[0].error_code == NOT_LED

        topics = [APIS[61].Request.Topic(name="t", partition_indexes=[1])]
        answer = await call(one, describe_producers, topics=topics)
        assert answer.topics[0].partitions[0].error_code == NOT_LED

        answer = await call(one, describe_log_dirs, topics=None)
        rows = {row.name: row.partitions for row in answer.results[0].topics}
        assert [row.partition_index for row in rows["t"]] == [0]


async def test_a_partition_that_moves_is_lost_by_one_broker_and_served_by_the_other() -> None:
    async with two_brokers() as (one, two):
        await produce(one, "t", 3)
        async with draining(one.node, 2):
            await one.node.topics.create("kept", 1)
        leader = one.node.leader("t", 0)
        await release(one.node, two.node, "t", 0)
        assert not leader.is_leading
        assert leader not in one.node.queues.tiering
        assert await produce(two, "t", 2) == 3
        assert await produce(one, "kept", 1) == 0, "the other partitions are served on"
        assert one.node.ended is None


# --- groups


async def test_the_coordinator_of_a_group_is_the_leader_of_its_partition() -> None:
    async with two_brokers() as (one, two):
        group = groups_by_partition(one)
        for broker in (one, two):
            found = await coordinator(broker, group[0], group[1])
            assert found == [(1, "host1"), (1, "host1")]
        await release(one.node, two.node, OFFSETS_TOPIC, 1)
        for broker in (one, two):
            found = await coordinator(broker, group[0], group[1])
            assert found == [(1, "host1"), (2, "host2")]


async def test_groups_follow_their_partition_to_its_leader_and_back() -> None:
    async with two_brokers() as (one, two):
        group = groups_by_partition(one)
        for number in (0, 1):
            assert await commit(one, group[number], 10 + number) is None
        assert await commit(two, group[1], 99) is GroupError.NOT_COORDINATOR
        assert await committed(two, group[1]) == (GroupError.NOT_COORDINATOR, None)

        await release(one.node, two.node, OFFSETS_TOPIC, 1)
        await until_loaded(two)
        assert await committed(one, group[1]) == (GroupError.NOT_COORDINATOR, None)
        assert await commit(one, group[1], 99) is GroupError.NOT_COORDINATOR
        assert one.groups.describe(group[1])[0] is GroupError.NOT_COORDINATOR
        assert await committed(one, group[0]) == (None, 10)
        assert await committed(two, group[1]) == (None, 11)
        assert await committed(two, group[0]) == (GroupError.NOT_COORDINATOR, None)
        assert await commit(two, group[1], 21) is None

        await release(two.node, one.node, OFFSETS_TOPIC, 1)
        await until_loaded(one)
        assert await committed(two, group[1]) == (GroupError.NOT_COORDINATOR, None)
        assert await committed(one, group[1]) == (None, 21)


async def test_a_member_that_waits_is_sent_to_the_new_coordinator() -> None:
    async with two_brokers() as (one, two):
        name = groups_by_partition(one)[1]
        settings = dataclasses.replace(GROUPS, initial_rebalance_delay_ms=60_000)
        one.groups.configure(settings)
        request = JoinRequest(
            group_id=name,
            member_id="",
            client_id="c",
            client_host="/h",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(("range", b""),),
        )
        waiting = runtime.spawn(one.groups.join(request))
        await runtime.sleep(0.01)
        assert not waiting.done()
        await release(one.node, two.node, OFFSETS_TOPIC, 1)
        assert (await waiting).error is GroupError.NOT_COORDINATOR


async def test_a_partition_lost_while_its_groups_load_is_not_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()
    load_state = PartitionLog.load_state

    async def slow(log: PartitionLog) -> dict[bytes, bytes]:
        began.set()
        await go_on.wait()
        return await load_state(log)

    async with two_brokers() as (one, two):
        name = groups_by_partition(one)[1]
        with monkeypatch.context() as patched:
            patched.setattr(PartitionLog, "load_state", slow)
            await release(one.node, two.node, OFFSETS_TOPIC, 1)
            await began.wait()
        assert await commit(two, name, 1) is GroupError.LOADING
        assert await committed(two, name) == (GroupError.LOADING, None)
        assert two.groups.list_groups() == (GroupError.LOADING, [])
        await release(two.node, one.node, OFFSETS_TOPIC, 1)
        go_on.set()
        await until_loaded(one)
        await runtime.sleep(0.01)
        assert await committed(two, name) == (GroupError.NOT_COORDINATOR, None)
        assert await commit(one, name, 1) is None


async def test_a_load_that_was_cancelled_does_not_end_a_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def stubborn(_: PartitionLog) -> dict[bytes, bytes]:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await go_on.wait()
        raise AssertionError

    async with two_brokers() as (one, two):
        name = groups_by_partition(one)[1]
        with monkeypatch.context() as patched:
            patched.setattr(PartitionLog, "load_state", stubborn)
            await release(one.node, two.node, OFFSETS_TOPIC, 1)
            await began.wait()
        await release(two.node, one.node, OFFSETS_TOPIC, 1)
        await release(one.node, two.node, OFFSETS_TOPIC, 1)
        await until_loaded(two)
        go_on.set()
        await runtime.sleep(0.01)
        assert await commit(two, name, 1) is None
