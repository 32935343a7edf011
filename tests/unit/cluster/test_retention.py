"""Retention as a topic's settings say it, and DeleteRecords."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.cluster.node import Node
from neve.cluster.records import SetConfigs
from neve.errors import InvalidError
from neve.store.memory import MemoryStore
from support.node_world import TOPIC, send, small_settings, started, topic_of, values_of
from support.scripted_store import in_simulation

HOUR_MS = 3_600_000


async def tiered_node(store: MemoryStore, *, ages_ms: list[int]) -> Node:
    """A node with one segment for each age, and one record in the tail."""
    node = await started(store, small_settings(segment_bytes=60))
    for age_ms in ages_ms:
        await send(node, [f"{age_ms} ms old"], timestamp=runtime.now_ms() - age_ms)
        await node.leader(TOPIC, 0).log.tier()
    await send(node, ["tail"], timestamp=runtime.now_ms())
    return node


async def configure(node: Node, **values: str) -> None:
    topic = topic_of(node)
    change = SetConfigs(topic.topic_id, {key.replace("_", "."): v for key, v in values.items()})
    await node.cluster.propose(
        lambda state: None if state.topics[topic.topic_id].configs == change.values else change
    )


@in_simulation
async def test_segments_without_a_record_young_enough_go() -> None:
    store = MemoryStore()
    node = await tiered_node(store, ages_ms=[5 * HOUR_MS, 3 * HOUR_MS, HOUR_MS])
    await configure(node, retention_ms=str(2 * HOUR_MS))
    await node.leader(TOPIC, 0).retain()
    assert await values_of(store) == [f"{HOUR_MS} ms old", "tail"]
    assert node.leader(TOPIC, 0).log.manifest.state.start == 2
    assert await node.collect() > 0
    assert await values_of(store) == [f"{HOUR_MS} ms old", "tail"]
    await node.abort()


@in_simulation
async def test_the_oldest_segments_go_until_the_log_fits() -> None:
    store = MemoryStore()
    node = await tiered_node(store, ages_ms=[30, 20, 10])
    log = node.leader(TOPIC, 0).log
    newest = (await log.manifest.segments())[-1]
    await configure(node, retention_bytes=str(newest.bytes + log.tail_bytes), retention_ms="-1")
    await node.leader(TOPIC, 0).retain()
    assert await values_of(store) == ["10 ms old", "tail"]
    await node.abort()


@in_simulation
async def test_without_settings_a_week_is_kept() -> None:
    store = MemoryStore()
    node = await tiered_node(store, ages_ms=[8 * 24 * HOUR_MS, 6 * 24 * HOUR_MS])
    await node.leader(TOPIC, 0).retain()
    assert await values_of(store) == [f"{6 * 24 * HOUR_MS} ms old", "tail"]
    await node.abort()


@in_simulation
async def test_a_setting_that_is_no_number_is_refused_by_name() -> None:
    node = await tiered_node(MemoryStore(), ages_ms=[1])
    await configure(node, retention_ms="a week")
    with pytest.raises(InvalidError, match=r"retention\.ms = 'a week'"):
        await node.leader(TOPIC, 0).retain()
    await node.abort()


@in_simulation
async def test_records_are_deleted_up_to_an_offset_and_not_beyond_the_end() -> None:
    store = MemoryStore()
    node = await tiered_node(store, ages_ms=[3, 2, 1])
    await node.leader(TOPIC, 0).move_start(2)
    assert await values_of(store) == ["1 ms old", "tail"]
    await node.leader(TOPIC, 0).move_start(4)
    assert await values_of(store) == []
    with pytest.raises(InvalidError, match="cannot start at 5"):
        await node.leader(TOPIC, 0).move_start(5)
    await node.abort()
