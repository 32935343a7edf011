"""Creating, growing, configuring and looking up topics; producer ids."""

from __future__ import annotations

import dataclasses

import pytest

from neve import runtime
from neve.cluster.log import ClusterLog, NoTopicError, TopicExistsError
from neve.cluster.node import Node
from neve.cluster.producer_ids import BLOCK_IDS
from neve.cluster.topic_config import InvalidConfigError
from neve.cluster.topic_rules import PartitionCountError, TopicNameError
from neve.errors import FencedError, NeveError, UnavailableError
from neve.log.keys import cluster_log
from neve.log.partition import PartitionLog
from neve.settings import ClusterSettings, Settings
from support.node_world import (
    TOPIC,
    batch_of,
    send,
    small_settings,
    started,
    successor,
    take_over,
    topic_of,
)
from support.scripted_store import ScriptedStore, in_simulation, refuse

LIMITS = ClusterSettings(partitions_max=10, topic_partitions_max=6)


async def limited(store: ScriptedStore) -> Node:
    settings = dataclasses.replace(small_settings(), cluster=LIMITS)
    return await Node.start(store, settings, node_id=1, probe=False)


# --- creating


@in_simulation
async def test_a_topic_is_created_with_configs_that_its_logs_follow() -> None:
    node = await Node.start(ScriptedStore(), small_settings(), node_id=1, probe=False)
    topic = await node.topics.create("t", 2, {"segment.ms": "5000", "max.message.bytes": "99"})
    assert topic.configs == {"segment.ms": "5000", "max.message.bytes": "99"}
    assert node.leader("t", 1).config.max_message_bytes == 99
    await node.leader(topic.name, 0).append(batch_of(["a"])).commit.wait()
    await runtime.sleep(6)
    assert node.leader("t", 0).log.tiering_due()
    await node.close()


@in_simulation
async def test_what_is_refused_leaves_no_trace() -> None:
    store = ScriptedStore()
    node = await limited(store)
    await node.topics.create("a.b", 6)
    before = store.listed()
    for name, partitions, configs, error in (
        ("a.b", 1, {}, TopicExistsError),
        ("a_b", 1, {}, TopicNameError),
        ("a/b", 1, {}, TopicNameError),
        ("t", 0, {}, PartitionCountError),
        ("t", 7, {}, PartitionCountError),
        ("t", 5, {}, PartitionCountError),
        ("t", 1, {"retention.ms": "x"}, InvalidConfigError),
        ("t", 1, {"cleanup.policy": "compact"}, InvalidConfigError),
    ):
        with pytest.raises(error):
            await node.topics.create(name, partitions, configs)
    assert store.listed() == before
    assert len((await node.topics.create("t", 4)).partitions) == 4
    await node.close()


@in_simulation
async def test_names_that_metrics_cannot_tell_apart_may_follow_each_other() -> None:
    node = await limited(ScriptedStore())
    await node.topics.create("a.b", 1)
    with pytest.raises(TopicNameError, match=r"'a_b' collides with the topic 'a\.b'"):
        await node.topics.create("a_b", 1)
    await node.topics.delete("a.b")
    await node.topics.create("a_b", 1)
    await node.close()


@in_simulation
async def test_creating_many_partitions_asks_for_none_of_them() -> None:
    store = ScriptedStore()
    node = await Node.start(store, Settings(), node_id=1, probe=False)
    store.calls.clear()
    await node.topics.create("t", 2_000)
    assert len(node.led.partitions) == 2_000
    assert len(store.calls) < 20
    await node.close()


@in_simulation
async def test_the_leaders_of_a_new_topic_are_named_by_its_record() -> None:
    """Every broker that is named leads its share, without a request for each partition."""
    store = ScriptedStore()
    node = await Node.start(store, small_settings(), node_id=1, probe=False)
    other = await Node.start(store, small_settings(), node_id=2)
    await node.cluster.refresh()
    topic = await node.topics.create(TOPIC, 4)
    leaders = [row.leader for row in topic.partitions]
    assert sorted(leaders) == sorted([node.incarnation, other.incarnation] * 2)
    assert len(node.led.partitions) == 2
    await other.cluster.refresh()
    store.calls.clear()
    assert await other.takeover.lead_unled(other.takeover.unled()) == {}
    assert len(other.led.partitions) == 2
    assert len(store.calls) < 4, "there was nothing to recover"
    for number, leader in enumerate(leaders):
        owner = node if leader == node.incarnation else other
        assert await send(owner, ["a"], number) == 0
    await take_over(node)
    for number in range(4):
        assert await send(node, ["b"], number) == 1
    await node.abort()
    await other.abort()


# --- growing


@in_simulation
async def test_new_partitions_are_led_and_old_ones_go_on() -> None:
    store = ScriptedStore()
    node = await started(store)
    await send(node, ["a"])
    old = node.leader(TOPIC, 0).log
    assert len((await node.topics.add_partitions(TOPIC, 3)).partitions) == 3
    assert await send(node, ["b"], 2) == 0
    assert await send(node, ["c"], 0) == 1
    assert node.leader(TOPIC, 0).log is old
    await node.abort()
    new = await successor(store)
    assert [new.leader(TOPIC, at).log.next_offset for at in range(3)] == [2, 0, 1]
    await new.abort()


