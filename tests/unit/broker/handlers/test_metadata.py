from __future__ import annotations

import asyncio
from typing import Any

import pytest

from neve import runtime
from neve.broker.access import CLUSTER_OPERATIONS, NOT_ASKED_FOR, TOPIC_OPERATIONS
from neve.broker.handlers import metadata
from neve.cluster.node import Node
from neve.cluster.records import Expire
from neve.errors import UnavailableError
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.metadata import METADATA
from neve.store.memory import MemoryStore
from support.broker_world import ADVERTISED, NO_ID, NODE_ID, StandIn, ask, start_broker, versions

LOWEST, HIGHEST = METADATA.min_version, METADATA.max_version
_Wanted = METADATA.Request.Topic


async def told(broker: StandIn, version: int, *names: str, **more: Any) -> Any:
    topics = [_Wanted(name=name) for name in names]
    return await ask(broker, metadata, METADATA, version, topics=topics, **more)


@pytest.mark.parametrize("version", versions(METADATA))
async def test_a_topic_is_told_with_its_leader_in_every_version(version: int) -> None:
    broker = await start_broker({"t": 2})
    answer = await told(broker, version, "t")
    (listed,) = answer.brokers
    assert (listed.node_id, listed.host, listed.port) == (NODE_ID, *ADVERTISED)
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
    assert [part.partition_index for part in topic.partitions] == [0, 1]
    for part in topic.partitions:
        assert (part.error_code, part.leader_id) == (0, NODE_ID)
        assert part.replica_nodes == part.isr_nodes == [NODE_ID]
        assert part.offline_replicas == []
        assert part.leader_epoch == (0 if version >= 7 else -1)
    assert answer.controller_id == (NODE_ID if version >= 1 else -1)
    assert answer.cluster_id == (broker.node.cluster.state.cluster_id if version >= 2 else None)
    if version >= 10:
        assert topic.topic_id == broker.topic("t").id_bytes
    await broker.node.abort()


# --- which topics


async def test_all_topics_are_an_empty_list_in_version_0_and_null_since() -> None:
    broker = await start_broker({"b": 1, "a": 1})
    everything = await told(broker, 0)
    assert [topic.name for topic in everything.topics] == ["a", "b"]
    for version in versions(METADATA)[1:]:
        nothing = await told(broker, version)
        assert nothing.topics == []
        answer = await ask(broker, metadata, METADATA, version, topics=None)
        assert [topic.name for topic in answer.topics] == ["a", "b"]
    await broker.node.abort()


async def test_a_topic_asked_for_twice_is_told_once() -> None:
    broker = await start_broker({"t": 1})
    answer = await told(broker, HIGHEST, "t", "t")
    assert len(answer.topics) == 1
    await broker.node.abort()


async def test_a_topic_is_found_by_its_id() -> None:
    broker = await start_broker({"t": 1})
    wanted = [_Wanted(name=None, topic_id=broker.topic("t").id_bytes)]
    for version in (12, HIGHEST):
        answer = await ask(broker, metadata, METADATA, version, topics=wanted)
        assert (answer.topics[0].name, answer.topics[0].error_code) == ("t", 0)
    await broker.node.abort()


async def test_an_unknown_id_is_told_as_such_and_creates_nothing() -> None:
    broker = await start_broker()
    wanted = [_Wanted(name=None, topic_id=b"\x01" * 16)]
    answer = await ask(broker, metadata, METADATA, HIGHEST, topics=wanted)
    (topic,) = answer.topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert (topic.name, topic.topic_id, topic.partitions) == (None, b"\x01" * 16, [])
    assert broker.node.cluster.state.topics == {}
    await broker.node.abort()


@pytest.mark.parametrize("version", [10, 11])
async def test_ids_are_refused_in_the_versions_that_only_had_a_place_for_them(version: int) -> None:
    broker = await start_broker({"t": 1})
    wanted = [_Wanted(name=None, topic_id=broker.topic("t").id_bytes)]
    answer = await ask(broker, metadata, METADATA, version, topics=wanted)
    (topic,) = answer.topics
    assert (topic.error_code, topic.name) == (ErrorCode.INVALID_REQUEST, "")
    await broker.node.abort()


