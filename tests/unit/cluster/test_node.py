"""A node's life: leading, committing, tiering, rolling up, losing its place, dying anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from neve import runtime
from neve.cluster.log import NoTopicError
from neve.cluster.node import Node
from neve.cluster.records import SetConfigs
from neve.errors import (
    DamagedError,
    FencedError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from neve.log.keys import cluster_log, segment_prefix, wal_stream
from neve.log.manifest.records import Skip
from neve.log.wal.reader import WalReader
from neve.settings import Settings, WalSettings
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.port import Buffer
from neve.store.probe import BrokenRuleError
from support.node_world import (
    TOPIC,
    CrashingStore,
    append,
    batch_of,
    crash_everywhere,
    live,
    send,
    small_settings,
    started,
    successor,
    topic_of,
    values_of,
)
from support.scripted_store import ScriptedStore, hold, in_simulation, refuse


def segment_keys(store: ScriptedStore, node: Node, partition: int = 0) -> list[str]:
    topic = topic_of(node)
    return store.listed(segment_prefix(topic.name, topic.id_bytes, partition))


def creates(store: ScriptedStore, prefix: str) -> list[str]:
    return [
        call.key
        for call in store.calls
        if call.operation in ("create", "put") and call.key.startswith(prefix)
    ]


# --- leading


@in_simulation
async def test_offsets_follow_each_other_and_the_high_watermark_the_commits() -> None:
    store = ScriptedStore()
    node = await started(store, partitions=2)
    log = node.leader(TOPIC, 0).log
    assert append(node, ["a", "b"]).base_offset == 0
    last = append(node, ["c"])
    assert (last.base_offset, last.last_offset, log.next_offset, log.high_watermark) == (2, 2, 3, 0)
    assert append(node, ["x"], 1).base_offset == 0
    await node.writer.flush()
    assert log.high_watermark == 3
    assert await values_of(store) == ["a", "b", "c"]
    assert await values_of(store, 1) == ["x"]
    await node.close()


@in_simulation
async def test_what_is_not_led_is_refused() -> None:
    store = ScriptedStore()
    node = await started(store)
    assert node.leader_of(bytes(16), 0) is None
    with pytest.raises(FencedError, match="does not lead"):
        node.leader(TOPIC, 1)
    with pytest.raises(NoTopicError, match="'other'"):
        await node.takeover.lead(["other"])
    await node.close()


@in_simulation
async def test_leading_twice_at_once_recovers_a_partition_once() -> None:
    """Two logs of one partition would give out the same offsets."""
    store = ScriptedStore()
    node = await Node.start(store, small_settings(), node_id=1)
    await node.cluster.create_topic(TOPIC, 1)

    async def lead_and_send(value: str) -> int:
        await node.takeover.lead([TOPIC])
        return await send(node, [value])

    offsets = await runtime.gather(*(lead_and_send(value) for value in "abc"))
    assert sorted(offsets) == [0, 1, 2]
    assert sorted(await values_of(store)) == ["a", "b", "c"]
    await node.close()


@in_simulation
async def test_leading_again_keeps_what_is_led() -> None:
    store = ScriptedStore()
    node = await started(store)
    await send(node, ["a"])
    log = node.leader(TOPIC, 0).log
    await node.takeover.lead()
    assert node.leader(TOPIC, 0).log is log
    assert await send(node, ["b"]) == 1
    await node.close()


@in_simulation
async def test_a_fenced_node_does_not_take_partitions_that_it_cannot_write() -> None:
    store = ScriptedStore()
    old = await started(store)
    new = await successor(store)
    with pytest.raises(FencedError):
        await send(old, ["a"])
    before = (await new.cluster.refresh()).topics
    with pytest.raises(FencedError):
        await old.takeover.lead([TOPIC])
    assert (await new.cluster.refresh()).topics == before
    assert await send(new, ["b"]) == 0
    await old.abort()
    await new.abort()


@in_simulation
async def test_a_partition_created_later_is_led_with_the_rest() -> None:
    store = ScriptedStore()
    node = await started(store)
    await node.cluster.create_topic("later", 2)
    await node.takeover.lead()
    assert len(node.led.partitions) == 3
    await node.close()


# --- two at once


@in_simulation
async def test_the_old_leader_is_fenced_and_what_it_acknowledged_survives() -> None:
    store = ScriptedStore()
    old = await started(store)
    acknowledged = [value for value in "abcd" if await send(old, [value]) >= 0]
    new = await successor(store)
    assert new.leader(TOPIC, 0).log.next_offset == 4
    with pytest.raises(FencedError):
        await send(old, ["lost"])
    assert old.led.partitions == {}
    with pytest.raises(FencedError):
        append(old, ["lost"])
    assert not await old.writer.still_leading()
    assert await new.writer.still_leading()
    assert await send(new, ["e"]) == 4
    assert await values_of(store) == [*acknowledged, "e"]
    await old.abort()
    await new.abort()


@in_simulation
async def test_an_old_leader_may_still_tier_what_was_committed() -> None:
    """Its records are committed; the new leader finds them tiered and goes on behind them."""
    store = ScriptedStore()
    settings = small_settings(segment_ms=1)
    old = await started(store, settings)
    for value in "abcd":
        await send(old, [value], producer_id=5, sequence=ord(value) - ord("a"))
    new = await successor(store, settings)
    await runtime.sleep(1)
    await old.run_due_work()
    assert old.leader(TOPIC, 0).log.tiered_offset == 4
    await send(new, ["e"], producer_id=6, sequence=0)
    await new.run_due_work()
    log = new.leader(TOPIC, 0).log
    await runtime.sleep(1)
    await new.run_due_work()
    assert log.tiered_offset == 5
    assert await values_of(store) == list("abcde")
    known = {row.producer_id: row.last_sequence for row in log.tiered_history.producers.entries()}
    assert known == {5: 3, 6: 0}
    await old.abort()
    await new.abort()


@in_simulation
async def test_a_history_that_others_moved_on_is_read_again_before_it_is_built_on() -> None:
    """The new leader learns of the old one's segment by collecting, not by tiering."""
    store = ScriptedStore()
    settings = small_settings(segment_ms=1)
    old = await started(store, settings)
    for value in "abcd":
        await send(old, [value], producer_id=5, sequence=ord(value) - ord("a"))
    new = await successor(store, settings)
    await runtime.sleep(1)
    await old.run_due_work()
    await send(new, ["e"], producer_id=6, sequence=0)
    await new.collect()
    log = new.leader(TOPIC, 0).log
    assert log.tiered_offset == 4
    await runtime.sleep(1)
    await new.run_due_work()
    assert log.tiered_offset == 5
    third = await successor(store, settings, node_id=3)
    known = third.leader(TOPIC, 0).log.tiered_history.producers.entries()
    assert {row.producer_id: row.last_sequence for row in known} == {5: 3, 6: 0}
    for node in (old, new, third):
        await node.abort()


