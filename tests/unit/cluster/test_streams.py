"""Retiring streams: only what nobody needs, never what keeps a late upload out."""

from __future__ import annotations

import pytest

from neve.cluster.log import ClusterLog
from neve.cluster.node import Node
from neve.cluster.streams import retire_streams
from neve.errors import DamagedError, NeveError
from neve.log.keys import WAL_PREFIX, wal_stream
from neve.log.wal import object as wal_object
from neve.log.wal.object import Kind, SliceMeta
from neve.log.wal.reader import WalReader
from neve.log.wal.seal import Sealer
from support.node_world import (
    TOPIC,
    batch_of,
    send,
    small_settings,
    started,
    successor,
    topic_of,
    values_of,
    values_of_topic,
)
from support.scripted_store import ScriptedStore, first, in_simulation, then


async def taken_over(store: ScriptedStore, *, tiered: bool = True) -> tuple[Node, Node]:
    """A node that is gone and its successor, with everything in segments if asked for."""
    old = await started(store, small_settings(segment_ms=1))
    for value in "abcdef":
        await send(old, [value])
    await old.abort()
    new = await successor(store, small_settings(segment_ms=1), node_id=1)
    if tiered:
        await new.run_due_work()
    return old, new


def stream_keys(store: ScriptedStore, incarnation: int) -> list[str]:
    return store.listed(wal_stream(incarnation).prefix)


def a_late_upload(node: Node, number: int) -> bytes:
    meta = SliceMeta(topic_of(node).id_bytes, 0, 0, 6, 6, 1_000)
    return wal_object.encode(
        Kind.DATA,
        [(meta, [bytes(batch_of(["late"]))])],
        incarnation=node.incarnation,
        number=number,
        author=bytes(16),
        created_ms=0,
    ).data


@in_simulation
async def test_a_stream_that_nobody_needs_shrinks_to_its_seal_and_checkpoint() -> None:
    store = ScriptedStore()
    old, new = await taken_over(store)
    end = new.takeover.sealed[old.incarnation]
    assert await new.collect() > 0
    keys = wal_stream(old.incarnation)
    assert stream_keys(store, old.incarnation) == [keys.number(end), keys.checkpoint(end)]
    assert await values_of(store) == list("abcdef")
    await new.abort()


@in_simulation
async def test_retiring_twice_asks_for_nothing_more() -> None:
    store = ScriptedStore()
    _, new = await taken_over(store)
    await new.collect()
    await new.cluster.refresh()
    store.calls.clear()
    assert await retire_streams(store, new.cluster) == 0
    asked = [call.key for call in store.calls if call.key.startswith(WAL_PREFIX)]
    assert asked == [WAL_PREFIX]
    await new.abort()


@in_simulation
async def test_a_stream_that_a_partition_needs_is_left_alone() -> None:
    store = ScriptedStore()
    old, new = await taken_over(store, tiered=False)
    before = stream_keys(store, old.incarnation)
    assert await new.collect() == 0
    assert stream_keys(store, old.incarnation) == before
    assert await values_of(store) == list("abcdef")
    await new.abort()


@in_simulation
async def test_a_stream_that_no_take_over_sealed_is_sealed_and_retired() -> None:
    store = ScriptedStore()
    old = await started(store)
    await send(old, ["a"])
    await old.cluster.delete_topic(TOPIC)
    again = await Node.start(store, small_settings(), node_id=1)
    assert await retire_streams(store, again.cluster) == 1
    assert not await old.writer.still_leading()
    await retire_streams(store, again.cluster)  # seals beyond the end
    keys = wal_stream(old.incarnation)
    assert stream_keys(store, old.incarnation) == [keys.number(1), keys.checkpoint(1)]
    await old.abort()
    await again.abort()


@in_simulation
async def test_a_live_process_s_stream_is_left_alone() -> None:
    store = ScriptedStore()
    old = await started(store)
    await send(old, ["a"])
    await old.cluster.delete_topic(TOPIC)
    await Sealer(store, old.incarnation, window=4).seal()
    before = stream_keys(store, old.incarnation)
    assert await retire_streams(store, old.cluster) == 0
    assert stream_keys(store, old.incarnation) == before
    await old.abort()