async def test_neither_name_nor_id_is_refused() -> None:
    broker = await start_broker()
    wanted = [_Wanted(name=None, topic_id=NO_ID)]
    answer = await ask(broker, metadata, METADATA, HIGHEST, topics=wanted)
    assert answer.topics[0].error_code == ErrorCode.INVALID_REQUEST
    await broker.node.abort()


async def test_the_broker_s_own_topics_are_internal() -> None:
    broker = await start_broker({"__consumer_offsets": 1, "_schemas": 1})
    answer = await ask(broker, metadata, METADATA, HIGHEST, topics=None)
    shown = {topic.name: topic.is_internal for topic in answer.topics}
    assert shown == {"__consumer_offsets": True, "_schemas": False}
    await broker.node.abort()


# --- creating on the way


@pytest.mark.parametrize("version", [LOWEST, HIGHEST])
async def test_a_topic_asked_for_by_name_is_created_and_told_at_once(version: int) -> None:
    broker = await start_broker(default_partitions=3)
    answer = await told(broker, version, "fresh")
    (topic,) = answer.topics
    assert (topic.error_code, len(topic.partitions)) == (0, 3)
    assert {part.error_code for part in topic.partitions} == {0}
    assert len(broker.topic("fresh").partitions) == 3
    await broker.node.abort()


@pytest.mark.parametrize("version", [4, HIGHEST])
async def test_nothing_is_created_where_the_client_does_not_allow_it(version: int) -> None:
    broker = await start_broker()
    answer = await told(broker, version, "t", allow_auto_topic_creation=False)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.node.cluster.state.topic("t") is None
    await broker.node.abort()


@pytest.mark.parametrize("version", [LOWEST, HIGHEST])
async def test_nothing_is_created_where_the_setting_does_not_allow_it(version: int) -> None:
    broker = await start_broker(auto_create=False)
    answer = await told(broker, version, "t")
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.node.cluster.state.topic("t") is None
    await broker.node.abort()


@pytest.mark.parametrize("may_create", [True, False])
@pytest.mark.parametrize("name", ["", ".", "..", "a b", "é", "x" * 250])
async def test_an_illegal_name_is_told_as_such(name: str, may_create: bool) -> None:
    broker = await start_broker()
    answer = await told(broker, HIGHEST, name, allow_auto_topic_creation=may_create)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert answer.topics[0].name == name
    await broker.node.abort()


async def test_a_name_too_like_another_is_not_created() -> None:
    broker = await start_broker({"a.b": 1})
    answer = await told(broker, HIGHEST, "a_b")
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    await broker.node.abort()


async def test_internal_topics_are_not_created_on_the_way() -> None:
    broker = await start_broker()
    answer = await told(broker, HIGHEST, "__consumer_offsets")
    (topic,) = answer.topics
    assert (topic.error_code, topic.is_internal) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True)
    assert broker.node.cluster.state.topic("__consumer_offsets") is None
    await broker.node.abort()


async def test_a_client_s_own_name_may_begin_with_underscores() -> None:
    broker = await start_broker()
    answer = await told(broker, HIGHEST, "__mine")
    (topic,) = answer.topics
    assert (topic.error_code, topic.is_internal) == (ErrorCode.NONE, False)
    await broker.node.abort()


async def test_many_that_ask_at_once_get_one_topic() -> None:
    broker = await start_broker()
    answers = await runtime.gather(*(told(broker, HIGHEST, "t") for _ in range(5)))
    assert len(broker.node.cluster.state.topics) == 1
    for answer in answers:
        (topic,) = answer.topics
        assert topic.error_code == 0
        assert topic.partitions[0].error_code in (0, ErrorCode.LEADER_NOT_AVAILABLE)
    assert any(answer.topics[0].partitions[0].error_code == 0 for answer in answers)
    await broker.node.abort()


