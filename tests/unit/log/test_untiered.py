"""Reading the untiered slices of a partition while they move to other objects."""

from __future__ import annotations

import asyncio

import pytest

from neve import runtime
from neve.cluster.node import Node
from neve.errors import LostRangeError
from neve.log.keys import wal_stream
from neve.log.log_start import move_start
from neve.log.wal.reader import WalReader
from neve.log.wal.rollup import roll_up, trim
from neve.store.memory import MemoryStore
from support.node_world import TOPIC, send, small_settings, started, values_of
from support.scripted_store import ScriptedStore, hold, in_simulation

UNCACHED = small_settings(segment_bytes=1 << 20, cache_bytes=0)
VALUES = [f"{at:02d}" * 1_000 for at in range(40)]


async def with_slices(store: ScriptedStore) -> Node:
    """A node whose partition has 40 slices, none of them in memory."""
    node = await started(store, UNCACHED)
    for value in VALUES:
        await send(node, [value])
    return node


async def roll_up_elsewhere(
    store: ScriptedStore, incarnation: int, *, first_lost: int = 1_000
) -> None:
    """Roll a stream up and trim it, as another process does. Leave out offsets that are lost."""
    other = MemoryStore(store.bucket)
    reader = WalReader(other, incarnation)
    tail = await reader.tail()
    rollups = await roll_up(
        other,
        reader,
        tail,
        tail.position,
        lambda *_: 0,
        given_up=lambda entry: entry.base_offset >= first_lost,
    )
    assert rollups is not None
    await trim(other, reader)


def reads(store: ScriptedStore, part: str) -> int:
    return sum(call.operation == "get_range" and part in call.key for call in store.calls)


@in_simulation
async def test_a_slice_that_joins_many_is_read_once() -> None:
    store = ScriptedStore()
    node = await with_slices(store)
    await roll_up_elsewhere(store, node.incarnation)
    store.calls.clear()
    log = node.leader(TOPIC, 0).log
    assert await log.tier()
    assert reads(store, "/rollup/") == 2, "its directory, and the slice"
    listed = [call for call in store.calls if call.operation == "list" and "wal/" in call.key]
    assert len(listed) < 10, "the stream was resolved once"
    assert (log.tiered_offset, len(log.tail)) == (len(VALUES), 0)
    assert await values_of(store) == VALUES
    await node.abort()


@in_simulation
async def test_slices_that_our_own_roll_up_moves_during_the_read_are_read_where_they_are() -> None:
    store = ScriptedStore()
    node = await with_slices(store)
    reached, goes_on = asyncio.Event(), asyncio.Event()
    store.when("get_range", lambda _: True, hold(goes_on, reached), times=None)
    log = node.leader(TOPIC, 0).log
    tiering = runtime.spawn(log.tier())
    await reached.wait()
    store.scripts.clear()
    assert await node.rollups.roll_up()
    store.calls.clear()
    goes_on.set()
    assert await tiering
    assert reads(store, "/rollup/") == 1, "the node knows where it is without looking"
    assert log.tiered_offset == len(VALUES)
    assert await values_of(store) == VALUES
    await node.abort()


@pytest.mark.parametrize("first_lost", [0, 10, 39])
@in_simulation
async def test_slices_that_a_roll_up_left_out_are_an_error(first_lost: int) -> None:
    store = ScriptedStore()
    node = await with_slices(store)
    await roll_up_elsewhere(store, node.incarnation, first_lost=first_lost)
    log = node.leader(TOPIC, 0).log
    with pytest.raises(LostRangeError, match=f"offsets {first_lost} to 39"):
        await log.tier()
    assert log.tiered_offset == 0
    await node.abort()


@in_simulation
async def test_a_lost_slice_below_the_start_stops_nobody() -> None:
    store = ScriptedStore()
    node = await with_slices(store)
    await store.delete(wal_stream(node.incarnation).number(0))
    log = node.leader(TOPIC, 0).log
    await move_start(log.manifest, 1, end=log.high_watermark)
    assert await log.tier()
    assert log.tiered_offset == len(VALUES)
    assert await values_of(store) == VALUES[1:]
    await node.abort()
