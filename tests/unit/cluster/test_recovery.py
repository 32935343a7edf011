"""Taking over: seal, tails, then manifests; released streams; several successors; damage."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.cluster.log import ClusterLog
from neve.cluster.node import Node
from neve.cluster.records import Expire, Handover, Move, Release
from neve.cluster.streams import retire_streams
from neve.errors import DamagedError, FencedError, NeveError, UnavailableError
from neve.log.keys import wal_stream
from neve.log.wal.reader import WalReader
from support.node_world import (
    TOPIC,
    append,
    batch_of,
    release,
    send,
    small_settings,
    started,
    successor,
    take_over,
    topic_of,
    values_of,
)
from support.scripted_store import ScriptedStore, first, in_simulation, refuse

WIDE = small_settings(segment_bytes=1 << 20)


# --- the order


@in_simulation
async def test_a_stream_that_was_not_read_to_its_end_is_not_continued() -> None:
    """A listing that lags tells a reader to stop early: offsets must not be given out twice."""
    store = ScriptedStore()
    old = await started(store, WIDE)
    for at in range(100):
        await send(old, [str(at)])

    async def nothing(*_: object) -> list[object]:
        return []

    store.when("list", wal_stream(old.incarnation).prefix, nothing, times=None)
    new = await Node.start(store, WIDE, node_id=2)
    with pytest.raises(UnavailableError, match="was read up to"):
        await take_over(new)
    assert not new.led.partitions
    store.scripts.clear()
    await take_over(new)
    assert await send(new, ["next"]) == 100
    await old.abort()
    await new.abort()


@in_simulation
async def test_a_leader_that_tiers_rolls_up_and_trims_as_it_is_taken_over_loses_nothing() -> None:
    """All of it happens after the tail was read and before the manifest is."""
    store = ScriptedStore()
    old = await started(store, WIDE)
    for value in "abc":
        await send(old, [value])
    manifest = old.leader(TOPIC, 0).log.manifest.keys

    async def move_on() -> None:
        store.scripts.clear()
        assert await old.leader(TOPIC, 0).log.tier()
        assert await old.rollups.roll_up()

    new = await Node.start(store, WIDE, node_id=2)
    store.when("get", manifest.number(0), first(move_on))
    await take_over(new)
    assert store.scripts == []
    assert (new.leader(TOPIC, 0).log.next_offset, new.leader(TOPIC, 0).log.tiered_offset) == (3, 3)
    assert await send(new, ["d"]) == 3
    assert await values_of(store) == list("abcd")
    await old.abort()
    await new.abort()


@in_simulation
async def test_a_live_writer_with_objects_in_flight_is_ended_where_the_seal_lands() -> None:
    store = ScriptedStore(latency=lambda: runtime.chance().uniform(0.001, 0.05))
    old = await started(store, WIDE)
    told: list[str] = []

    async def produce() -> None:
        for at in range(200):
            value = f"{at}"
            try:
                await old.writer.room()
                appended = append(old, [value])
            except NeveError:
                return
            appended.commit.then(lambda done, value=value: done.exception() or told.append(value))
            await runtime.sleep(0.01)

    tasks = runtime.Tasks()
    tasks.start(produce())
    await runtime.sleep(0.5)
    new = await successor(store, WIDE)
    await tasks.join()
    await runtime.sleep(1)
    assert old.writer.ended is not None
    found = await values_of(store)
    assert found[: len(told)] == told
    assert len(told) <= len(found) == new.leader(TOPIC, 0).log.next_offset
    assert 0 < len(told) < 200
    await old.abort()
    await new.abort()


@in_simulation
async def test_a_log_goes_on_over_many_streams_that_nobody_tiered() -> None:
    store = ScriptedStore()
    node = await started(store, WIDE)
    for generation in range(5):
        await send(node, [f"{generation}"])
        await node.abort()
        node = await successor(store, WIDE, node_id=generation)
    assert len(topic_of(node).partitions[0].streams) == 6
    assert await values_of(store) == [f"{at}" for at in range(5)]
    assert await node.leader(TOPIC, 0).log.tier()
    await node.maintenance.record_tiered_streams()
    assert len(topic_of(node).partitions[0].streams) == 1
    epochs = node.leader(TOPIC, 0).log.tiered_history.epochs.starts
    assert [(row.epoch, row.start_offset) for row in epochs] == [(at, at) for at in range(5)]
    await node.abort()


# --- releases


@in_simulation
async def test_a_released_partition_is_recovered_without_sealing_its_stream() -> None:
    store = ScriptedStore()
    old = await started(store, WIDE, partitions=2)
    await send(old, ["a"], 0)
    await send(old, ["x"], 1)
    new = await Node.start(store, WIDE, node_id=2)
    await release(old, new)
    assert new.takeover.sealed == {}
    assert sorted(partition for _, partition in new.led.partitions) == [0]
    assert await send(new, ["b"], 0) == 1
    assert await send(old, ["y"], 1) == 1
    assert await old.writer.still_leading()
    assert await values_of(store, 0) == ["a", "b"]
    assert await values_of(store, 1) == ["x", "y"]
    with pytest.raises(FencedError):
        append(old, ["lost"], 0)
    await old.abort()
    await new.abort()


@in_simulation
async def test_what_a_released_partition_has_in_a_live_stream_is_found_after_a_roll_up() -> None:
    """The old owner goes on, rolls up and trims: the successor's slices lie elsewhere now."""
    store = ScriptedStore()
    old = await started(store, WIDE, partitions=2)
    values = [f"{at}" * 30_000 for at in range(3)]  # too large to be read along with its directory
    for value in values:
        await send(old, [value * 3], 0)
    new = await Node.start(store, WIDE, node_id=2)
    await release(old, new)
    await send(old, ["x"], 1)
    assert await old.rollups.roll_up()
    assert wal_stream(old.incarnation).number(0) not in store.listed()
    assert await new.leader(TOPIC, 0).log.tier()
    assert new.leader(TOPIC, 0).log.tiered_offset == 3
    assert await values_of(store, 0) == [value * 3 for value in values]
    assert await values_of(store, 1) == ["x"]
    await old.abort()
    await new.abort()


