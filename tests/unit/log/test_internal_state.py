"""Tables of internal partitions: folded at tiering, kept in bundles, loaded with the tail."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.cluster.node import Node
from neve.errors import DamagedError, InvalidError
from neve.log.log_start import move_start
from neve.log.partition import PartitionLog
from neve.log.remote import load_bundle
from neve.records.reference import Record, build_batch
from neve.settings import Settings
from support.node_world import small_settings, take_over
from support.scripted_store import ScriptedStore, in_simulation

TOPIC = "__consumer_offsets"
NARROW = small_settings(segment_bytes=10)
CODECS = (0, 1, 2, 3, 4)


async def led(store: ScriptedStore, *, node_id: int = 1, settings: Settings = NARROW) -> Node:
    node = await Node.start(store, settings, node_id=node_id, probe=False)
    if node.cluster.state.topic(TOPIC) is None:
        await node.topics.create(TOPIC, 1)
    await take_over(node)
    return node


async def write(node: Node, *rows: tuple[str, str | None], codec: int = 0) -> None:
    records = [
        Record(at, 1_000 + at, key.encode(), None if value is None else value.encode())
        for at, (key, value) in enumerate(rows)
    ]
    log = node.leader(TOPIC, 0).log
    await log.append(bytearray(build_batch(records, codec=codec))).commit.wait()


async def state(node: Node) -> dict[str, str]:
    loaded = await node.leader(TOPIC, 0).log.load_state()
    return {key.decode(): value.decode() for key, value in loaded.items()}


async def tables(log: PartitionLog, store: ScriptedStore) -> list[dict[bytes, bytes]]:
    found = []
    for segment in await log.manifest.segments():
        bundle = await load_bundle(store, segment)
        assert bundle.state is not None
        found.append({row.key: row.value for row in bundle.state})
    return found


@in_simulation
async def test_the_newest_value_of_each_key_counts_and_none_removes_it() -> None:
    store = ScriptedStore()
    node = await led(store)
    assert await state(node) == {}
    await write(node, ("a", "1"), ("b", "1"), ("a", "2"))
    assert await state(node) == {"a": "2", "b": "1"}
    await write(node, ("b", None), ("c", ""))
    assert await state(node) == {"a": "2", "c": ""}
    await node.abort()


@in_simulation
async def test_a_record_without_a_key_changes_nothing() -> None:
    store = ScriptedStore()
    node = await led(store)
    batch = bytearray(build_batch([Record(0, 5, None, b"stray"), Record(1, 5, b"a", b"1")]))
    await node.leader(TOPIC, 0).log.append(batch).commit.wait()
    assert await state(node) == {"a": "1"}
    await node.abort()


@pytest.mark.parametrize("tiered", range(6))
@pytest.mark.parametrize("rolled_up", [False, True])
def test_it_is_the_same_wherever_its_records_lie(tiered: int, rolled_up: bool) -> None:
    async def main() -> None:
        store = ScriptedStore()
        node = await led(store)
        for at, codec in enumerate(CODECS):
            await write(node, (f"key {at}", "kept"), ("counter", f"{at}"), codec=codec)
            if at:
                await write(node, (f"key {at - 1}", None), codec=codec)
        for _ in range(tiered):
            assert await node.leader(TOPIC, 0).log.tier()
        if rolled_up:
            await node.rollups.roll_up()
        expected = {"counter": "4", "key 4": "kept"}
        assert await state(node) == expected
        await node.abort()
        new = await led(store, node_id=2)
        assert await state(new) == expected
        await write(new, ("counter", "5"))
        assert (await state(new))["counter"] == "5"
        await new.abort()

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_each_bundle_has_the_table_at_its_segment_s_end() -> None:
    store = ScriptedStore()
    node = await led(store)
    log = node.leader(TOPIC, 0).log
    for rows in ([("a", "1"), ("b", "1")], [("b", None)], [("c", "3")]):
        await write(node, *rows)  # type: ignore[arg-type]
        assert await log.tier()
    assert await tables(log, store) == [
        {b"a": b"1", b"b": b"1"},
        {b"a": b"1"},
        {b"a": b"1", b"c": b"3"},
    ]
    (row, *_) = (await load_bundle(store, (await log.manifest.segments())[0])).state or ()
    assert row == (b"a", b"1", 1_000)
    await node.abort()


@in_simulation
async def test_loading_reads_the_last_table_and_the_tail_however_long_the_history_is() -> None:
    store = ScriptedStore()
    node = await led(store)
    for at in range(30):
        await write(node, (f"key {at % 3}", f"{at}"))
        await node.leader(TOPIC, 0).log.tier()
    await write(node, ("key 0", "last"))
    await node.abort()
    new = await led(store, node_id=2)
    store.calls.clear()
    assert await state(new) == {"key 0": "last", "key 1": "28", "key 2": "29"}
    assert store.calls == [], "it was all read when the partition was taken over"
    await new.abort()


@in_simulation
async def test_older_segments_may_expire_up_to_the_floor() -> None:
    store = ScriptedStore()
    node = await led(store)
    log = node.leader(TOPIC, 0).log
    assert log.state_floor == 0
    await write(node, ("old", "kept"))
    assert log.state_floor == 0
    for at in range(4):
        assert await log.tier()
        await write(node, ("new", f"{at}"))
    assert log.state_floor == 2, "the last segment but one"
    await move_start(log.manifest, log.state_floor, end=log.high_watermark)
    await log.manifest.collect()
    await node.abort()
    new = await led(store, node_id=2)
    assert await state(new) == {"old": "kept", "new": "3"}
    await new.abort()


@in_simulation
async def test_what_all_segments_said_outlives_them() -> None:
    store = ScriptedStore()
    node = await led(store)
    log = node.leader(TOPIC, 0).log
    await write(node, ("a", "1"))
    assert await log.tier()
    await move_start(log.manifest, 1, end=1)
    await node.collect()
    await node.abort()
    new = await led(store, node_id=2)
    assert await state(new) == {"a": "1"}
    await write(new, ("b", "2"))
    assert await new.leader(TOPIC, 0).log.tier()
    assert await state(new) == {"a": "1", "b": "2"}
    await new.abort()


# --- lost bundles


async def three_segments(store: ScriptedStore) -> list[str]:
    """Their bundles' keys; the node that wrote them is gone."""
    node = await led(store)
    log = node.leader(TOPIC, 0).log
    for key in "abc":
        await write(node, (key, "1"))
        assert await log.tier()
    keys = [row.index_key for row in await log.manifest.segments()]
    await node.abort()
    return [key for key in keys if key is not None]