@in_simulation
async def test_a_stream_of_one_number_and_its_seal_is_retired_too() -> None:
    store = ScriptedStore()
    old = await started(store)
    await send(old, ["a"])
    await old.abort()
    end = await Sealer(store, old.incarnation, window=1).seal()
    for key in stream_keys(store, old.incarnation)[end + 1 :]:
        await store.delete(key)  # seals beyond the end
    assert len(stream_keys(store, old.incarnation)) == 2
    again = await Node.start(store, small_settings(), node_id=1)
    await again.cluster.delete_topic(TOPIC)
    assert await retire_streams(store, again.cluster) == 1
    keys = wal_stream(old.incarnation)
    assert stream_keys(store, old.incarnation) == [keys.number(1), keys.checkpoint(1)]
    await again.abort()


@in_simulation
async def test_the_checkpoint_is_there_before_anything_goes() -> None:
    store = ScriptedStore()
    old = await started(store)
    await send(old, ["a"])
    await old.abort()
    await Sealer(store, old.incarnation, window=4).seal()
    again = await Node.start(store, small_settings(), node_id=1)
    await again.cluster.delete_topic(TOPIC)
    keys, there = wal_stream(old.incarnation), []

    async def look() -> None:
        there.append(keys.checkpoint(1) in store.listed())

    store.when("delete", keys.number(0), then(look))
    await retire_streams(store, again.cluster)
    assert there == [True]
    await again.abort()


@in_simulation
async def test_a_process_that_registers_and_commits_as_streams_are_listed_loses_nothing() -> None:
    """The cluster log as it was before the listing does not know that process."""
    store = ScriptedStore()
    old = await started(store)
    stale = ClusterLog(store)
    await stale.refresh()
    young: list[Node] = []

    async def start() -> None:
        store.scripts.clear()
        young.append(await successor(store, node_id=2))
        for value in "abc":
            await send(young[0], [value])

    store.when("list", WAL_PREFIX, first(start))
    await retire_streams(store, stale)
    assert await young[0].writer.still_leading()
    assert await values_of(store) == list("abc")
    for node in (old, *young):
        await node.abort()


@in_simulation
async def test_a_late_upload_of_the_dead_owner_cannot_commit() -> None:
    store = ScriptedStore()
    old, new = await taken_over(store)
    end = new.takeover.sealed[old.incarnation]
    await new.collect()
    for number in (0, end - 1, end + 1):
        await store.create(wal_stream(old.incarnation).number(number), a_late_upload(old, number))
    reader = WalReader(store, old.incarnation)
    assert await reader.end() == (end, end)
    third = await successor(store, node_id=3)
    assert third.leader(TOPIC, 0).log.next_offset == 6
    assert await values_of(store) == list("abcdef")
    await new.abort()
    await third.abort()


@in_simulation
async def test_what_landed_late_is_removed_again() -> None:
    store = ScriptedStore()
    old, new = await taken_over(store)
    await new.collect()
    kept = stream_keys(store, old.incarnation)
    await store.create(wal_stream(old.incarnation).number(0), a_late_upload(old, 0))
    assert await new.collect() == 1
    assert stream_keys(store, old.incarnation) == kept
    await new.abort()


@in_simulation
async def test_a_reader_with_an_older_view_of_the_cluster_never_misses_records() -> None:
    store = ScriptedStore()
    _, new = await taken_over(store, tiered=False)
    await new.cluster.refresh()
    older = topic_of(new)
    await new.run_due_work()
    assert await new.collect() > 0
    try:
        found = await values_of_topic(store, older)
    except NeveError as error:  # told apart from damage by a look at the cluster log
        assert isinstance(error, DamagedError), error  # noqa: PT017
    else:
        assert found == list("abcdef")
    newer = (await ClusterLog(store).refresh()).topics[older.topic_id]
    assert newer.partitions[0].streams != older.partitions[0].streams
    assert await values_of_topic(store, newer) == list("abcdef")
    await new.abort()


@in_simulation
async def test_a_damaged_stream_keeps_no_other_from_being_retired() -> None:
    store = ScriptedStore()
    old, new = await taken_over(store)
    await new.abort()
    third = await successor(store, small_settings(segment_ms=1), node_id=1)
    await third.run_due_work()
    end = new.takeover.sealed[old.incarnation]
    await store.put(wal_stream(old.incarnation).number(end), b"damaged")
    with pytest.raises(DamagedError) as raised:
        await third.collect()
    assert raised.value.key == wal_stream(old.incarnation).number(end)
    assert len(stream_keys(store, new.incarnation)) <= 2
    await third.abort()


@in_simulation
async def test_what_is_not_a_stream_s_is_not_touched() -> None:
    store = ScriptedStore()
    _, new = await taken_over(store)
    await store.put(f"{WAL_PREFIX}note", b"mine")
    await new.collect()
    assert f"{WAL_PREFIX}note" in store.listed()
    await new.abort()
