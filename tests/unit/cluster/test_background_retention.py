"""Retention and garbage collection by background loops."""

from __future__ import annotations

import dataclasses

from neve import runtime
from neve.cluster.node import Node
from neve.cluster.records import SetConfigs
from neve.log.keys import segment_prefix, topic_prefix
from neve.runtime.context import world
from neve.settings import ClusterSettings, MaintenanceSettings, Settings
from support.background import segments, send, upkeep
from support.node_world import (
    TOPIC,
    batch_of,
    small_settings,
    started,
    take_over,
    topic_of,
    values_of,
)
from support.scripted_store import ScriptedStore, in_simulation


def retention_settings(check_ms: int = 1_000) -> Settings:
    upkeep = MaintenanceSettings(retention_check_ms=check_ms, gc_interval_ms=1_000)
    return dataclasses.replace(small_settings(), maintenance=upkeep)


@in_simulation
async def test_segments_go_when_their_time_has_come_and_their_objects_too(
    store: ScriptedStore,
) -> None:
    node = await started(store, retention_settings())
    await node.topics.set_configs(TOPIC, {"retention.ms": "60000"})
    async with upkeep(node, retention_settings()):
        for _ in range(3):
            await send(node, ["a" * 500])
            await runtime.sleep(19)
        assert len(segments(store, node)) == 3
        asked = len([call for call in store.calls if call.key.startswith("topics/")])
        await runtime.sleep(2)
        assert len([call for call in store.calls if call.key.startswith("topics/")]) == asked
        await runtime.sleep(5)
        assert len(segments(store, node)) == 2
        assert node.leader(TOPIC, 0).log.start_offset == 1
        await runtime.sleep(60)
        assert segments(store, node) == []


@in_simulation
async def test_records_expire_though_they_were_never_tiered(store: ScriptedStore) -> None:
    node = await started(store, retention_settings())
    await node.topics.set_configs(TOPIC, {"retention.ms": "5000"})
    async with upkeep(node, retention_settings()):
        await runtime.sleep(30)
        await send(node, ["old"])
        await runtime.sleep(3)
        await send(node, ["new"])
        await runtime.sleep(3)
        assert await values_of(store) == ["new"]
        await runtime.sleep(4)
        assert await values_of(store) == []
        assert await send(node, ["next"]) == 2


@in_simulation
async def test_a_log_that_grows_past_its_size_shrinks_but_not_at_every_segment(
    store: ScriptedStore,
) -> None:
    settings = retention_settings(check_ms=10_000)
    node = await started(store, settings)
    await node.topics.set_configs(TOPIC, {"retention.bytes": "2000", "retention.ms": "-1"})
    async with upkeep(node, settings):
        starts = set()
        for _ in range(40):
            await send(node, ["a" * 500])
            await runtime.sleep(0.5)
            starts.add(node.leader(TOPIC, 0).log.start_offset)
        assert len(starts) <= 4
        await runtime.sleep(15)
        assert 3 <= len(segments(store, node)) <= 4


@in_simulation
async def test_a_log_is_kept_small_though_the_wall_clock_was_set_back(
    store: ScriptedStore,
) -> None:
    real = world.get()
    ahead_seconds = 30 * 86_400.0
    world.set(dataclasses.replace(real, wall=lambda: real.wall() + ahead_seconds))
    node = await started(store, retention_settings())
    await node.topics.set_configs(TOPIC, {"retention.bytes": "2000", "retention.ms": "-1"})
    async with upkeep(node, retention_settings()):
        for _ in range(20):
            await send(node, ["a" * 500])
            await runtime.sleep(1)
        start = node.leader(TOPIC, 0).log.start_offset
        assert start > 0, "retention ran while the clock was ahead"
        ahead_seconds = 0.0
        for _ in range(20):
            await send(node, ["a" * 500])
            await runtime.sleep(1)
        await runtime.sleep(5)
        assert node.leader(TOPIC, 0).log.start_offset > start + 15
        assert 3 <= len(segments(store, node)) <= 4


@in_simulation
async def test_retention_of_other_topics_goes_on_though_that_of_one_fails(
    store: ScriptedStore,
) -> None:
    node = await started(store, retention_settings())
    bad = await node.cluster.create_topic("bad", 1)
    soon = SetConfigs(bad.topic_id, {"retention.ms": "soon"})  # no broker writes this
    await node.cluster.propose(lambda state: None if state.topic("bad") != bad else soon)
    await node.cluster.create_topic("good", 1, {"retention.bytes": "0"})
    async with upkeep(node, retention_settings()):
        await take_over(node)
        for topic in ("bad", "good"):
            await node.leader(topic, 0).append(batch_of(["a" * 500])).commit.wait()
        await runtime.sleep(30)
        assert node.leader("bad", 0).log.tiered_offset == 1
        assert node.leader("bad", 0).log.start_offset == 0
        assert node.leader("good", 0).log.start_offset == 1


@in_simulation
async def test_changed_configs_are_followed(store: ScriptedStore) -> None:
    node = await started(store, retention_settings())
    async with upkeep(node, retention_settings()):
        await send(node, ["a" * 500])
        await runtime.sleep(100)
        assert len(segments(store, node)) == 1
        await node.topics.set_configs(TOPIC, {"retention.ms": "1000"})
        await runtime.sleep(5)
        assert segments(store, node) == []


@in_simulation
async def test_an_internal_topic_keeps_what_its_state_needs_and_no_more(
    store: ScriptedStore,
) -> None:
    node = await Node.start(store, retention_settings(), node_id=1, probe=False)
    topic = await node.topics.create("__consumer_offsets", 1, {"retention.ms": "1"})
    async with upkeep(node, retention_settings()):
        for at in range(6):
            batch = batch_of([f"{at}" * 500], timestamp=1)
            await node.leader(topic.name, 0).append(batch).commit.wait()
            await runtime.sleep(2)
        log = node.leader("__consumer_offsets", 0).log
        await runtime.sleep(30)
        keys = store.listed(segment_prefix(topic.name, topic.id_bytes, 0))
        assert log.tiered_offset == 6
        assert len([key for key in keys if key.endswith(".kfs")]) == 2
        assert log.start_offset == log.state_floor == 4


@in_simulation
async def test_a_deleted_topic_is_purged_in_the_background(store: ScriptedStore) -> None:
    """Soon, and not when what is doomed is collected."""
    settings = dataclasses.replace(
        retention_settings(),
        cluster=ClusterSettings(purge_delay_ms=60_000),
        maintenance=MaintenanceSettings(gc_interval_ms=3_600_000),
    )
    node = await started(store, settings)
    await send(node, ["a" * 500])
    async with upkeep(node, settings):
        await runtime.sleep(1)
        prefix = topic_prefix(TOPIC, topic_of(node).id_bytes)
        assert store.listed(prefix) != []
        await node.topics.delete(TOPIC)
        await runtime.sleep(2)
        assert store.listed(prefix) == []
        assert node.cluster.state.deleted
        await runtime.sleep(65)
        assert node.cluster.state.deleted == {}
