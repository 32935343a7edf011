"""Deleted topics: their objects go, whoever dies at whatever call, and nothing comes back."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from neve import runtime
from neve.cluster.log import ClusterLog, NoTopicError
from neve.cluster.node import Node
from neve.errors import UnavailableError
from neve.log.keys import topic_prefix, wal_stream
from neve.log.wal.reader import WalReader
from neve.settings import ClusterSettings
from neve.store.memory import MemoryBucket
from support.node_world import (
    TOPIC,
    CrashingStore,
    batch_of,
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
from support.scripted_store import ScriptedStore, hold, in_simulation, refuse

DELAY_SECONDS = 100
SETTINGS = dataclasses.replace(
    small_settings(segment_bytes=200, checkpoint_numbers=2),
    cluster=ClusterSettings(purge_delay_ms=DELAY_SECONDS * 1000),
)


async def with_segments(store: ScriptedStore, partitions: int = 2, node_id: int = 1) -> Node:
    """A node that leads a topic with segments, indexes, manifests and checkpoints."""
    node = await started(store, SETTINGS, partitions=partitions, node_id=node_id)
    for at in range(4):
        for partition in range(partitions):
            await send(node, [f"old {at}" * 10], partition)
            await node.leader(TOPIC, partition).log.tier()
    return node


async def purged(node: Node) -> None:
    """Rounds until the cluster has forgotten every deleted topic."""
    for _ in range(10):
        await node.purging.purge()
        if not node.cluster.state.deleted:
            return
        await runtime.sleep(DELAY_SECONDS / 2)
    raise AssertionError("never purged")


@in_simulation
async def test_all_objects_of_a_deleted_topic_go_and_then_it_is_forgotten() -> None:
    store = ScriptedStore()
    node = await with_segments(store)
    other = await node.topics.create("other", 1)
    await node.leader(other.name, 0).append(batch_of(["kept"])).commit.wait()
    await node.leader("other", 0).log.tier()
    kept = store.listed(topic_prefix("other", other.id_bytes))
    prefix = topic_prefix(TOPIC, topic_of(node).id_bytes)
    kinds = {key.removeprefix(prefix).split("/")[0] for key in store.listed(prefix)}
    assert kinds == {"0000000000", "0000000001", "manifest"}
    await node.topics.delete(TOPIC)
    assert node.purging.due()
    assert await node.purging.purge() > 0
    assert store.listed(prefix) == []
    assert store.listed("topics/") == kept
    assert [topic.name for topic in node.cluster.state.deleted.values()] == [TOPIC]
    assert not node.purging.due()
    await runtime.sleep(DELAY_SECONDS)
    assert node.purging.due()
    await node.purging.purge()
    assert node.cluster.state.deleted == {}
    assert store.listed("topics/") == kept
    await node.close()


@in_simulation
async def test_created_again_it_starts_at_zero_with_none_of_the_old_records() -> None:
    store = ScriptedStore()
    node = await with_segments(store)
    await send(node, ["untiered"])
    old = topic_of(node)
    await node.topics.delete(TOPIC)
    new = await node.topics.create(TOPIC, 1)
    assert new.topic_id != old.topic_id
    assert await send(node, ["new"]) == 0
    assert await values_of(store) == ["new"]
    await purged(node)
    assert await values_of(store) == ["new"]
    await node.rollups.roll_up()
    await node.abort()
    third = await successor(store, SETTINGS)
    assert third.leader(TOPIC, 0).log.next_offset == 1
    assert await values_of(store) == ["new"]
    await third.abort()


@in_simulation
async def test_it_waits_for_its_own_uploads_of_the_topic() -> None:
    store = ScriptedStore()
    node = await started(store, SETTINGS)
    await send(node, ["a"])
    release, reached = asyncio.Event(), asyncio.Event()
    prefix = topic_prefix(TOPIC, topic_of(node).id_bytes)
    store.when("create", lambda key: key.endswith(".kfs"), hold(release, reached))
    tiering = runtime.spawn(node.leader(TOPIC, 0).tier())
    await reached.wait()
    await node.topics.delete(TOPIC)
    await node.purging.purge()
    # Our own run is the only one left to wait for: it is not forgotten while that goes on.
    await runtime.sleep(DELAY_SECONDS / 4)
    await node.purging.purge()
    assert node.cluster.state.deleted
    assert not node.purging.due()
    release.set()
    await tiering
    assert store.listed(prefix) != []
    await purged(node)
    assert store.listed(prefix) == []
    await node.close()


@in_simulation
async def test_no_run_outlasts_the_delay() -> None:
    """A leader that hangs in an upload gives up in time, so nothing of it lands after the end."""
    store = ScriptedStore()
    node = await started(store, SETTINGS)
    await send(node, ["a"])
    leader = node.leader(TOPIC, 0)
    store.when("create", lambda key: key.endswith(".kfs"), hold(asyncio.Event()))
    before = runtime.monotonic()
    with pytest.raises(UnavailableError, match="took longer"):
        await leader.tier()
    assert runtime.monotonic() - before <= DELAY_SECONDS / 2
    assert await leader.tier()
    await node.close()


@in_simulation
async def test_a_leader_that_has_not_looked_for_long_looks_before_it_tiers() -> None:
    store = ScriptedStore()
    old = await started(store, SETTINGS)
    await send(old, ["a"])
    leader = old.leader(TOPIC, 0)
    await ClusterLog(store).delete_topic(TOPIC)
    await runtime.sleep(DELAY_SECONDS / 2 + 1)
    assert not await leader.tier()
    assert store.listed("topics/") == []
    await old.close()


@in_simulation
async def test_nothing_else_is_written_with_an_old_view_either() -> None:
    store = ScriptedStore()
    node = await with_segments(store, partitions=1)
    leader = node.leader(TOPIC, 0)
    other = ClusterLog(store)
    await other.delete_topic(TOPIC)
    before = store.listed("topics/")
    await runtime.sleep(DELAY_SECONDS / 2 + 1)
    with pytest.raises(NoTopicError, match="was deleted"):
        await leader.move_start(2)
    await leader.retain()
    assert await leader.collect() == 0
    assert store.listed("topics/") == before
    await node.close()


@in_simulation
async def test_the_stream_of_a_process_that_wrote_nothing_else_is_retired() -> None:
    """No partition is left to take over, so no take-over seals the stream."""
    store = ScriptedStore()
    old = await started(store, SETTINGS)
    for value in "abc":
        await send(old, [value])
    await old.topics.delete(TOPIC)
    await old.abort()
    new = await Node.start(store, SETTINGS, node_id=1)
    await purged(new)
    await new.collect()
    await new.collect()  # also the seals beyond the end
    keys = wal_stream(old.incarnation)
    assert await WalReader(store, old.incarnation).end() == (3, 3)
    assert store.listed(keys.prefix) == [keys.number(3), keys.checkpoint(3)]
    await new.abort()


@in_simulation
async def test_a_failing_topic_keeps_no_other_from_being_purged() -> None:
    store = ScriptedStore()
    node = await with_segments(store, partitions=1)
    bad = topic_prefix(TOPIC, topic_of(node).id_bytes)
    good = await node.topics.create("good", 1)
    await node.leader(good.name, 0).append(batch_of(["kept"])).commit.wait()
    await node.leader("good", 0).log.tier()
    await node.topics.delete(TOPIC)
    await node.topics.delete("good")
    store.when("delete", lambda key: key.startswith(bad), refuse(UnavailableError))
    with pytest.raises(UnavailableError):
        await node.purging.purge()
    assert store.listed(topic_prefix("good", good.id_bytes)) == []
    assert store.listed(bad) != []
    await purged(node)
    assert store.listed("topics/") == []
    await node.close()


# --- dying


async def delete_and_create_again(node: Node) -> None:
    await take_over(node)
    if node.cluster.state.topic(TOPIC) is not None:
        await node.topics.delete(TOPIC)
    await node.purging.purge()
    await node.topics.create(TOPIC, 1)
    await runtime.sleep(2 * DELAY_SECONDS)
    await node.purging.purge()


async def check(bucket: MemoryBucket, old_id: bytes) -> None:
    """The next process finishes what was begun; of the old topic nothing is left."""
    store = ScriptedStore(bucket)
    node = await Node.start(store, SETTINGS, node_id=1)
    await take_over(node)
    topic = node.cluster.state.topic(TOPIC)
    if topic is not None and topic.id_bytes == old_id:
        assert node.cluster.state.deleted == {}, "not deleted yet"
        assert len(await values_of(store)) == 4
        await node.topics.delete(TOPIC)
    if node.cluster.state.topic(TOPIC) is None:
        await node.topics.create(TOPIC, 1)
    await purged(node)
    assert store.listed(topic_prefix(TOPIC, old_id)) == []
    assert await send(node, ["new"]) == 0
    assert await values_of(store) == ["new"]
    await node.collect()
    await node.abort()


def crash(step: int) -> None:
    async def prepare() -> tuple[MemoryBucket, bytes]:
        store = ScriptedStore()
        node = await with_segments(store)
        await node.abort()
        return store.bucket, topic_of(node).id_bytes

    origin, old_id = runtime.simulate(prepare(), seed=1)

    async def life(store: CrashingStore) -> bytes:
        await live(store, SETTINGS, delete_and_create_again)
        return old_id

    calls = crash_everywhere(origin, life, check, step=step, seed=2)
    assert {call.operation for call in calls} >= {"create", "delete", "list", "get"}


def test_a_purging_process_may_die_at_some_of_its_calls() -> None:
    crash(step=5)


@pytest.mark.soak
def test_a_purging_process_may_die_at_any_call() -> None:
    crash(step=1)