# --- tiering and rolling up


@in_simulation
async def test_tiering_by_bytes_and_by_age() -> None:
    store = ScriptedStore()
    node = await started(store, small_settings(segment_bytes=300, segment_ms=5_000))
    log = node.leader(TOPIC, 0).log
    await send(node, ["a" * 50])
    await node.run_due_work()
    assert log.tiered_offset == 0
    for value in "bcd":
        await send(node, [value * 50])
    await node.run_due_work()
    tiered = log.tiered_offset
    assert 0 < tiered < 4
    await node.run_due_work()
    assert log.tiered_offset == tiered
    await runtime.sleep(6)
    await node.run_due_work()
    assert log.tiered_offset == 4
    assert await values_of(store) == [value * 50 for value in "abcd"]
    await node.close()


@in_simulation
async def test_one_bad_partition_keeps_no_other_from_being_tended() -> None:
    store = ScriptedStore()
    settings = small_settings(segment_ms=1, tail_objects=1)
    node = await started(store, settings, partitions=3)
    for partition in range(3):
        await send(node, ["a"], partition)
    await runtime.sleep(1)
    bad = segment_prefix(TOPIC, topic_of(node).id_bytes, 0)
    store.when("create", lambda key: key.startswith(bad), refuse(NotFoundError), times=None)
    with pytest.raises(NotFoundError):
        await node.run_due_work()
    assert [node.leader(TOPIC, at).log.tiered_offset for at in range(3)] == [0, 1, 1]
    assert store.listed(wal_stream(node.incarnation).checkpoints) != []
    store.scripts.clear()
    await node.run_due_work()
    assert node.leader(TOPIC, 0).log.tiered_offset == 1
    await node.close()


