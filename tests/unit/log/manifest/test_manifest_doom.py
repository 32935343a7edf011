"""Doomed keys of a manifest: which keys may be doomed, and when their objects are deleted."""

from __future__ import annotations

import asyncio

import pytest

from neve import runtime
from neve.errors import UnavailableError
from neve.log.manifest.manifest import DoomedError
from neve.log.manifest.records import (
    Add,
    Reindex,
    Runs,
    Start,
    removal,
)
from support.manifest_rows import segment
from support.manifests import KEYS, changed, listed, opened, with_segments
from support.scripted_store import ScriptedStore, first, hold, in_simulation, refuse

# --- dooming


@in_simulation
async def test_only_what_is_not_listed_is_doomed(store: ScriptedStore) -> None:
    manifest = await with_segments(store, 4, gathered=2)
    run = manifest.state.runs[0].key
    rows = await manifest.segments()
    all_keys = [key for row in rows for key in (row.key, f"{row.index_key}")]
    assert await manifest.doom([*all_keys, run, "orphan"]) == ["orphan"]
    assert manifest.state.doomed == ("orphan",)
    assert await manifest.doom(["orphan"]) == []


@in_simulation
async def test_a_listed_segment_below_the_start_is_not_doomed(store: ScriptedStore) -> None:
    manifest = await with_segments(store, 3, gathered=2)
    await changed(manifest, Start(15))
    assert await manifest.doom(["s0000", "s0000.index", "s0010"]) == []


@in_simulation
async def test_the_kept_bundle_and_a_rebuilt_one_are_not_doomed(store: ScriptedStore) -> None:
    manifest = await with_segments(store, 3, gathered=2)
    rows = await manifest.segments()
    await changed(
        manifest,
        Reindex("s0010", 10, "s0010.index", "rebuilt", 1),
        Start(30, (removal(rows[2]),)),
    )
    assert manifest.state.state_bundle is not None
    assert await manifest.doom(["rebuilt", "s0020.index"]) == []


@in_simulation
async def test_a_key_listed_between_our_look_and_our_number_is_not_doomed(
    store: ScriptedStore,
) -> None:
    other = await with_segments(store, 1)

    async def list_it() -> None:
        store.scripts.clear()
        await changed(other, Add((segment(10),)))

    store.when("create", KEYS.number(1), first(list_it))
    assert await opened(store).doom(["s0010", "orphan"]) == ["orphan"]


@in_simulation
async def test_a_key_listed_and_moved_into_a_run_meanwhile_is_not_doomed(
    store: ScriptedStore,
) -> None:
    other = await with_segments(store, 1)

    async def list_and_gather() -> None:
        store.scripts.clear()
        await changed(other, Add((segment(10),)))
        assert await other.gather_runs(2)
        assert other.state.loose == ()

    store.when("create", KEYS.number(1), first(list_and_gather))
    assert await opened(store).doom(["s0010", "s0010.index"]) == []


@in_simulation
async def test_a_key_listed_and_moved_behind_a_checkpoint_meanwhile_is_not_doomed(
    store: ScriptedStore,
) -> None:
    other = await with_segments(store, 1)

    async def list_gather_and_checkpoint() -> None:
        store.scripts.clear()
        await changed(other, Add((segment(10),)))
        assert await other.gather_runs(2)
        assert await other.checkpoint(1)

    store.when("create", KEYS.number(1), first(list_gather_and_checkpoint))
    assert await opened(store).doom(["s0010", "s0010.index"]) == []


@in_simulation
async def test_a_run_that_was_uploaded_and_not_listed_can_be_doomed(store: ScriptedStore) -> None:
    manifest, repair = await with_segments(store, 2), opened(store)
    release, reached = asyncio.Event(), asyncio.Event()
    store.when("create", KEYS.number(2), hold(release, reached))
    gathering = runtime.spawn(manifest.gather_runs(2))
    await reached.wait()
    (run,) = store.listed(f"{KEYS.prefix}run/")
    assert await repair.doom([run]) == [run]
    assert await repair.collect() == [run]
    release.set()
    with pytest.raises(DoomedError):
        await gathering
    assert await listed(store) == ["s0000", "s0010"]


# --- collecting


@in_simulation
async def test_only_what_is_doomed_is_deleted(store: ScriptedStore) -> None:
    manifest = await with_segments(store, 3)
    await store.put("orphan", b"")
    rows = await manifest.segments()
    await changed(manifest, Start(10, (removal(rows[0]),)))
    before = set(store.listed())
    assert await manifest.collect() == ["s0000", "s0000.index"]
    assert before - set(store.listed()) == {"s0000", "s0000.index"}
    assert manifest.state.doomed == ()
    assert await manifest.collect() == []


@in_simulation
async def test_a_collector_that_dies_before_it_says_so_is_followed_by_another(
    store: ScriptedStore,
) -> None:
    manifest = await with_segments(store, 1)
    await manifest.doom(["orphan"])
    store.when("create", KEYS.number(2), refuse(UnavailableError), times=None)
    with pytest.raises(UnavailableError):
        await manifest.collect()
    store.scripts.clear()
    assert await opened(store).collect() == ["orphan"]


@in_simulation
async def test_two_collectors_at_once() -> None:
    store = ScriptedStore(latency=lambda: runtime.chance().random() / 10)
    manifest = await with_segments(store, 1)
    await manifest.doom(["one", "two"])
    await runtime.gather(opened(store).collect(), opened(store).collect())
    assert (await manifest.refresh()).doomed == ()


@in_simulation
async def test_a_replaced_run_is_deleted_only_after_a_checkpoint_above(
    store: ScriptedStore,
) -> None:
    manifest = await with_segments(store, 2, gathered=2)
    assert await manifest.checkpoint(1)
    old = manifest.state.runs[0].key
    fresh = await manifest._upload_run(await manifest.segments())
    await changed(manifest, Runs((fresh,), (old,)))
    assert await manifest.collect() == []
    assert old in store.listed()
    assert await manifest.checkpoint(1)
    assert await manifest.collect() == [old]
    assert old not in store.listed()
    assert manifest.state.doomed_runs == ()
    assert await listed(store) == ["s0000", "s0010"]
