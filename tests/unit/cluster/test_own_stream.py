"""What a node knows of its own stream, while roll-ups, looks and commits overlap."""

from __future__ import annotations

import asyncio

import pytest

from neve import runtime
from neve.cluster.own_stream import (
    OBJECT_OVERHEAD_BYTES,
    PUT_OFF_OBJECTS,
    SLICE_OVERHEAD_BYTES,
    SLICES_LEAST,
    OwnStream,
)
from neve.errors import UnavailableError
from neve.log.keys import wal_stream
from neve.log.wal.checkpoint import read_checkpoint
from neve.log.wal.object import Slice
from neve.log.wal.reader import StreamTail, TailObject
from neve.log.wal.writer import CommittedObject
from neve.store.wrapper import Call
from support.node_world import TOPIC, append, send, small_settings, started, values_of
from support.scripted_store import ScriptedStore, Work, hold, in_simulation, refuse

UNCACHED = small_settings(segment_bytes=1 << 20, cache_bytes=0)


@in_simulation
async def test_two_roll_ups_take_turns() -> None:
    store = ScriptedStore()
    node = await started(store, UNCACHED)
    for value in "ab":
        await send(node, [value])
    rollups = f"{wal_stream(node.incarnation).prefix}rollup/"
    go, reached = asyncio.Event(), asyncio.Event()
    store.when("create", lambda key: key.startswith(rollups), hold(go, reached))
    slow = runtime.spawn(node.rollups.roll_up())
    await reached.wait()
    for value in "cd":
        await send(node, [value])
    quick = runtime.spawn(node.rollups.roll_up())
    await runtime.sleep(1)
    go.set()
    assert [await slow, await quick] == [True, True]
    await send(node, ["e"])
    log = node.leader(TOPIC, 0).log
    held = [(row.entry.base_offset, row.entry.last_offset) for row in log.tail]
    assert held == [(0, 3), (4, 4)]
    assert await log.tier()
    assert await values_of(store) == list("abcde")
    await node.close()


@in_simulation
async def test_a_look_from_before_a_roll_up_does_not_undo_it() -> None:
    """Otherwise what was committed in between is held nowhere, and a segment passes over it."""
    store = ScriptedStore()
    node = await started(store, UNCACHED)
    for value in "ab":
        await send(node, [value])
    go, answers = asyncio.Event(), 0

    async def keep_the_second_answer(_: Call, work: Work) -> object:
        nonlocal answers
        found = await work()
        answers += 1
        if answers == 2:
            await go.wait()
        return found

    checkpoints = wal_stream(node.incarnation).checkpoints
    store.when("list", checkpoints, keep_the_second_answer, times=2)
    look = runtime.spawn(node.rollups.resolve(node.incarnation))
    await runtime.sleep(1)
    for value in "cd":
        await send(node, [value])
    assert await node.rollups.roll_up()
    await send(node, ["e"])
    go.set()
    await look
    assert await node.leader(TOPIC, 0).log.tier()
    assert await values_of(store) == list("abcde")
    await node.close()


@in_simulation
async def test_what_was_read_back_before_it_was_known_committed_counts_once() -> None:
    store = ScriptedStore()
    node = await started(store, UNCACHED)
    await send(node, ["a"])
    keys = wal_stream(node.incarnation)
    store.when("create", keys.checkpoint(1), refuse(UnavailableError))
    with pytest.raises(UnavailableError):
        await node.rollups.roll_up()  # from here on it must read its stream back
    go = asyncio.Event()

    async def answer_late(_: Call, work: Work) -> None:
        await work()
        await go.wait()

    store.when("create", keys.number(1), answer_late)
    late = append(node, ["b"])
    await runtime.sleep(1)
    assert await node.rollups.roll_up()  # reads number 1 too
    assert not await node.rollups.roll_up()
    go.set()
    await late.commit.wait()
    await send(node, ["c"])
    assert await node.rollups.roll_up()
    assert await values_of(store) == list("abc")
    await node.close()


@in_simulation
async def test_a_commit_that_is_told_during_a_roll_up_that_read_it_counts_once() -> None:
    store = ScriptedStore()
    node = await started(store, UNCACHED)
    await send(node, ["a"])
    keys = wal_stream(node.incarnation)
    store.when("create", keys.checkpoint(1), refuse(UnavailableError))
    with pytest.raises(UnavailableError):
        await node.rollups.roll_up()
    known, made, reached = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def answer_late(_: Call, work: Work) -> None:
        await work()
        await known.wait()

    store.when("create", keys.number(1), answer_late)
    late = append(node, ["b"])
    await runtime.sleep(1)
    store.when("create", keys.checkpoint(1), hold(made, reached))
    rolling = runtime.spawn(node.rollups.roll_up())
    await reached.wait()
    known.set()
    await late.commit.wait()
    made.set()
    assert await rolling
    assert await node.rollups.roll_up()
    assert await values_of(store) == list("ab")
    await node.close()