@in_simulation
async def test_one_bad_topic_keeps_no_other_from_its_retention() -> None:
    store = ScriptedStore()
    node = await started(store)
    bad = await node.cluster.create_topic("bad", 1)
    soon = SetConfigs(bad.topic_id, {"retention.ms": "soon"})  # what only a mistake can have won
    await node.cluster.propose(lambda state: None if state.topic("bad") != bad else soon)
    await node.cluster.create_topic("good", 1, {"retention.bytes": "0"})
    await node.takeover.lead()
    good = node.cluster.state.topic("good")
    assert good is not None
    await node.leader(good.name, 0).append(batch_of(["a"])).commit.wait()
    assert await node.leader("good", 0).log.tier()
    with pytest.raises(InvalidError, match="soon"):
        await node.maintenance.retain_all()
    assert node.leader("good", 0).log.manifest.state.start == 1
    await node.close()


@in_simulation
async def test_a_roll_up_keeps_what_is_untiered_and_frees_the_rest() -> None:
    store = ScriptedStore()
    node = await started(store, small_settings(tail_objects=4), partitions=2)
    for at in range(5):
        await send(node, [f"a{at}"], 0)
        await send(node, [f"b{at}"], 1)
    assert await node.leader(TOPIC, 1).log.tier()
    await node.run_due_work()
    reader = WalReader(store, node.incarnation)
    tail = await reader.tail()
    topic_id = topic_of(node).id_bytes
    assert tail.checkpoint == tail.position == node.writer.committed_end
    assert [entry.last_offset for _, entry in tail.of(topic_id, 0)] == [4]
    assert {key for key in store.listed(reader.keys.prefix) if reader.keys.number_of(key)} == set()
    assert await values_of(store, 0) == [f"a{at}" for at in range(5)]
    assert await values_of(store, 1) == [f"b{at}" for at in range(5)]
    assert await node.leader(TOPIC, 0).log.tier()
    assert await values_of(store, 0) == [f"a{at}" for at in range(5)]
    await node.close()


@in_simulation
async def test_rolling_up_twice_rewrites_what_is_still_untiered() -> None:
    store = ScriptedStore()
    node = await started(store)
    for value in "abcdef":
        await send(node, [value])
        assert await node.rollups.roll_up()
        assert not await node.rollups.roll_up()
    rollups = store.listed(f"{wal_stream(node.incarnation).prefix}rollup/")
    assert len(rollups) == 1
    await node.abort()
    new = await successor(store)
    assert await values_of(store) == list("abcdef")
    await new.abort()


@in_simulation
async def test_a_roll_up_that_failed_is_due_again_at_once() -> None:
    store = ScriptedStore()
    node = await started(store, small_settings(tail_objects=2))
    for value in "ab":
        await send(node, [value])
    rollups = f"{wal_stream(node.incarnation).prefix}rollup/"
    store.when("create", lambda key: key.startswith(rollups), refuse(InvalidError))
    with pytest.raises(InvalidError):
        await node.run_due_work()
    assert store.listed(rollups) == []
    await node.run_due_work()
    assert len(store.listed(rollups)) == 1
    await node.close()


@in_simulation
async def test_a_roll_up_whose_answer_was_lost_is_found_by_the_next() -> None:
    store = ScriptedStore()
    node = await started(store)
    await send(node, ["a"])
    keys = wal_stream(node.incarnation)
    store.when("create", keys.checkpoint(1), refuse(UnavailableError, after=True))
    with pytest.raises(UnavailableError):
        await node.rollups.roll_up()
    await send(node, ["b"])
    assert await node.rollups.roll_up()
    assert await values_of(store) == ["a", "b"]
    assert await node.leader(TOPIC, 0).log.tier()
    assert await values_of(store) == ["a", "b"]
    await node.close()


