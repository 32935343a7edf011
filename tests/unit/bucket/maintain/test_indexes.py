"""Bundles that are missing or damaged are built again, for the list as it is then."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.bucket.maintain.indexes import build_partition_indexes
from neve.bucket.maintain.merge import merge_partition
from neve.log.remote import load_bundle
from neve.store.memory import MemoryBucket, MemoryStore
from support import internal_table as internal
from support.maintenance_world import (
    assert_clean,
    assert_no_worse_than_orphans,
    filled,
    filled_bucket,
    listed,
    manifest_of,
)
from support.node_world import TOPIC, CrashingStore, crash_everywhere, values_of
from support.scripted_store import ScriptedStore, first, in_simulation


def harm(bucket: MemoryBucket, key: str | None) -> None:
    data = bytearray(bucket.objects[str(key)][0])
    data[-1] ^= 1
    bucket.write(str(key), bytes(data))


@in_simulation
async def test_lost_and_damaged_bundles_are_built_again() -> None:
    store = MemoryStore()
    node, values = await filled(store, 4)
    rows = await listed(manifest_of(node, store))
    before = [await load_bundle(store, row) for row in rows]
    store.bucket.remove(rows[1].index_key or "")
    harm(store.bucket, rows[2].index_key)
    result = await build_partition_indexes(store, TOPIC, 0)
    assert result.built == [rows[1].key, rows[2].key]
    assert not result.failed
    after = await listed(manifest_of(node, store))
    assert [row.key for row in after] == [row.key for row in rows]
    for row, old in zip(after, before, strict=True):
        bundle = await load_bundle(store, row)
        bundle.check_all()
        assert bundle.producers == old.producers
        assert bundle.epochs == old.epochs
    assert await values_of(store) == values
    await merge_partition(store, TOPIC, 0)
    await assert_clean(store)
    await node.close()


@in_simulation
async def test_sound_bundles_are_left_as_they_are() -> None:
    store = ScriptedStore()
    node, _ = await filled(store, 3)
    before = dict(store.bucket.objects)
    result = await build_partition_indexes(store, TOPIC, 0)
    assert (result.segments, result.built) == (3, [])
    assert store.bucket.objects == before
    await node.close()


@in_simulation
async def test_a_dry_run_names_them_only() -> None:
    store = ScriptedStore()
    node, _ = await filled(store, 3)
    rows = await listed(manifest_of(node, store))
    store.bucket.remove(rows[0].index_key or "")
    before = dict(store.bucket.objects)
    assert (await build_partition_indexes(store, TOPIC, 0, dry_run=True)).built == [rows[0].key]
    assert store.bucket.objects == before
    await node.close()


@in_simulation
async def test_where_the_segment_is_damaged_too_it_says_so() -> None:
    store = MemoryStore()
    node, _ = await filled(store, 3)
    rows = await listed(manifest_of(node, store))
    store.bucket.remove(rows[1].index_key or "")
    data = bytearray(store.bucket.objects[rows[1].key][0])
    data[60] ^= 1
    store.bucket.write(rows[1].key, bytes(data))
    result = await build_partition_indexes(store, TOPIC, 0)
    assert result.built == []
    assert [text.split(":")[0] for text in result.failed] == [rows[1].key]
    await node.close()


@in_simulation
async def test_a_segment_with_other_offsets_than_are_listed_gets_no_index() -> None:
    store = MemoryStore()
    node, _ = await filled(store, 2)
    rows = await listed(manifest_of(node, store))
    store.bucket.write(rows[1].key, bytes(store.bucket.objects[rows[0].key][0]))
    harm(store.bucket, rows[1].index_key)
    before = set(store.bucket.objects)
    result = await build_partition_indexes(store, TOPIC, 0)
    assert result.built == []
    assert "no index is written for it" in result.failed[0]
    assert set(store.bucket.objects) == before
    await node.close()


@in_simulation
async def test_a_merge_that_comes_in_between_needs_no_index() -> None:
    store = ScriptedStore()
    node, values = await filled(store, 3)
    rows = await listed(manifest_of(node, store))
    store.bucket.remove(rows[1].index_key or "")
    other = MemoryStore(store.bucket)

    async def merge() -> None:
        await merge_partition(other, TOPIC, 0)

    store.when("create", lambda key: key.endswith(".index"), first(merge))
    result = await build_partition_indexes(store, TOPIC, 0)
    assert (result.built, result.failed) == ([], [])
    await manifest_of(node, other).collect()
    assert await values_of(store) == values
    await assert_clean(store)
    await node.close()


@pytest.mark.parametrize("in_run", [False, True])
def test_the_table_of_an_internal_partition_is_walked_to(in_run: bool) -> None:
    async def run() -> None:
        store = ScriptedStore()
        node = await internal.led(store)
        log = node.leader(internal.TOPIC, 0).log
        for number in range(4):
            await internal.write(node, (f"k{number}", "1"), ("same", str(number)))
            await log.tier()
        if in_run:
            assert await log.manifest.gather_runs(4)
        rows = await listed(log.manifest)
        tables = [(await load_bundle(store, row)).state for row in rows]
        for row in rows[1:3]:
            store.bucket.remove(row.index_key or "")
        result = await build_partition_indexes(store, internal.TOPIC, 0)
        assert len(result.built) == 2
        after = await listed(log.manifest)
        assert [(await load_bundle(store, row)).state for row in after] == tables
        await assert_clean(store)
        await node.close()

    runtime.simulate(run(), seed=1)


def test_killed_at_any_call_the_records_are_there_and_the_next_run_ends_it() -> None:
    origin, values = filled_bucket(3)
    indexes = [key for key in origin.keys if key.endswith(".index")]
    origin.remove(indexes[0])
    harm(origin, indexes[1])

    async def life(store: CrashingStore) -> None:
        try:
            await build_partition_indexes(store, TOPIC, 0)
        except Exception:
            assert store.crashed

    async def check(bucket: MemoryBucket, _: None) -> None:
        store = MemoryStore(bucket)
        assert await values_of(store) == values
        await build_partition_indexes(store, TOPIC, 0)
        await assert_no_worse_than_orphans(store)
        await merge_partition(store, TOPIC, 0, target_bytes=1, orphan_age_ms=0)
        assert await values_of(store) == values
        await assert_clean(store)

    crash_everywhere(origin, life, check, step=2, seed=5)
