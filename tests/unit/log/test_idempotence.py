"""Idempotent producers on a whole log: through commits, tiering, roll-ups, take-overs and kills."""

from __future__ import annotations

import asyncio

import pytest

from neve import runtime
from neve.cluster.node import Node
from neve.errors import NeveError, UnavailableError
from neve.log.keys import wal_stream
from neve.log.producers import OutOfOrderSequenceError
from neve.settings import PrefetchSettings, ProducerSettings, Settings
from neve.store.memory import MemoryBucket, MemoryStore
from support.node_world import (
    TOPIC,
    CrashingStore,
    append,
    batch_of,
    copied,
    send,
    small_settings,
    started,
    successor,
    take_over,
    values_of,
)
from support.scripted_store import ScriptedStore, hold, in_simulation, refuse

WIDE = small_settings(segment_bytes=1 << 20)
NARROW = small_settings(segment_bytes=150)


def known(node: Node) -> dict[int, int]:
    entries = node.leader(TOPIC, 0).log.producers.entries()
    return {row.producer_id: row.last_sequence for row in entries}


@in_simulation
async def test_a_duplicate_is_told_its_first_place_and_not_before_the_first_is_committed() -> None:
    store = ScriptedStore()
    node = await started(store, WIDE)
    await send(node, ["a"], producer_id=5, sequence=0)
    go, reached = asyncio.Event(), asyncio.Event()
    store.when("create", wal_stream(node.incarnation).number(1), hold(go, reached))
    first = append(node, ["b"], producer_id=5, sequence=1)
    await reached.wait()
    again = append(node, ["b"], producer_id=5, sequence=1)
    assert (again.base_offset, again.last_offset, again.duplicate) == (1, 1, True)
    assert not again.commit.done
    go.set()
    await again.commit.wait()
    assert first.commit.done
    old = append(node, ["a"], producer_id=5, sequence=0)
    assert (old.base_offset, old.duplicate, old.commit.done) == (0, True, True)
    assert await values_of(store) == ["a", "b"]
    await node.close()


@in_simulation
async def test_a_duplicate_of_a_batch_that_was_refused_is_refused() -> None:
    store = ScriptedStore()
    node = await started(store, WIDE)
    go, reached = asyncio.Event(), asyncio.Event()
    store.when("create", wal_stream(node.incarnation).number(0), hold(go, reached))
    log = node.leader(TOPIC, 0).log
    log.append(batch_of(["a"], producer_id=5, sequence=0))
    await reached.wait()
    again = log.append(batch_of(["a"], producer_id=5, sequence=0))
    await node.abort()
    with pytest.raises(NeveError):
        await again.commit.wait()
    assert again.commit.failure is not None
    with pytest.raises(NeveError):
        log.append(batch_of(["a"], producer_id=5, sequence=0))


@in_simulation
async def test_a_refused_batch_leaves_no_trace() -> None:
    store = ScriptedStore()
    node = await started(store, WIDE)
    await send(node, ["a"], producer_id=5, sequence=0)
    log = node.leader(TOPIC, 0).log
    with pytest.raises(OutOfOrderSequenceError):
        append(node, ["c"], producer_id=5, sequence=2)
    assert log.next_offset == 1
    assert await send(node, ["b"], producer_id=5, sequence=1) == 1
    assert await values_of(store) == ["a", "b"]
    await node.close()