@in_simulation
async def test_records_of_deleted_topics_are_dropped_at_the_next_roll_up() -> None:
    store = ScriptedStore()
    node = await started(store)
    await node.cluster.create_topic("gone", 1)
    await node.takeover.lead()
    gone = node.cluster.state.topic("gone")
    assert gone is not None
    await send(node, ["a"])
    node.leader(gone.name, 0).append(batch_of(["x"]))
    await node.writer.flush()
    await node.cluster.delete_topic("gone")
    assert await node.rollups.roll_up()
    tail = await WalReader(store, node.incarnation).tail()
    topic_id = topic_of(node).id_bytes
    assert {entry.topic_id for item in tail.objects for entry in item.slices} == {topic_id}
    assert sorted(tail.ends) == [(topic_id, 0)]
    with pytest.raises(FencedError):
        node.leader(gone.name, 0).append(batch_of(["y"]))
    assert await values_of(store) == ["a"]
    await node.close()


@in_simulation
async def test_memory_for_the_tail_is_bounded_and_the_rest_is_read_by_range() -> None:
    store = ScriptedStore()
    node = await started(store, small_settings(cache_bytes=5_000, segment_bytes=10_000))
    values = [f"{at:050d}" for at in range(10)]
    for value in values:
        await send(node, [value])
    log = node.leader(TOPIC, 0).log
    kept = [row.held.data for row in log.tail if row.held.data is not None]
    assert 0 < sum(map(len, kept)) <= 5_000
    assert len(kept) < len(log.tail)
    store.calls.clear()
    assert await log.tier()
    prefix = wal_stream(node.incarnation).prefix
    ranged = [call for call in store.calls if call.operation == "get_range"]
    assert len([call for call in ranged if call.key.startswith(prefix)]) == 10 - len(kept)
    assert await values_of(store) == values
    await node.close()


@in_simulation
async def test_no_cache_at_all_works_too() -> None:
    store = ScriptedStore()
    node = await started(store, small_settings(cache_bytes=0))
    for value in "abc":
        await send(node, [value])
    assert all(row.held.data is None for row in node.leader(TOPIC, 0).log.tail)
    assert await node.leader(TOPIC, 0).log.tier()
    assert await values_of(store) == list("abc")
    await node.close()


@in_simulation
async def test_earlier_streams_are_let_go_only_once_all_of_them_is_tiered() -> None:
    store = ScriptedStore()
    settings = small_settings(segment_bytes=200)
    old = await started(store, settings)
    for value in "abcdef":
        await send(old, [value])
    await old.abort()
    new = await successor(store, settings)
    log = new.leader(TOPIC, 0).log

    async def streams() -> list[int]:
        await new.maintenance.record_tiered_streams()
        await new.cluster.refresh()
        return [part.incarnation for part in topic_of(new).partitions[0].streams]

    while log.tiered_offset < 6:
        assert await streams() == [old.incarnation, new.incarnation]
        assert await log.tier()
    assert await streams() == [new.incarnation]
    await new.abort()


# --- what it costs


def test_the_wal_s_puts_do_not_grow_with_partitions() -> None:
    async def puts(partitions: int) -> int:
        store = ScriptedStore()
        node = await Node.start(store, small_settings(), node_id=1, puts_cost=True)
        await node.topics.create(TOPIC, partitions)
        for _ in range(5):
            for partition in range(20):
                append(node, ["a"], partition % partitions)
            await runtime.sleep(1)
        await node.close()
        return len(creates(store, wal_stream(node.incarnation).prefix))

    counts = {number: runtime.simulate(puts(number), seed=1) for number in (1, 4, 20)}
    assert counts == {1: 5, 4: 5, 20: 5}


@in_simulation
async def test_a_segment_costs_three_puts_and_now_and_then_a_checkpoint() -> None:
    store = ScriptedStore()
    node = await started(store, small_settings(segment_bytes=100, checkpoint_numbers=5))
    for at in range(10):
        await send(node, [f"{at}" * 60])
    store.calls.clear()
    await node.run_due_work()
    puts = creates(store, "topics/")
    segments = [key for key in puts if key.endswith(".kfs")]
    checkpoints = [key for key in puts if "/checkpoint/" in key]
    assert node.leader(TOPIC, 0).log.tiered_offset == 10
    assert len(segments) == 10
    assert len(checkpoints) == 2
    assert len(puts) == 3 * len(segments) + len(checkpoints)
    assert creates(store, "wal/") == creates(store, "meta/") == []
    await node.close()


