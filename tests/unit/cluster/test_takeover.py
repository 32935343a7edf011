"""Taking partitions over: what may be skipped, what a superseded process may not do, sick ones."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from neve import runtime
from neve.broker.offsets_topic import OffsetsTopic
from neve.bucket.maintain.import_kafscale import import_kafscale
from neve.cluster.background_loops import BackgroundLoops
from neve.cluster.log import ClusterLog
from neve.cluster.node import Node
from neve.cluster.records import Handover, Lead, Move, Release
from neve.cluster.state import ClusterState
from neve.errors import FencedError, NeveError, UnavailableError
from neve.settings import ClusterSettings, Settings, StoreSettings
from neve.store.faults import Fault, FaultyStore, Rule
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.port import Store
from neve.store.url import stack
from support import foreign_bucket
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
from support.scripted_store import ScriptedStore, hold, in_simulation, refuse

IMPORTED = "orders"
RECORDS = 30


async def imported(store: ScriptedStore) -> Node:
    """A live broker beside which a topic of one partition was imported."""
    for base in range(0, RECORDS, 10):
        foreign_bucket.add(store.bucket, base)
    node = await Node.start(store, small_settings(), node_id=1, probe=False)
    await take_over(node)
    await import_kafscale(MemoryStore(store.bucket))
    return node


async def lead_all_left(node: Node) -> None:
    assert await node.takeover.lead_unled() == {}


# --- recovery is skipped only for what is new


@in_simulation
async def test_an_imported_partition_is_recovered_though_its_topic_just_grew() -> None:
    node = await imported(ScriptedStore())
    topic = await node.topics.add_partitions(IMPORTED, 2)
    assert node.leader(IMPORTED, 1).log.next_offset == 0, "a new partition is led at once"
    await lead_all_left(node)
    log = node.leader(IMPORTED, 0).log
    assert (log.start_offset, log.high_watermark) == (0, RECORDS)
    done = node.leader(topic.name, 0).append(batch_of(["a new order"]))
    await done.commit.wait()
    assert done.base_offset == RECORDS
    await node.abort()


@in_simulation
async def test_a_partition_whose_recovery_failed_is_recovered_though_its_topic_just_grew() -> None:
    store = ScriptedStore()
    node = await imported(store)
    store.when("list", lambda key: "/manifest/" in key, refuse(UnavailableError), times=None)
    assert [*(await node.takeover.lead_unled()).values()]
    store.scripts.clear()
    await node.topics.add_partitions(IMPORTED, 2)
    assert node.leader_of(node.cluster.state.topic(IMPORTED).id_bytes, 0) is None
    await lead_all_left(node)
    assert node.leader(IMPORTED, 0).log.high_watermark == RECORDS
    await node.abort()


@in_simulation
async def test_only_the_partitions_of_this_very_change_count_as_created() -> None:
    """Another process has added some that we have not seen yet."""
    store = ScriptedStore()
    node = await started(store)
    await ClusterLog(store).add_partitions(TOPIC, 2)
    topic, created = await node.cluster.add_partitions(TOPIC, 3)
    assert list(created) == [2]
    assert len(topic.partitions) == 3
    await node.abort()


# --- changes of a topic while its partitions are recovered


@asynccontextmanager
async def during_recovery(store: ScriptedStore) -> AsyncIterator[Node]:
    """A node that recovers a partition. Its manifest is read after the body has run."""
    node = await Node.start(store, small_settings(segment_bytes=1 << 20), node_id=1, probe=False)
    reached, goes_on = asyncio.Event(), asyncio.Event()
    store.when("list", lambda key: "/manifest/" in key, hold(goes_on, reached))
    leading = runtime.spawn(take_over(node))
    await reached.wait()
    yield node
    goes_on.set()
    await leading


@in_simulation
async def test_configs_changed_during_the_recovery_are_followed() -> None:
    store = ScriptedStore()
    old = await started(store, small_settings(segment_bytes=1 << 20))
    await send(old, ["a"])
    await old.abort()
    async with during_recovery(store) as node:
        await node.topics.set_configs(TOPIC, {"segment.bytes": "2000", "segment.ms": "5000"})
    log = node.leader(TOPIC, 0).log
    assert not log.tiering_due()
    await send(node, ["b" * 3_000])
    assert log.tiering_due(), "by size"
    assert await log.tier()
    await send(node, ["c"])
    await runtime.sleep(6)
    assert log.tiering_due(), "by age"
    await node.abort()


def producer_bytes(node: Node) -> int:
    return next(share.used for share in node.memory if share.name == "producers")


async def with_producers(store: ScriptedStore) -> Node:
    """A node whose process has ended, and whose log has 50 producers."""
    node = await started(store)
    for producer_id in range(50):
        await send(node, ["a"], producer_id=producer_id, sequence=0)
    assert producer_bytes(node) > 0
    await node.abort()
    return node


@in_simulation
async def test_a_topic_deleted_during_the_recovery_keeps_no_memory() -> None:
    store = ScriptedStore()
    await with_producers(store)
    async with during_recovery(store) as node:
        await node.topics.delete(TOPIC)
    assert node.led.partitions == {}
    assert producer_bytes(node) == 0
    await node.abort()


@in_simulation
async def test_a_partition_moved_during_the_recovery_keeps_no_memory() -> None:
    store = ScriptedStore()
    await with_producers(store)
    async with during_recovery(store) as node:
        other = await Node.start(store, small_settings(), node_id=2)
        topic = topic_of(node)
        row = Handover(
            topic_id=topic.topic_id,
            partition=0,
            epoch=topic.partitions[0].epoch,
            end=0,
            end_offset=50,
            successor=other.incarnation,
        )
        await node.cluster.propose(lambda _: Release((row,)))
        assert topic_of(node).partitions[0].leader == other.incarnation
    assert node.led.partitions == {}
    assert producer_bytes(node) == 0
    for each in (node, other):
        await each.abort()


@in_simulation
async def test_a_process_fenced_during_the_recovery_keeps_no_memory() -> None:
    store = ScriptedStore()
    await with_producers(store)
    with pytest.raises(FencedError):
        async with during_recovery(store) as node:
            node.writer.fence(FencedError("this process is over"))
    assert node.led.partitions == {}
    assert producer_bytes(node) == 0
    await node.abort()


# --- processes that are over


@in_simulation
async def test_a_topic_that_a_superseded_process_creates_is_led_by_the_live_one() -> None:
    store = ScriptedStore()
    old = await started(store)
    new = await successor(store, node_id=1)
    upkeep = BackgroundLoops(new, small_settings())
    upkeep.start()
    # What an earlier version, which did not look whether it is live, would have put down.
    topic = await ClusterLog(store).create_topic("orders", 1)
    move = Move(topic_id=topic.topic_id, partition=0, epoch=0, incarnation=old.incarnation)
    await ClusterLog(store).propose(lambda _: Lead((move,)))
    with pytest.raises(FencedError, match="is over"):
        await old.topics.create("more", 1)
    assert old.ended is not None
    await runtime.sleep(10)
    assert new.leader_of(topic.id_bytes, 0) is not None
    leaders = {row.partitions[0].leader for row in new.cluster.state.topics.values()}
    assert leaders == {new.incarnation}
    await upkeep.close()
    await new.abort()


@in_simulation
async def test_groups_are_served_though_a_superseded_process_made_their_topic() -> None:
    store = ScriptedStore()
    settings = Settings()
    old = await started(store, settings)
    groups = OffsetsTopic(old, settings.groups)
    await groups.load()
    new = await successor(store, settings, node_id=1)
    served = OffsetsTopic(new, settings.groups)
    await served.load()
    upkeep = BackgroundLoops(new, settings)
    upkeep.start()
    try:
        await groups.ensure()
    except FencedError:
        await served.ensure()
    for _ in range(10):
        await runtime.sleep(10)
        await served.ensure()
    assert served.is_loaded
    topic = new.cluster.state.topic("__consumer_offsets")
    assert topic is not None
    assert all(new.leader_of(topic.id_bytes, at) for at in range(len(topic.partitions)))
    assert (await served.groups.fetch_offsets("g", [], _leads)).error is None
    for each in (upkeep, groups, served):
        await each.close()
    await new.abort()


@in_simulation
async def test_what_has_no_leader_is_led_in_the_background_though_the_start_failed() -> None:
    store = ScriptedStore()
    settings = small_settings()
    old = await started(store, settings)
    await send(old, ["a"])
    await old.close()  # it leaves, and nobody is there to lead its partition
    new = await Node.start(store, settings, node_id=2, probe=False)
    real_refresh = new.cluster.refresh

    async def no_answer(*_: object, **__: object) -> ClusterState:
        raise UnavailableError("meta/log/", "the store does not answer")

    new.cluster.refresh = no_answer  # type: ignore[method-assign]
    with pytest.raises(UnavailableError):
        await new.takeover.lead()
    new.cluster.refresh = real_refresh  # type: ignore[method-assign]
    loops = BackgroundLoops(new, settings)
    loops.start()
    await runtime.sleep(60)
    assert await send(new, ["b"]) == 1
    await loops.close()
    await new.abort()


async def _leads() -> bool:
    return True


@in_simulation
async def test_a_broker_of_another_node_ends_the_first_by_one_record() -> None:
    store = ScriptedStore()
    old = await started(store, partitions=3)
    await send(old, ["a"])
    new = await successor(store, node_id=2)
    state = new.cluster.state
    assert [key for key, row in state.brokers.items() if row.live] == [new.incarnation]
    assert {row.leader for row in topic_of(new).partitions} == {new.incarnation}
    assert await send(new, ["b"]) == 1
    await old.cluster.refresh()
    assert "other brokers have declared it dead" in str(old.ended)
    assert old.led.partitions == {}
    with pytest.raises(FencedError):
        await send(old, ["lost"])
    await new.abort()


@in_simulation
async def test_a_node_id_that_never_comes_back_keeps_nothing() -> None:
    store = ScriptedStore()
    settings = dataclasses.replace(
        small_settings(segment_ms=5_000), cluster=ClusterSettings(purge_delay_ms=2_000)
    )
    gone = await started(store, settings)
    await send(gone, ["kept"])
    await gone.abort()
    node = await successor(store, settings, node_id=2)
    upkeep = BackgroundLoops(node, settings)
    upkeep.start()
    for at in range(5):
        await node.topics.create(f"t{at}", 1)
        await node.topics.delete(f"t{at}")
    await runtime.sleep(400)
    assert node.cluster.state.deleted == {}
    assert gone.incarnation not in node.cluster.state.streams()
    assert len(store.listed(f"wal/{gone.incarnation:020d}/")) == 2, "its end seal and checkpoint"
    await upkeep.close()
    await node.abort()


# --- partitions that cannot be recovered soon


def sick(bucket: MemoryBucket, settings: Settings, name: str) -> tuple[Store, FaultyStore]:
    """A store that answers SlowDown for everything of one topic."""
    faulty = FaultyStore(MemoryStore(bucket))
    faulty.script.append(Rule(Fault.SLOW_DOWN, key_part=name, times=10**9))
    return stack(faulty, settings.store).store, faulty


@in_simulation
async def test_a_sick_partition_delays_neither_new_topics_nor_other_partitions() -> None:
    bucket, settings = MemoryBucket(), Settings(store=StoreSettings(retry_attempts_max=3))
    first = await Node.start(MemoryStore(bucket), settings, node_id=1, probe=False)
    for name in ("sick", "well"):
        topic = await first.topics.create(name, 2)
        await first.leader(topic.name, 0).append(batch_of([name])).commit.wait()
    await first.abort()
    store, faulty = sick(bucket, settings, "sick")
    node = await Node.start(store, settings, node_id=1, probe=False)
    began = runtime.monotonic()
    leading = runtime.spawn(take_over(node))
    while node.leader_of(node.cluster.state.topic("well").id_bytes, 0) is None:
        await runtime.sleep(0.1)
    assert runtime.monotonic() - began < 2, "others are led before the sick one is given up"
    assert not leading.done()
    with pytest.raises(NeveError, match="sick"):
        await leading
    upkeep = BackgroundLoops(node, settings)
    upkeep.start()
    for at in range(20):
        await runtime.sleep(7)
        asked = runtime.monotonic()
        await node.topics.create(f"t{at}", 1)
        assert runtime.monotonic() - asked < 0.1
        # Not led by us, but left: as an import leaves it.
        late = await ClusterLog(MemoryStore(bucket)).create_topic(f"late{at}", 1)
        await runtime.sleep(3 + settings.cluster.poll_ms / 1000)
        assert node.leader_of(late.id_bytes, 0) is not None
    faulty.script.clear()
    await runtime.sleep(120)
    assert node.leader("sick", 0).log.next_offset == 1
    await upkeep.close()
    await node.abort()


@in_simulation
async def test_who_wants_a_partition_does_not_wait_for_others_that_are_taken_over_with_it() -> None:
    bucket, settings = MemoryBucket(), Settings(store=StoreSettings(retry_attempts_max=3))
    first = await Node.start(MemoryStore(bucket), settings, node_id=1, probe=False)
    for name in ("sick", "well"):
        await first.topics.create(name, 1)
    await first.abort()
    store, _ = sick(bucket, settings, "sick")
    node = await Node.start(store, settings, node_id=1, probe=False)
    both = runtime.spawn(node.takeover.lead_unled())
    await runtime.sleep(0.2)
    began = runtime.monotonic()
    well = node.cluster.state.topic("well")
    assert well is not None
    assert await node.takeover.lead_unled([(well.topic_id, 0)]) == {}
    assert runtime.monotonic() - began < 2
    assert node.leader("well", 0).log.next_offset == 0
    assert not both.done()
    assert [*await both] != []
    await node.abort()


@in_simulation
async def test_a_partition_is_recovered_by_one_take_over_at_a_time() -> None:
    store = ScriptedStore()
    old = await started(store, partitions=2)
    for value in "abc":
        await send(old, [value])
    await old.abort()
    node = await Node.start(store, small_settings(), node_id=1)
    await runtime.gather(
        take_over(node),
        node.takeover.lead_unled(node.takeover.unled()),
        take_over(node, [TOPIC]),
    )
    log = node.leader(TOPIC, 0).log
    assert log.next_offset == 3
    assert await send(node, ["d"]) == 3
    await take_over(node)
    assert node.leader(TOPIC, 0).log is log
    await node.abort()