@in_simulation
async def test_a_partition_with_only_released_streams_is_recovered_from_all_of_them() -> None:
    store = ScriptedStore()
    nodes = [await started(store, WIDE)]
    for at in range(3):
        await send(nodes[-1], [f"{at}"])
        nodes.append(await Node.start(store, WIDE, node_id=at + 2))
        await release(nodes[-2], nodes[-1])
    streams = topic_of(nodes[-1]).partitions[0].streams
    assert [part.end for part in streams] == [1, 1, 1, None]
    assert await values_of(store) == ["0", "1", "2"]
    assert await send(nodes[-1], ["3"]) == 3
    for node in nodes:
        await node.abort()
    last = await successor(store, WIDE, node_id=9)
    assert sorted(last.takeover.sealed) == [nodes[-1].incarnation]
    assert await values_of(store) == ["0", "1", "2", "3"]
    await last.abort()


@in_simulation
async def test_a_release_counts_though_the_stream_was_sealed_meanwhile() -> None:
    store = ScriptedStore()
    old = await started(store, WIDE, partitions=2)
    await send(old, ["a"], 0)
    await send(old, ["x"], 1)
    new = await Node.start(store, WIDE, node_id=2)
    topic = topic_of(old)
    row = Handover(
        topic_id=topic.topic_id,
        partition=0,
        epoch=0,
        end=old.writer.committed_end,
        end_offset=1,
        successor=new.incarnation,
    )
    third = await Node.start(store, WIDE, node_id=3)
    await take_over(third)  # seals the stream, and takes both partitions
    await ClusterLog(store).propose(lambda _: Release((row,)))
    state = (await ClusterLog(store).refresh()).topics[topic.topic_id].partitions[0]
    assert state.leader == third.incarnation, "the release came too late and changed nothing"
    assert await values_of(store, 0) == ["a"]
    for node in (old, new, third):
        await node.abort()


# --- several successors, several topics


@in_simulation
async def test_two_successors_share_a_dead_stream_and_its_one_roll_up() -> None:
    store = ScriptedStore()
    old = await started(store, WIDE)
    await old.cluster.create_topic("u", 1)
    await take_over(old)
    other = old.cluster.state.topic("u")
    assert other is not None
    large = "z" * 80_000
    for at in range(3):
        await send(old, [f"{at}{large}"])
        await old.leader(other.name, 0).append(batch_of([f"u{at}{large}"])).commit.wait()
    await old.abort()
    one = await Node.start(store, WIDE, node_id=2)
    two = await Node.start(store, WIDE, node_id=3)
    moves = tuple(
        Move(topic_id=topic_id, partition=0, epoch=1, incarnation=node.incarnation)
        for topic_id, node in ((topic_of(old).topic_id, one), (other.topic_id, two))
    )
    await one.cluster.propose(lambda _: Expire(incarnation=old.incarnation, moves=moves))
    await runtime.gather(one.takeover.lead_unled(), two.takeover.lead_unled())
    await runtime.gather(one.rollups.sweep(), two.rollups.sweep())
    assert one.takeover.sealed == two.takeover.sealed
    assert len(store.listed(f"{wal_stream(old.incarnation).prefix}rollup/")) == 1
    assert await one.leader(TOPIC, 0).log.tier()
    assert await two.leader("u", 0).log.tier()
    assert (one.leader(TOPIC, 0).log.tiered_offset, two.leader("u", 0).log.tiered_offset) == (3, 3)
    assert await values_of(store) == [f"{at}{large}" for at in range(3)]
    await one.abort()
    await two.abort()