@pytest.mark.parametrize("lost", [{2}, {1, 2}, {0, 1, 2}, {0}, {0, 2}])
def test_a_lost_bundle_is_rebuilt_with_its_table(lost: set[int]) -> None:
    async def main() -> None:
        store = ScriptedStore()
        keys = await three_segments(store)
        for at in sorted(lost):
            await store.delete(keys[at])
        new = await led(store, node_id=2)
        assert await state(new) == {"a": "1", "b": "1", "c": "1"}
        segments = await new.leader(TOPIC, 0).log.manifest.segments()
        last = await load_bundle(store, segments[-1])
        assert [row.key for row in last.state or ()] == [b"a", b"b", b"c"]
        await new.abort()

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_table_that_nothing_is_left_of_is_an_error_and_not_an_empty_one() -> None:
    store = ScriptedStore()
    keys = await three_segments(store)
    old = await led(store, node_id=2)
    log = old.leader(TOPIC, 0).log
    await move_start(log.manifest, 2, end=3)
    await old.abort()
    await store.delete(keys[2])
    new = await Node.start(store, NARROW, node_id=3, probe=False)
    with pytest.raises(DamagedError, match="STATE"):
        await take_over(new)
    assert not new.led.partitions
    await new.abort()


@in_simulation
async def test_a_kept_bundle_that_is_lost_is_an_error_too() -> None:
    store = ScriptedStore()
    keys = await three_segments(store)
    old = await led(store, node_id=2)
    await move_start(old.leader(TOPIC, 0).log.manifest, 3, end=3)
    await old.abort()
    await store.delete(keys[2])
    new = await Node.start(store, NARROW, node_id=3, probe=False)
    with pytest.raises(DamagedError, match="STATE"):
        await take_over(new)
    await new.abort()


@in_simulation
async def test_other_partitions_have_no_table() -> None:
    store = ScriptedStore()
    node = await Node.start(store, NARROW, node_id=1, probe=False)
    await node.topics.create("plain", 1)
    log = node.leader("plain", 0).log
    await log.append(bytearray(build_batch([Record(0, 5, b"a", b"1")]))).commit.wait()
    assert await log.tier()
    (segment,) = await log.manifest.segments()
    assert (await load_bundle(store, segment)).state is None
    with pytest.raises(InvalidError, match="not an internal partition"):
        await log.load_state()
    assert log.state_floor == log.high_watermark == 1
    await node.abort()
