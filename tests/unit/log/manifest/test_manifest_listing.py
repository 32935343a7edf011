"""What readers of a manifest are given: segments by offset, and runs read when needed."""

from __future__ import annotations

import pytest

from neve.errors import DamagedError
from neve.log.manifest.records import (
    Reindex,
    Replace,
    Runs,
    Start,
    removal,
)
from support.manifest_rows import segment
from support.manifests import changed, listed, opened, with_segments
from support.scripted_store import ScriptedStore, in_simulation


@in_simulation
async def test_segments_are_listed_by_offset(store: ScriptedStore) -> None:
    await with_segments(store, 5, gathered=3)
    assert await listed(store) == ["s0000", "s0010", "s0020", "s0030", "s0040"]
    assert await listed(store, 15, 34) == ["s0010", "s0020", "s0030"]
    assert await listed(store, 20, 20) == ["s0020"]
    assert await listed(store, 50) == []


@in_simulation
async def test_a_run_outside_the_wanted_offsets_is_not_read(store: ScriptedStore) -> None:
    await with_segments(store, 4, gathered=2)
    manifest = opened(store)
    await manifest.refresh()
    store.calls.clear()
    assert len(await manifest.segments(20)) == 2
    assert store.calls == []


@in_simulation
async def test_a_run_is_read_once(store: ScriptedStore) -> None:
    await with_segments(store, 4, gathered=4)
    manifest = opened(store)
    await manifest.refresh()
    store.calls.clear()
    for _ in range(3):
        assert len(await manifest.segments()) == 4
    assert len(store.calls) == 1


@in_simulation
async def test_what_happened_to_segments_in_runs_is_seen(store: ScriptedStore) -> None:
    manifest = await with_segments(store, 4, gathered=3)
    rows = await manifest.segments()
    await changed(
        manifest,
        Reindex(rows[1].key, 10, rows[1].index_key, "rebuilt", 5),
        Replace((removal(rows[2]),), (segment(20, name="m"),)),
    )
    found = await manifest.segments()
    assert [row.key for row in found] == ["s0000", "s0010", "m", "s0030"]
    assert (found[1].index_key, found[1].index_bytes) == ("rebuilt", 5)
    await changed(manifest, Start(10, (removal(rows[0]),)))
    assert await listed(store) == ["s0010", "m", "s0030"]


@in_simulation
async def test_what_lies_below_the_start_is_not_given_to_readers(store: ScriptedStore) -> None:
    manifest = await with_segments(store, 4, gathered=2)
    await changed(manifest, Start(25))
    assert await listed(store) == ["s0020", "s0030"]


@in_simulation
async def test_a_run_replaced_under_a_reader_is_looked_up_again(store: ScriptedStore) -> None:
    writer = await with_segments(store, 4, gathered=2)
    reader = opened(store)
    await reader.refresh()
    old = writer.state.runs[0]
    rows = await writer.segments(0, 19)
    fresh = await writer._upload_run(rows)
    await changed(writer, Runs((fresh,), (old.key,)))
    assert await writer.checkpoint(1)
    assert await writer.collect() == [old.key]
    assert [row.key for row in await reader.segments()] == ["s0000", "s0010", "s0020", "s0030"]


@in_simulation
async def test_a_listed_run_that_is_gone_is_damage_that_names_it(store: ScriptedStore) -> None:
    manifest = await with_segments(store, 3, gathered=2)
    run = manifest.state.runs[0]
    await store.delete(run.key)
    reader = opened(store)
    await reader.refresh()
    with pytest.raises(DamagedError) as raised:
        await reader.segments()
    assert raised.value.key == run.key
    assert len(await reader.segments(20)) == 1