@in_simulation
async def test_checkpoints_keep_the_next_offset_of_what_is_all_tiered() -> None:
    store = ScriptedStore()
    node = await started(store, UNCACHED, partitions=2)
    await send(node, ["a"], 0)
    keys = wal_stream(node.incarnation)
    store.when("create", keys.checkpoint(1), refuse(UnavailableError))
    with pytest.raises(UnavailableError):
        await node.rollups.roll_up()
    assert await node.leader(TOPIC, 0).log.tier()
    for number in (1, 2, 3):
        assert await node.rollups.roll_up()
        payload = await read_checkpoint(store, keys, number)
        assert payload is not None
        assert (0, 1) in {(row.partition, row.next) for row in payload.partitions}
        await send(node, ["b"], 1)
    await node.close()


@in_simulation
async def test_a_roll_up_waits_until_it_is_worth_what_it_writes_anew() -> None:
    """Otherwise many small objects write all that is untiered again and again."""
    objects = 4
    settings = small_settings(segment_bytes=1 << 20, tail_objects=objects)
    node = await started(ScriptedStore(), settings)
    await send(node, ["x" * 10_000])
    for _ in range(objects - 1):
        await send(node, ["x"])
    assert node.rollups.due()
    assert await node.rollups.roll_up()
    for _ in range(objects):
        await send(node, ["x"])
    assert not node.rollups.due()  # it would write 10,000 bytes anew for some hundred
    await send(node, ["y" * 5_000])
    assert node.rollups.due()
    assert await node.rollups.roll_up()
    for _ in range(PUT_OFF_OBJECTS * objects - 1):
        await send(node, ["x"])
    assert not node.rollups.due()
    await send(node, ["x"])
    assert node.rollups.due()  # whatever it costs: a successor has to read them all
    await node.close()


@in_simulation
async def test_a_roll_up_is_made_early_where_it_carries_next_to_nothing() -> None:
    settings = small_settings(segment_bytes=3_000, tail_bytes=12_000)
    node = await started(ScriptedStore(), settings, partitions=2)
    first, second = node.leader(TOPIC, 0), node.leader(TOPIC, 1)
    await send(node, ["x" * 4_000])
    assert await first.tier()
    assert not node.rollups.due()  # it can wait until more has come
    await send(node, ["x" * 4_000])
    await send(node, ["y" * 2_500], 1)
    assert await first.tier()
    assert not node.rollups.due()  # a quarter of it would be written anew
    assert await second.tier()
    assert node.rollups.due()
    assert await node.rollups.roll_up()
    assert not node.rollups.due()
    await node.close()


def small_slices(number: int, count: int) -> CommittedObject:
    """An object with one record of a few bytes for each of so many partitions."""
    rows = tuple(Slice(bytes(16), at, 0, number, number, 0, at, 1, 0) for at in range(count))
    return CommittedObject(number, rows, memoryview(bytes(count)))


def test_entries_of_small_slices_take_room_from_the_cache_until_they_are_rolled_up() -> None:
    """Otherwise a million small batches would take half a gigabyte that nothing counts."""
    settings = small_settings(cache_bytes=10_000_000)
    own = OwnStream(ScriptedStore(), 1, settings)
    large = CommittedObject(0, (), memoryview(bytes(6_000_000)))
    own.committed(large)
    own.committed(small_slices(1, 1_000))
    assert own.directory_bytes == 1_000 * SLICE_OVERHEAD_BYTES
    assert own.cached_bytes == 6_001_000 + 2 * OBJECT_OVERHEAD_BYTES
    assert not own.roll_up_due()
    for number in range(2, 6):
        own.committed(small_slices(number, 1_000))
    assert own.roll_up_due()  # it is past an eighth of the cache, and no less than SLICES_LEAST
    assert own.cached_bytes > 6_000_000
    for number in range(6, 16):
        own.committed(small_slices(number, 1_000))
    assert own.cached_bytes < 100_000, "the large object was evicted"
    before = StreamTail(1, 0, 16, False, ())
    own.rolling_up()
    own.rolled_up(before, 16, [])
    assert own.directory_bytes == 0
    assert not own.roll_up_due()


def test_a_roll_up_is_not_put_off_once_entries_of_slices_take_up_the_whole_cache() -> None:
    settings = small_settings(cache_bytes=0)
    own = OwnStream(ScriptedStore(), 1, settings)
    carried = TailObject("x", None, (Slice(bytes(16), 0, 0, 0, 9, 0, 0, 1 << 30, 0),), None)
    own.rolling_up()
    own.rolled_up(StreamTail(1, 0, 0, False, ()), 0, [carried])
    own.committed(small_slices(0, SLICES_LEAST - 1))
    assert not own.roll_up_due()  # it would write a gibibyte again for 4 KiB
    own.committed(small_slices(1, 1))
    assert own.roll_up_due()