@pytest.mark.parametrize("tiered", [0, 1, 2, 3])
@pytest.mark.parametrize("rolled_up", [False, True])
@pytest.mark.parametrize("large", [False, True])
def test_what_producers_did_survives_a_restart(tiered: int, rolled_up: bool, large: bool) -> None:
    """Whether it is in segments, in WAL objects or in roll-ups, in small objects or large ones."""
    filling = "." * 40_000 if large else ""
    settings = small_settings(segment_bytes=len(filling) + 100)

    async def main() -> None:
        store = ScriptedStore()
        node = await started(store, settings)
        values = [f"{at}{filling}" for at in range(8)]
        for at, value in enumerate(values):
            await send(node, [value], producer_id=at % 2, sequence=at // 2)
        for _ in range(tiered):
            assert await node.leader(TOPIC, 0).log.tier()
        if rolled_up:
            assert await node.rollups.roll_up()
        before = node.leader(TOPIC, 0).log.producers.entries()
        await node.abort()
        new = await successor(store, settings)
        assert new.leader(TOPIC, 0).log.producers.entries() == before
        for at, value in enumerate(values):
            again = append(new, [value], producer_id=at % 2, sequence=at // 2)
            assert (again.base_offset, again.duplicate, again.commit.done) == (at, True, True)
        assert await send(new, ["next"], producer_id=1, sequence=4) == 8
        assert await values_of(store) == [*values, "next"]
        await new.abort()

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_tail_over_several_streams_is_folded_in_the_order_of_offsets() -> None:
    store = ScriptedStore()
    node = await started(store, WIDE, partitions=2)
    sequence = 0
    for generation in range(4):
        for _ in range(2):
            for partition in range(2):
                await send(node, [f"{sequence}"], partition, producer_id=9, sequence=sequence)
            sequence += 1
        if generation % 2:
            await node.rollups.roll_up()
        await node.abort()
        node = await successor(store, WIDE, node_id=generation)
    for partition in range(2):
        (entry,) = node.leader(TOPIC, partition).log.producers.entries()
        assert entry.last_sequence == 7
        assert [row.base_sequence for row in entry.recent] == [3, 4, 5, 6, 7]
        starts = [row.start_offset for row in node.leader(TOPIC, partition).log.epochs]
        assert starts == [0, 2, 4, 6, 8]
    await node.abort()


# --- kills


async def _producer(node: Node, sent: list[int], first: int, count: int) -> None:
    """Sends batches one after the other; notes each that was acknowledged."""
    for sequence in range(first, first + count):
        await send(node, [f"value {sequence}"], producer_id=5, sequence=sequence)
        sent.append(sequence)


async def _work(store: CrashingStore, sent: list[int]) -> None:
    """Append, tier, roll up, go on: as far as the process lives."""
    node = await Node.start(store, NARROW, node_id=1, probe=False)
    try:
        await take_over(node)
        await _producer(node, sent, len(sent), 3)
        await node.leader(TOPIC, 0).log.tier()
        await _producer(node, sent, len(sent), 2)
        await node.rollups.roll_up()
        await _producer(node, sent, len(sent), 1)
        await node.leader(TOPIC, 0).log.tier()
        await node.leader(TOPIC, 0).log.tier()
    finally:
        await node.abort()


async def _check(bucket: MemoryBucket, sent: list[int]) -> None:
    """Whoever takes over: the producer sends again what was not acknowledged, and goes on."""
    store = MemoryStore(bucket)
    node = await successor(store, NARROW)
    for sequence in sent[-4:]:  # and perhaps one that it was not told of
        assert append(node, [f"value {sequence}"], producer_id=5, sequence=sequence).duplicate
    await _producer(node, sent, len(sent), 2)
    assert await values_of(store) == [f"value {at}" for at in range(len(sent))]
    await node.leader(TOPIC, 0).log.tier()
    await node.abort()
    last = await successor(store, NARROW, node_id=3)
    assert known(last) == {5: len(sent) - 1}
    await last.abort()


async def _bucket() -> MemoryBucket:
    """A topic with some of the producer's records in a segment, some in a dead stream."""
    bucket = MemoryBucket()
    node = await started(MemoryStore(bucket), NARROW)
    await _producer(node, [], 0, 3)
    await node.leader(TOPIC, 0).log.tier()
    await node.abort()
    return bucket


@pytest.mark.parametrize("after", [False, True])
def test_killed_between_any_two_steps_nothing_is_lost_and_nothing_is_there_twice(
    after: bool,
) -> None:
    async def main() -> None:
        origin = await _bucket()
        whole = CrashingStore(copied(origin))
        await _work(whole, [0, 1, 2])
        steps = len(whole.calls)
        assert steps > 40
        # Dying before a call and after the one before it are nearly the same: every other of each.
        for crash_at in range(after, steps, 2):
            bucket = copied(origin)
            sent = [0, 1, 2]
            store = CrashingStore(bucket, crash_at, after=after)
            with pytest.raises(NeveError):
                await _work(store, sent)
            assert store.crashed
            await _check(bucket, sent)

    runtime.simulate(main(), seed=1)


# --- what is forgotten


@in_simulation
async def test_an_expired_producer_is_gone_from_the_next_bundle_too() -> None:
    settings = Settings(segment=NARROW.segment, producers=ProducerSettings(id_expiration_ms=10_000))
    store = ScriptedStore()
    node = await started(store, settings)
    await send(node, ["a"], producer_id=1, sequence=0)
    assert await node.leader(TOPIC, 0).log.tier()
    assert known(node) == {1: 0}
    await runtime.sleep(20)
    await send(node, ["b"], producer_id=2, sequence=0)
    assert known(node) == {2: 0}
    assert await node.leader(TOPIC, 0).log.tier()
    await node.abort()
    new = await successor(store, settings)
    assert known(new) == {2: 0}
    assert await send(new, ["c"], producer_id=1, sequence=7) == 2
    await new.abort()


@in_simulation
async def test_a_damaged_slice_costs_what_is_known_of_producers_and_nobody_is_refused() -> None:
    store = ScriptedStore()
    old = await started(store, WIDE)
    for at in range(3):
        await send(old, [f"{at}" * 40_000], producer_id=5, sequence=at)
    await old.abort()
    key = wal_stream(old.incarnation).number(1)
    data = bytearray(store.data(key))
    data[-1] ^= 1
    await store.put(key, bytes(data))
    new = await successor(store, WIDE)
    log = new.leader(TOPIC, 0).log
    assert (log.next_offset, known(new)) == (3, {5: 2})
    assert [row.base_sequence for row in log.producers.entries()[0].recent] == [2]
    assert [row.entry.base_offset for row in log.recent] == [2]
    assert await send(new, ["next"], producer_id=5, sequence=3) == 3
    await new.abort()


# --- the store


@in_simulation
async def test_a_store_that_slows_down_delays_a_take_over_and_does_not_end_it() -> None:
    store = ScriptedStore()
    old = await started(store, WIDE)
    for at in range(20):
        await send(old, [f"{at}" * 30_000], producer_id=5, sequence=at)
    await old.abort()
    new = await Node.start(store, WIDE, node_id=2)
    for operation in ("get", "get_range", "list", "create"):
        store.when(
            operation,
            lambda key: key.startswith(("wal/", "topics/")),
            refuse(UnavailableError),
            times=6,
        )
    began = runtime.monotonic()
    await take_over(new)
    assert runtime.monotonic() - began > 0.5
    assert known(new) == {5: 19}
    assert await send(new, ["next"], producer_id=5, sequence=20) == 20
    await new.abort()


async def _requests_of_a_take_over(partitions: int) -> int:
    store = ScriptedStore(latency=lambda: 0.02)
    settings = Settings(
        wal=WIDE.wal,
        cache=small_settings(cache_bytes=1_000_000).cache,
        prefetch=PrefetchSettings(window=4, downloads=4),
    )
    old = await started(store, settings, partitions=partitions)
    for at in range(10):
        for partition in range(partitions):
            text = f"{at}" * (200_000 // partitions)
            append(old, [text], partition, producer_id=partition, sequence=at)
        await old.writer.flush()
    await old.abort()
    new = await Node.start(store, settings, node_id=2)
    store.calls.clear()
    await take_over(new)
    _check_what_is_kept(new, partitions)
    await new.abort()
    prefix = wal_stream(old.incarnation).prefix
    return sum(call.key.startswith(prefix) for call in store.calls)


def _check_what_is_kept(node: Node, partitions: int) -> None:
    logs = [node.leader(TOPIC, partition).log for partition in range(partitions)]
    kept = {id(row.cached): row.cached for log in logs for row in log.recent}
    total = sum(len(held.data) for held in kept.values() if held.data is not None)
    assert 500_000 < total <= 1_000_000
    for log in logs:
        rows = [(row.entry.base_offset, row.entry.last_offset) for row in log.recent]
        assert rows == [(at, at) for at in range(10 - len(rows), 10)]
        for row in log.recent:
            data = row.in_memory()
            assert data is not None
            assert len(data) == row.entry.length
        assert log.producers.entries()[0].last_sequence == 9


@in_simulation
async def test_a_tail_takes_as_many_requests_for_many_partitions_as_for_one() -> None:
    assert await _requests_of_a_take_over(4) == await _requests_of_a_take_over(1)