@in_simulation
async def test_a_sweep_that_fails_is_made_up_for_by_tending() -> None:
    store = ScriptedStore()
    old = await started(store, WIDE)
    await send(old, ["a"])
    await old.abort()
    keys = wal_stream(old.incarnation)
    store.when("create", keys.checkpoint(1), refuse(UnavailableError))
    new = await successor(store, WIDE)
    assert store.listed(keys.checkpoints) == []
    assert await send(new, ["b"]) == 1
    await new.run_due_work()
    assert store.listed(keys.checkpoints) == [keys.checkpoint(1)]
    assert await values_of(store) == ["a", "b"]
    await new.abort()


# --- damage


@in_simulation
async def test_offsets_that_are_nowhere_are_told_by_name() -> None:
    store = ScriptedStore()
    old = await started(store, WIDE)
    for value in "abc":
        await send(old, [value])
    assert await old.rollups.roll_up()
    await old.abort()
    keys = wal_stream(old.incarnation)
    (rollup,) = store.listed(f"{keys.prefix}rollup/")
    await store.delete(rollup)
    new = await Node.start(store, WIDE, node_id=2)
    with pytest.raises(DamagedError) as raised:
        await take_over(new)
    assert raised.value.key == rollup
    assert new.led.partitions == {}
    await new.abort()


@in_simulation
async def test_a_manifest_that_lost_numbers_does_not_give_out_offsets_twice() -> None:
    """The checkpoint of the stream remembers how far offsets went."""
    store = ScriptedStore()
    old = await started(store, WIDE)
    await send(old, ["a", "b"])
    assert await old.leader(TOPIC, 0).log.tier()
    assert await old.rollups.roll_up()
    await old.abort()
    for key in [key for key in store.listed("topics/") if "/manifest/" in key]:
        await store.delete(key)
    new = await Node.start(store, WIDE, node_id=2)
    with pytest.raises(DamagedError, match="neither in a segment nor in a stream"):
        await take_over(new)
    await new.abort()


@in_simulation
async def test_a_damaged_stream_fails_only_those_who_need_it() -> None:
    store = ScriptedStore()
    old = await started(store, WIDE)
    await send(old, ["a"])
    other = await Node.start(store, WIDE, node_id=2)
    await other.topics.create("u", 1)
    await old.abort()
    await other.abort()
    key = wal_stream(old.incarnation).number(0)
    await store.put(key, b"damaged")
    new = await Node.start(store, WIDE, node_id=3)
    with pytest.raises(DamagedError) as raised:
        await take_over(new)
    assert raised.value.key == key
    assert new.leader("u", 0).log.next_offset == 0
    assert len(new.led.partitions) == 1
    await new.abort()


@in_simulation
async def test_a_stream_retired_under_a_successor_is_not_damage() -> None:
    """Between its look at the cluster log and its reading, others tier, let go and retire."""
    store = ScriptedStore()
    settings = small_settings(segment_ms=1)
    dead = await started(store, settings)
    for value in "abc":
        await send(dead, [value])
    await dead.abort()
    old = await successor(store, settings, node_id=1)
    log = old.leader(TOPIC, 0).log
    new = await Node.start(store, settings, node_id=3)

    async def retire() -> None:
        store.scripts.clear()
        await runtime.sleep(1)
        assert await log.tier()
        await ClusterLog(store).tiered([(topic_of(new).topic_id, 0, 0)])
        assert await retire_streams(store, ClusterLog(store)) > 0

    checkpoints = wal_stream(dead.incarnation).checkpoints
    store.when("list", checkpoints, first(retire))
    await take_over(new)
    assert store.scripts == []
    assert new.leader(TOPIC, 0).log.next_offset == 3
    assert await values_of(store) == list("abc")
    await old.abort()
    await new.abort()


@in_simulation
async def test_a_node_fenced_while_it_recovers_leads_nothing() -> None:
    store = ScriptedStore()
    dead = await started(store, WIDE)
    await send(dead, ["a"])
    await dead.abort()
    slow = await Node.start(store, WIDE, node_id=2)
    await slow.topics.create("own", 1)
    own = slow.cluster.state.topic("own")
    assert own is not None

    async def overtake() -> None:
        store.scripts.clear()
        fast = await successor(store, WIDE, node_id=3)
        await fast.abort()
        with pytest.raises(FencedError):
            await slow.leader(own.name, 0).append(batch_of(["x"])).commit.wait()

    store.when("list", wal_stream(dead.incarnation).checkpoints, first(overtake))
    with pytest.raises(FencedError):
        await take_over(slow)
    assert slow.led.partitions == {}
    assert (await WalReader(store, dead.incarnation).end()) is not None
    await slow.abort()