async def test_a_store_that_fails_makes_a_topic_wait_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = await start_broker({"there": 1})

    async def fails(*_: object, **__: object) -> None:
        raise UnavailableError("meta/log", "it is down")

    monkeypatch.setattr(broker.node.topics, "create", fails)
    answer = await told(broker, HIGHEST, "there", "fresh")
    codes = {topic.name: ErrorCode(topic.error_code) for topic in answer.topics}
    assert codes["there"] is ErrorCode.NONE
    assert codes["fresh"].retriable
    await broker.node.abort()


# --- leaders


async def test_a_partition_that_nobody_leads_yet_has_no_leader() -> None:
    broker = await start_broker()
    await broker.node.cluster.create_topic("t", 1)  # created, and not led yet
    answer = await told(broker, HIGHEST, "t")
    (topic,) = answer.topics
    assert topic.error_code == 0
    (part,) = topic.partitions
    assert (part.error_code, part.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (part.replica_nodes, part.isr_nodes, part.offline_replicas) == (
        [NODE_ID],
        [],
        [NODE_ID],
    )
    await broker.node.abort()


async def test_another_live_broker_is_listed_and_leads_what_it_leads() -> None:
    broker = await start_broker({"t": 1})
    other = await Node.start(
        MemoryStore(broker.bucket),
        broker.settings,
        node_id=8,
        host="other.test",
        port=9192,
        rack="b",
    )
    await other.topics.create("theirs", 1)
    await broker.node.cluster.refresh()
    answer = await told(broker, HIGHEST, "theirs")
    assert [(each.node_id, each.host, each.port, each.rack) for each in answer.brokers] == [
        (NODE_ID, *ADVERTISED, None),
        (8, "other.test", 9192, "b"),
    ]
    (part,) = answer.topics[0].partitions
    assert (part.leader_id, part.leader_epoch) == (8, 0)
    assert part.isr_nodes == [8, NODE_ID], "the leader, and the broker that follows its stream"
    await other.abort()
    await broker.node.abort()


async def test_what_a_dead_broker_led_is_offline_until_somebody_leads_it() -> None:
    broker = await start_broker({"t": 1})
    other = await Node.start(MemoryStore(broker.bucket), broker.settings, node_id=8)
    await other.topics.create("theirs", 1)
    await broker.node.cluster.propose(lambda _: Expire(incarnation=other.incarnation))
    answer = await told(broker, HIGHEST, "theirs")
    (part,) = answer.topics[0].partitions
    assert (part.error_code, part.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert (part.isr_nodes, part.offline_replicas) == ([], [8])
    for node in (other, broker.node):
        await node.abort()


async def test_a_node_without_an_address_is_no_broker() -> None:
    broker = await start_broker()
    job = await Node.start(MemoryStore(broker.bucket), broker.settings, node_id=9)
    await broker.node.cluster.refresh()
    answer = await told(broker, HIGHEST)
    assert [each.node_id for each in answer.brokers] == [NODE_ID]
    await job.abort()
    await broker.node.abort()


async def test_a_broker_whose_stream_ended_leads_nothing() -> None:
    broker = await start_broker({"t": 1})
    broker.node.led.serving.clear()
    answer = await told(broker, HIGHEST, "t")
    assert answer.topics[0].partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    await broker.node.abort()


# --- authorized operations


async def test_operations_are_told_only_where_asked_for() -> None:
    broker = await start_broker({"t": 1})
    answer = await told(broker, 8, "t")
    assert answer.topics[0].topic_authorized_operations == NOT_ASKED_FOR
    assert answer.cluster_authorized_operations == NOT_ASKED_FOR
    wanted = {
        "include_topic_authorized_operations": True,
        "include_cluster_authorized_operations": True,
    }
    answer = await told(broker, 8, "t", **wanted)
    assert answer.topics[0].topic_authorized_operations == TOPIC_OPERATIONS
    assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS
    await broker.node.abort()


async def test_others_have_their_turn_while_many_topics_are_looked_up() -> None:
    broker = await start_broker({})
    answer = asyncio.ensure_future(
        told(broker, 9, *(f"no-{at}" for at in range(10_000)), allow_auto_topic_creation=False)
    )
    turns = 0
    while not answer.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 30
    assert {topic.error_code for topic in answer.result().topics} == {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    await broker.node.abort()
