"""A node that dies at any call to the store, and the start after it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from neve import runtime
from neve.cluster.node import Node
from neve.errors import (
    DamagedError,
)
from neve.log.keys import cluster_log
from neve.log.manifest.records import Skip
from neve.settings import Settings
from neve.store.memory import MemoryBucket, MemoryStore
from support.node_world import (
    TOPIC,
    CrashingStore,
    append,
    crash_everywhere,
    live,
    send,
    small_settings,
    started,
    successor,
    take_over,
    topic_of,
    values_of,
)
from support.scripted_store import ScriptedStore, in_simulation

Workload = Callable[[Node, list[tuple[int, str]]], Coroutine[Any, Any, None]]


CRASH_SETTINGS = small_settings(
    segment_bytes=200, checkpoint_numbers=2, tail_objects=3, cache_bytes=300
)


async def everything(node: Node, told: list[tuple[int, str]]) -> None:
    """All that a node does: commit, tier, checkpoint, roll up, let go, collect."""

    async def tell(partition: int, value: str) -> None:
        await send(node, [value], partition)
        told.append((partition, value))

    for round_ in range(3):
        for at in range(3):
            await tell(0, f"a{round_}{at}" * 10)
            await tell(1, f"b{round_}{at}")
        await node.run_due_work()
    await node.rollups.roll_up()
    await node.collect()
    await tell(1, "last")


async def life(store: CrashingStore, work: Workload = everything) -> list[tuple[int, str]]:
    """One process that leads what there is and works until it dies; what it told its callers."""
    told: list[tuple[int, str]] = []

    async def lead_and_work(node: Node) -> None:
        if node.cluster.state.topic(TOPIC) is None:
            await node.cluster.create_topic(TOPIC, 2)
        await take_over(node)
        await work(node, told)

    await live(store, CRASH_SETTINGS, lead_and_work)
    return told


async def check_bucket(bucket: MemoryBucket, told: list[tuple[int, str]]) -> None:
    """Another process takes over; nothing that was told is missing, doubled or out of order."""
    store = MemoryStore(bucket)
    node = await Node.start(store, CRASH_SETTINGS, node_id=2)
    if node.cluster.state.topic(TOPIC) is None:
        assert told == []
        await node.abort()
        return
    await take_over(node)
    for partition in range(2):
        expected = [value for at, value in told if at == partition]
        found = await values_of(store, partition)
        assert [value for value in found if value in set(expected)] == expected
        assert len(found) == len(set(found))
        assert len(found) <= len(expected) + 1, "only what was in flight may be there besides"
        assert await send(node, [f"next{partition}"], partition) == len(found)
    await node.run_due_work()
    await node.collect()
    for partition in range(2):
        assert (await values_of(store, partition))[-1] == f"next{partition}"
    await node.abort()


def crash(step: int) -> None:
    calls = crash_everywhere(MemoryBucket(), life, check_bucket, step=step, seed=1)
    kinds = {(call.operation, call.key.split("/")[0]) for call in calls}
    assert {
        ("create", "topics"),
        ("create", "wal"),
        ("delete", "topics"),
        ("delete", "wal"),
    } <= kinds


def test_a_node_may_die_at_some_of_its_calls() -> None:
    crash(step=5)


@pytest.mark.soak
def test_a_node_may_die_at_any_call() -> None:
    crash(step=1)


async def tidy(node: Node, told: list[tuple[int, str]]) -> None:
    del told
    await node.run_due_work()
    await node.collect()


def crash_in_recovery(step: int) -> None:
    """A node dies in the middle of its work; so does the one that recovers, at every call."""

    async def prepare() -> tuple[MemoryBucket, list[tuple[int, str]]]:
        bucket = MemoryBucket()

        async def half(node: Node, told: list[tuple[int, str]]) -> None:
            for at in range(4):
                for partition in range(2):
                    value = f"{'ab'[partition]}{at}"
                    await send(node, [value * 8], partition)
                    told.append((partition, value * 8))
                if at == 1:
                    await node.rollups.roll_up()
                    await node.leader(TOPIC, 0).log.tier()

        return bucket, await life(CrashingStore(bucket), half)

    origin, told = runtime.simulate(prepare(), seed=1)

    async def recover(store: CrashingStore) -> list[tuple[int, str]]:
        await life(store, tidy)
        return told

    crash_everywhere(origin, recover, check_bucket, step=step, seed=2)


def test_a_recovering_node_may_die_at_some_of_its_calls() -> None:
    crash_in_recovery(step=3)


@pytest.mark.soak
def test_a_recovering_node_may_die_at_any_call() -> None:
    crash_in_recovery(step=1)


@in_simulation
async def test_a_stream_of_deaths_leaves_one_log() -> None:
    """Ten nodes in a row, each killed with records in flight."""
    bucket = MemoryBucket()
    told: list[str] = []
    for generation in range(10):
        store = CrashingStore(bucket)
        node = await Node.start(store, CRASH_SETTINGS, node_id=generation % 3)
        if generation == 0:
            await node.cluster.create_topic(TOPIC, 1)
        await take_over(node)
        for at in range(3):
            value = f"{generation}.{at}"
            await send(node, [value])
            told.append(value)
        if generation % 2:
            await node.run_due_work()
            await node.collect()
        append(node, [f"in flight {generation}"])
        store.crash_at = len(store.calls)
        await node.abort()
    node = await successor(MemoryStore(bucket))
    found = await values_of(MemoryStore(bucket))
    assert [value for value in found if not value.startswith("in flight")] == told
    await node.abort()


@in_simulation
async def test_starting_on_a_bucket_in_use_joins_its_cluster(store: ScriptedStore) -> None:
    one = await started(store)
    two = await Node.start(store, Settings(), node_id=2)
    assert two.cluster.state.cluster_id == one.cluster.state.cluster_id
    assert two.incarnation > one.incarnation
    assert store.listed(cluster_log().checkpoints) == []
    await one.close()
    await two.close()


@in_simulation
async def test_damage_to_one_partition_keeps_no_other_from_being_led(store: ScriptedStore) -> None:
    old = await started(store, partitions=3)
    for partition in range(3):
        await send(old, ["a"], partition)
        await old.leader(TOPIC, partition).log.tier()
    await old.abort()
    topic = topic_of(old)
    manifest = [key for key in store.listed("topics/") if f"manifest/{1:010d}/" in key]
    await store.put(manifest[0], b"damaged")
    new = await Node.start(store, small_settings(), node_id=2)
    with pytest.raises(DamagedError) as raised:
        await take_over(new)
    assert raised.value.key == manifest[0]
    assert sorted(new.led.partitions) == [(topic.id_bytes, 0), (topic.id_bytes, 2)]
    assert await send(new, ["b"], 2) == 1
    await new.abort()


@in_simulation
async def test_a_damaged_slice_that_was_skipped_holds_no_roll_up_up() -> None:
    store = MemoryStore()
    node = await started(store, small_settings(cache_bytes=0, segment_bytes=10_000), partitions=2)
    for value in ("a", "b", "c"):
        await send(node, [value], 0)
        await send(node, [value], 1)
    damaged = node.leader(TOPIC, 0).log.tail[1]
    data = bytearray(await store.get(damaged.cached.key))
    data[damaged.entry.position + 20] ^= 1
    await store.put(damaged.cached.key, data)
    with pytest.raises(DamagedError):
        await node.rollups.roll_up()
    skip = Skip(1, 1, 0, "test")
    await node.leader(TOPIC, 0).log.manifest.change(lambda state: [] if state.skips else [skip])
    assert await node.rollups.roll_up()
    assert [row.entry.base_offset for row in node.leader(TOPIC, 0).log.tail] == [0, 2]
    assert await values_of(store, 1) == ["a", "b", "c"]
    other = await successor(store)
    assert other.leader(TOPIC, 0).log.next_offset == 3
    await other.leader(TOPIC, 0).log.tier()
    await node.abort()
    await other.abort()