@in_simulation
async def test_a_topic_grows_and_only_within_its_limits() -> None:
    node = await limited(ScriptedStore())
    await node.topics.create("t", 2)
    await node.topics.create("u", 5)
    for total, reason in ((2, "is not more"), (1, "is not more"), (7, "1 to 6"), (6, "all topics")):
        with pytest.raises(PartitionCountError, match=reason):
            await node.topics.add_partitions("t", total)
    with pytest.raises(NoTopicError):
        await node.topics.add_partitions("none", 3)
    assert len((await node.topics.add_partitions("t", 5)).partitions) == 5
    await node.close()


@in_simulation
async def test_growing_with_a_lost_answer_grows_once() -> None:
    store = ScriptedStore()
    node = await started(store)
    number = node.cluster.view.position
    store.when("create", cluster_log().number(number), refuse(UnavailableError, after=True))
    await node.topics.add_partitions(TOPIC, 2)
    assert len(topic_of(node).partitions) == 2
    await node.close()


# --- configs


@in_simulation
async def test_configs_are_given_changed_and_taken_back() -> None:
    store = ScriptedStore()
    node = await started(store)
    leader = node.leader(TOPIC, 0)
    await node.topics.set_configs(TOPIC, {"retention.ms": "1", "segment.bytes": "2000"})
    assert leader.config.retention_ms == 1
    numbers = node.cluster.view.position
    await node.topics.set_configs(TOPIC, {"retention.ms": "1"})
    assert node.cluster.view.position == numbers, "nothing to change"
    topic = await node.topics.set_configs(TOPIC, {"retention.ms": "2"}, ["segment.bytes"])
    assert topic.configs == {"retention.ms": "2"}
    with pytest.raises(InvalidConfigError):
        await node.topics.set_configs(TOPIC, {"retention.ms": "x"})
    with pytest.raises(InvalidConfigError):
        await node.topics.set_configs(TOPIC, {}, ["no.such.config"])
    with pytest.raises(NoTopicError):
        await node.topics.set_configs("none", {})
    assert leader.config.retention_ms == 2
    await node.close()


@in_simulation
async def test_configs_that_another_process_sets_reach_the_logs() -> None:
    store = ScriptedStore()
    node = await started(store, small_settings(segment_bytes=10_000))
    await send(node, ["a" * 500] * 3)
    await ClusterLog(store).set_configs(TOPIC, {"segment.bytes": "1024"})
    assert not node.leader(TOPIC, 0).log.tiering_due()
    await node.cluster.refresh()
    assert node.leader(TOPIC, 0).log.tiering_due()
    await node.close()


# --- looking up


@in_simulation
async def test_look_ups() -> None:
    node = await started(ScriptedStore(), partitions=2)
    topic = topic_of(node)
    assert (
        node.cluster.state.topic(TOPIC) is node.cluster.state.topic_by_id(topic.id_bytes) is topic
    )
    assert node.cluster.state.topic("none") is None
    assert node.cluster.state.topic_by_id(bytes(16)) is None
    assert node.leader_of(topic.id_bytes, 1) is node.leader(TOPIC, 1)
    assert node.leader_of(topic.id_bytes, 2) is None
    await node.close()


@in_simulation
async def test_who_waits_for_a_deleted_topic_is_told() -> None:
    node = await started(ScriptedStore())
    leader = node.leader(TOPIC, 0)
    log = leader.log
    told: list[NeveError | None] = []

    def watcher(log: PartitionLog) -> None:
        told.append(log.closed)

    log.watch(watcher)
    await node.topics.delete(TOPIC)
    assert [type(error) for error in told] == [NoTopicError]
    assert node.leader_of(log.topic_id, 0) is None
    assert node.cluster.state.topic(TOPIC) is None
    with pytest.raises(NoTopicError, match="was deleted"):
        log.append(batch_of(["a"]))
    with pytest.raises(FencedError):
        assert leader.config is not None
    with pytest.raises(NoTopicError):
        await node.topics.delete(TOPIC)
    await node.close()


# --- producer ids


@in_simulation
async def test_producer_ids_are_never_given_out_twice() -> None:
    store = ScriptedStore()
    nodes = [await Node.start(store, Settings(), node_id=at, probe=False) for at in (1, 2)]
    before = nodes[0].cluster.view.position
    found = await runtime.gather(
        *(nodes[at % 2].producer_ids.next() for at in range(2 * BLOCK_IDS + 10))
    )
    assert len(set(found)) == len(found)
    await nodes[0].cluster.refresh()
    assert nodes[0].cluster.view.position <= before + 1 + 4  # a registration, two blocks each
    for node in nodes:
        await node.close()


@in_simulation
async def test_a_block_whose_answer_was_lost_is_used_all_the_same() -> None:
    store = ScriptedStore()
    node = await Node.start(store, Settings(), node_id=1, probe=False)
    number = node.cluster.view.position
    store.when("create", cluster_log().number(number), refuse(UnavailableError, after=True))
    assert [await node.producer_ids.next() for _ in range(3)] == [0, 1, 2]
    assert node.cluster.state.next_producer_id == BLOCK_IDS
    await node.close()


@in_simulation
async def test_a_process_that_was_superseded_gets_no_more_ids() -> None:
    store = ScriptedStore()
    node = await Node.start(store, Settings(), node_id=1, probe=False)
    other = await Node.start(store, Settings(), node_id=1)
    with pytest.raises(FencedError):
        await node.producer_ids.next()
    assert await other.producer_ids.next() == 0
    await node.abort()
    await other.abort()
