"""Helps of a KafScale bucket, written where they are missing, in KafScale's own formats."""

from __future__ import annotations

from neve.bucket.maintain.kafscale_files import (
    FilesResult,
    build_kafscale_files,
    list_kafscale,
)
from neve.bucket.model import PartitionName
from neve.log.segment.kafscale import decode_times
from neve.records.reference import Record, build_batch
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.port import Store
from support import foreign_bucket as foreign
from support.foreign_bucket import COUNTS, PLACE
from support.node_world import CrashingStore, crash_everywhere
from support.scripted_store import ScriptedStore, in_simulation

ORDERS = PartitionName("orders", 0)


async def built(store: Store, name: PartitionName = ORDERS, **about: bool) -> FilesResult:
    found = await list_kafscale(store)
    return await build_kafscale_files(store, name, found.partitions[name], **about)


@in_simulation
async def test_what_is_missing_is_written_as_kafscale_writes_it() -> None:
    store = MemoryStore()
    counts = (30, 70, 10, 95, 5, 1)
    key = foreign.add(store.bucket, 40, counts, indexed=False)
    result = await built(store)
    assert result.indexes == [f"{key}.index"]
    assert result.times == [f"{key}.kfst"]
    parts = foreign.batches(40, counts)
    assert store.bucket.objects[f"{key}.index"][0] == foreign.index(40, parts, counts, 100)
    assert store.bucket.objects[f"{key}.kfst"][0] == foreign.times(40, 40 + sum(counts) - 1)


@in_simulation
async def test_what_is_sound_is_never_written_over() -> None:
    store = ScriptedStore()
    foreign.add(store.bucket, 0, timed=True)
    foreign.add(store.bucket, 10)
    before = dict(store.bucket.objects)
    result = await built(store)
    assert (result.segments, result.indexes, len(result.times)) == (2, [], 1)
    assert {key: store.bucket.objects[key] for key in before} == before
    assert (await built(store)).times == []


@in_simulation
async def test_damaged_helps_are_replaced() -> None:
    store = MemoryStore()
    first = foreign.add(store.bucket, 0, timed=True)
    second = foreign.add(store.bucket, 10, timed=True)
    third = foreign.add(store.bucket, 20)
    whole = dict(store.bucket.objects)
    foreign.damage(store.bucket, f"{first}.index", 0)
    foreign.damage(store.bucket, f"{second}.kfst", 0)
    foreign.damage(store.bucket, f"{third}.index", 16 + 12 + 11)  # to where no batch begins
    result = await built(store)
    assert result.indexes == [f"{first}.index", f"{third}.index"]
    assert result.times == [f"{second}.kfst", f"{third}.kfst"]
    assert store.bucket.objects[f"{second}.kfst"][0] == whole[f"{second}.kfst"][0]
    again = await built(store)
    assert (again.indexes, again.times) == ([], [])


@in_simulation
async def test_half_pairs_are_named_and_left_alone() -> None:
    store = MemoryStore()
    foreign.add(store.bucket, 0)
    stray = f"{PLACE}/segment-{99:020d}.index"
    store.bucket.write(stray, b"no segment is beside it")
    assert (await list_kafscale(store)).half_pairs == [stray]
    await built(store)
    assert store.bucket.objects[stray][0] == b"no segment is beside it"


@in_simulation
async def test_a_damaged_segment_gets_no_helps_and_the_others_do() -> None:
    store = MemoryStore()
    bad = foreign.add(store.bucket, 0, indexed=False)
    good = foreign.add(store.bucket, 10, indexed=False)
    foreign.damage(store.bucket, f"{bad}.kfs")
    result = await built(store)
    assert result.indexes == [f"{good}.index"]
    assert [text.split()[0] for text in result.failed] == [f"{bad}.kfs"]


@in_simulation
async def test_a_segment_whose_key_contradicts_its_base_gets_no_helps() -> None:
    store = MemoryStore()
    right = foreign.add(store.bucket, 7, indexed=False)
    wrong = f"{PLACE}/segment-{5:020d}"
    await store.put(f"{wrong}.kfs", bytes(await store.get(f"{right}.kfs")))
    await store.delete(f"{right}.kfs")
    result = await built(store)
    assert (result.indexes, result.times) == ([], [])
    assert "begins at offset 5, it begins at 7" in result.failed[0]
    assert list(store.bucket.objects) == [f"{wrong}.kfs"]


@in_simulation
async def test_times_are_those_of_records_not_of_batches() -> None:
    store = MemoryStore()
    rows = [Record(0, 5_000, None, b"a"), Record(1, 3_000, None, b"b"), Record(2, 9_000, None, b"")]
    for codec in (0, 4):
        part = build_batch(rows, codec=codec)
        key = f"{PLACE}/segment-{0:020d}"
        store.bucket.write(f"{key}.kfs", foreign.segment(0, [part], 3))
        store.bucket.remove(f"{key}.kfst")
        await built(store)
        found = decode_times(store.bucket.objects[f"{key}.kfst"][0], key)
        assert found == (3_000, 9_000, 0, 2)


@in_simulation
async def test_a_dry_run_writes_nothing() -> None:
    store = MemoryStore()
    key = foreign.add(store.bucket, 0, indexed=False)
    before = dict(store.bucket.objects)
    result = await built(store, dry_run=True)
    assert (result.indexes, result.times) == ([f"{key}.index"], [f"{key}.kfst"])
    assert store.bucket.objects == before


def test_killed_at_any_call_the_next_run_ends_it() -> None:
    origin = MemoryBucket()
    key = foreign.add(origin, 0, indexed=False)
    foreign.add(origin, 10, timed=True)
    foreign.damage(origin, f"{PLACE}/segment-{10:020d}.kfst", 1)

    async def life(store: CrashingStore) -> None:
        try:
            await built(store)
        except Exception:
            assert store.crashed

    async def check(bucket: MemoryBucket, _: None) -> None:
        store = MemoryStore(bucket)
        await built(store)
        again = await built(store)
        assert (again.indexes, again.times, again.failed) == ([], [], [])
        parts = foreign.batches(0, COUNTS)
        assert bucket.objects[f"{key}.kfs"][0] == foreign.segment(0, parts, sum(COUNTS))

    crash_everywhere(origin, life, check, step=1, seed=2)


@in_simulation
async def test_times_of_a_segment_that_was_written_over_are_replaced() -> None:
    store = MemoryStore()
    key = foreign.add(store.bucket, 0, timed=True)
    store.bucket.write(f"{key}.kfst", foreign.times(0, 4))
    found = (await list_kafscale(store)).partitions
    (name,) = found
    done = await build_kafscale_files(store, name, found[name])
    assert done.times == [f"{key}.kfst"]
    assert bytes(store.bucket.objects[f"{key}.kfst"][0]) == foreign.times(0, 9)