@in_simulation
async def test_a_large_slice_is_cut_into_whole_segments_not_into_crumbs() -> None:
    """What is left of a slice waits for more, instead of becoming a small segment at once."""
    store = ScriptedStore()
    settings = small_settings(segment_bytes=1_000)
    node = await started(store, settings)
    for at in range(20):
        await send(node, [f"{at:02d}" * 10])
    await node.rollups.roll_up()  # one slice
    await node.run_due_work()
    log = node.leader(TOPIC, 0).log
    sizes = [segment.bytes for segment in await log.manifest.segments()]
    assert sizes
    assert min(sizes) >= 1_000
    assert 0 < log.tiered_offset < 20
    assert 0 < log.tail_bytes < 1_000
    assert await values_of(store) == [f"{at:02d}" * 10 for at in range(20)]
    await node.close()


# --- dying

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
        await node.takeover.lead()
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
    await node.takeover.lead()
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
        await node.takeover.lead()
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
async def test_starting_on_a_bucket_in_use_joins_its_cluster() -> None:
    store = ScriptedStore()
    one = await started(store)
    two = await Node.start(store, Settings(), node_id=2)
    assert two.cluster.state.cluster_id == one.cluster.state.cluster_id
    assert two.incarnation > one.incarnation
    assert store.listed(cluster_log().checkpoints) == []
    await one.close()
    await two.close()


@in_simulation
async def test_damage_to_one_partition_keeps_no_other_from_being_led() -> None:
    store = ScriptedStore()
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
        await new.takeover.lead()
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
    data = bytearray(await store.get(damaged.held.key))
    data[damaged.entry.position + 20] ^= 1
    await store.put(damaged.held.key, data)
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


# --- the first start on a bucket


class OverwritingStore(MemoryStore):
    """A store whose create does not look whether the key is taken."""

    async def create(self, key: str, data: Buffer) -> None:
        await self.put(key, data)


@in_simulation
async def test_a_store_that_breaks_a_rule_is_refused_before_anything_is_written() -> None:
    store = OverwritingStore()
    with pytest.raises(BrokenRuleError):
        await Node.start(store, small_settings(), node_id=1)
    assert await store.list("") == []


@in_simulation
async def test_a_bucket_is_probed_at_its_first_start_alone() -> None:
    store = ScriptedStore()
    first = await Node.start(store, small_settings(), node_id=1)
    probed = [call.key for call in store.calls if call.key.startswith("probe/")]
    assert probed
    second = await Node.start(store, small_settings(), node_id=1)
    assert [call.key for call in store.calls if call.key.startswith("probe/")] == probed
    await first.abort()
    await second.abort()


@pytest.mark.parametrize(
    ("linger_ms", "puts_cost", "objects"), [(-1, False, 2), (0, False, 4), (0, True, 4)]
)
def test_small_records_join_unless_told_otherwise(
    linger_ms: int, puts_cost: bool, objects: int
) -> None:
    async def written() -> int:
        store = ScriptedStore()
        settings = Settings(wal=WalSettings(linger_ms=linger_ms))
        node = await Node.start(store, settings, node_id=1, puts_cost=puts_cost, probe=False)
        await node.topics.create(TOPIC, 1)
        prefix = wal_stream(node.incarnation).prefix
        before = len(store.listed(prefix))
        release = asyncio.Event()
        store.when("create", wal_stream(node.incarnation).number(0), hold(release))
        sending = []
        for text in "abcd":
            sending.append(runtime.spawn(send(node, [text])))
            await runtime.sleep(0.001)
        release.set()
        await asyncio.gather(*sending)
        count = len(store.listed(prefix)) - before
        await node.abort()
        return count

    assert runtime.simulate(written(), seed=1) == objects


@pytest.mark.parametrize(
    ("linger_ms", "puts_cost", "waits_seconds"), [(-1, False, 0), (-1, True, 0.1), (30, True, 0.03)]
)
def test_the_linger_is_as_set_or_as_the_store_suggests(
    linger_ms: int, puts_cost: bool, waits_seconds: float
) -> None:
    async def waited() -> float:
        settings = Settings(wal=WalSettings(linger_ms=linger_ms))
        node = await Node.start(
            MemoryStore(), settings, node_id=1, puts_cost=puts_cost, probe=False
        )
        await node.topics.create(TOPIC, 1)
        started_at = runtime.monotonic()
        await send(node, ["a"])
        taken = runtime.monotonic() - started_at
        await node.abort()
        return taken

    assert runtime.simulate(waited(), seed=1) == pytest.approx(waits_seconds)
