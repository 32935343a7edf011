"""Tiering and roll-ups of a node, and the store requests that they cost."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.cluster.node import Node
from neve.errors import (
    FencedError,
    InvalidError,
    NotFoundError,
    UnavailableError,
)
from neve.log.keys import segment_prefix, wal_stream
from neve.log.wal.reader import WalReader
from support.node_world import (
    TOPIC,
    append,
    batch_of,
    send,
    small_settings,
    started,
    successor,
    take_over,
    topic_of,
    values_of,
)
from support.scripted_store import ScriptedStore, in_simulation, refuse


def creates(store: ScriptedStore, prefix: str) -> list[str]:
    return [
        call.key
        for call in store.calls
        if call.operation in ("create", "put") and call.key.startswith(prefix)
    ]


# --- tiering and rolling up


@in_simulation
async def test_tiering_by_bytes_and_by_age(store: ScriptedStore) -> None:
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
async def test_one_bad_partition_keeps_no_other_from_being_tended(store: ScriptedStore) -> None:
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
async def test_a_roll_up_keeps_what_is_untiered_and_frees_the_rest(store: ScriptedStore) -> None:
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
async def test_rolling_up_twice_rewrites_what_is_still_untiered(store: ScriptedStore) -> None:
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
async def test_a_roll_up_that_failed_is_due_again_at_once(store: ScriptedStore) -> None:
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
async def test_a_roll_up_whose_answer_was_lost_is_found_by_the_next(store: ScriptedStore) -> None:
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
async def test_records_of_deleted_topics_are_dropped_at_the_next_roll_up(
    store: ScriptedStore,
) -> None:
    node = await started(store)
    await node.cluster.create_topic("gone", 1)
    await take_over(node)
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
async def test_memory_for_the_tail_is_bounded_and_the_rest_is_read_by_range(
    store: ScriptedStore,
) -> None:
    node = await started(store, small_settings(cache_bytes=5_000, segment_bytes=10_000))
    values = [f"{at:050d}" for at in range(10)]
    for value in values:
        await send(node, [value])
    log = node.leader(TOPIC, 0).log
    kept = [row.cached.data for row in log.tail if row.cached.data is not None]
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
async def test_no_cache_at_all_works_too(store: ScriptedStore) -> None:
    node = await started(store, small_settings(cache_bytes=0))
    for value in "abc":
        await send(node, [value])
    assert all(row.cached.data is None for row in node.leader(TOPIC, 0).log.tail)
    assert await node.leader(TOPIC, 0).log.tier()
    assert await values_of(store) == list("abc")
    await node.close()


@in_simulation
async def test_earlier_streams_are_let_go_only_once_all_of_them_is_tiered(
    store: ScriptedStore,
) -> None:
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
async def test_a_segment_costs_three_puts_and_now_and_then_a_checkpoint(
    store: ScriptedStore,
) -> None:
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
async def test_a_large_slice_is_cut_into_whole_segments_not_into_crumbs(
    store: ScriptedStore,
) -> None:
    """What is left of a slice waits for more, instead of becoming a small segment at once."""
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
