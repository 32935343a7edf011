"""Checkpoints of a manifest, and runs that gather its segments."""

from __future__ import annotations

import pytest

from neve.errors import ConflictError, ExistsError, UnavailableError
from neve.log.manifest import manifest as module
from neve.log.manifest.records import (
    Add,
    Change,
    Collected,
    Doom,
    Reindex,
    Replace,
    Skip,
    Start,
    removal,
)
from neve.log.series import greatest_checkpoint
from support.manifest_rows import segment
from support.manifests import KEYS, changed, listed, opened, with_segments
from support.scripted_store import ScriptedStore, first, in_simulation, refuse, then

# --- checkpoints


@in_simulation
async def test_a_checkpoint_is_written_and_trimmed_after_so_many_numbers(
    store: ScriptedStore,
) -> None:
    manifest = await with_segments(store, 3)
    assert not await manifest.checkpoint(4)
    assert await manifest.checkpoint(3)
    assert store.listed(KEYS.prefix) == [KEYS.checkpoint(3)]
    assert not await manifest.checkpoint(1)
    await changed(manifest, Start(1))
    assert not await manifest.checkpoint(2)


@in_simulation
async def test_another_s_checkpoint_counts_too(store: ScriptedStore) -> None:
    manifest, other = await with_segments(store, 3), opened(store)
    await other.refresh()
    assert await other.checkpoint(3)
    assert not await manifest.checkpoint(2)


@in_simulation
async def test_a_checkpoint_sums_up_the_view_it_was_asked_for(store: ScriptedStore) -> None:
    """The view moves on while the look is under way: what is noted must be what was written."""
    manifest = await with_segments(store, 3)
    await manifest.refresh()

    async def move_on() -> None:
        store.scripts.clear()
        await changed(manifest, Start(1), Start(2))

    store.when("create", KEYS.checkpoint(3), then(move_on))
    assert await manifest.checkpoint(3)
    assert await greatest_checkpoint(store, KEYS) == 3
    assert await manifest.checkpoint(2)


@in_simulation
async def test_two_processes_write_the_same_checkpoint(store: ScriptedStore) -> None:
    manifest = await with_segments(store, 4, gathered=3)
    await changed(manifest, Doom(("a", "b")), Skip(1, 2, 3, "lost"), Collected(("a",)))
    other = opened(store)
    assert await other.refresh() == manifest.state


# --- runs


@in_simulation
async def test_too_few_segments_are_not_gathered(store: ScriptedStore) -> None:
    manifest = await with_segments(store, 2)
    assert not await manifest.gather_runs(3)
    assert store.listed(f"{KEYS.prefix}run/") == []


@in_simulation
async def test_gathering_keeps_the_listed_set(store: ScriptedStore) -> None:
    manifest = await with_segments(store, 7)
    before = await manifest.segments()
    assert await manifest.gather_runs(3)
    assert [row.key for row in manifest.state.loose] == ["s0060"]
    assert await manifest.segments() == before
    assert await listed(store) == [row.key for row in before]


@in_simulation
async def test_a_run_has_a_bounded_number_of_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RUN_SEGMENTS_MAX", 2)
    store = ScriptedStore()
    manifest = await with_segments(store, 5)
    assert await manifest.gather_runs(5)
    assert [run.segments for run in manifest.state.runs] == [2, 2, 1]
    assert len(await listed(store)) == 5


@pytest.mark.parametrize(
    "change",
    [
        Replace((removal(segment(0)),), (segment(0, name="m"),)),
        Reindex("s0000", 0, "s0000.index", "rebuilt", 1),
        Start(10, (removal(segment(0)),)),
    ],
    ids=["replaced", "reindexed", "expired"],
)
@in_simulation
async def test_segments_changed_meanwhile_are_not_gathered(
    change: Change, store: ScriptedStore
) -> None:
    manifest, other = await with_segments(store, 3), opened(store)

    async def intrude() -> None:
        store.scripts.clear()
        await changed(other, change)

    store.when("create", KEYS.number(3), first(intrude))
    assert not await manifest.gather_runs(3)
    assert manifest.state.runs == ()
    assert manifest.state.loose == other.state.loose


@in_simulation
async def test_segments_added_meanwhile_do_not_stop_a_gathering(store: ScriptedStore) -> None:
    manifest, other = await with_segments(store, 3), opened(store)

    async def intrude() -> None:
        store.scripts.clear()
        await changed(other, Add((segment(30),)))

    store.when("create", KEYS.number(3), first(intrude))
    assert await manifest.gather_runs(3)
    assert await listed(store) == ["s0000", "s0010", "s0020", "s0030"]


@in_simulation
async def test_a_run_whose_segments_are_all_gone_is_dropped_with_its_notes(
    store: ScriptedStore,
) -> None:
    manifest = await with_segments(store, 5, gathered=3)
    rows = await manifest.segments()
    await changed(manifest, Replace((removal(rows[1]),), (segment(10, name="m"),)))
    await changed(manifest, Start(10, (removal(rows[0]),)))
    assert not await manifest.drop_empty_runs()
    await changed(manifest, Start(30, (removal(segment(10, name="m")), removal(rows[2]))))
    (run,) = manifest.state.runs
    before = await manifest.segments()
    assert await manifest.drop_empty_runs()
    state = manifest.state
    assert (state.runs, state.removed) == ((), ())
    assert [row.key for row in state.doomed_runs] == [run.key]
    assert await manifest.segments() == before
    assert await manifest.checkpoint(1)
    assert run.key in await manifest.collect()
    assert not await manifest.drop_empty_runs()
    assert await listed(store) == ["s0030", "s0040"]


@in_simulation
async def test_a_log_that_expires_for_ever_keeps_a_bounded_manifest(store: ScriptedStore) -> None:
    manifest = opened(store)
    await manifest.refresh()
    for at in range(60):
        await changed(manifest, Add((segment(10 * at),)))
        rows = await manifest.segments()
        if len(rows) > 6:
            await changed(manifest, Start(rows[0].last + 1, (removal(rows[0]),)))
        await manifest.gather_runs(4)
        await manifest.checkpoint(8)
        await manifest.collect()
    state = manifest.state
    assert len(state.runs) <= 3
    assert len(state.removed) < 4
    assert len(state.loose) < 8
    assert state.doomed == ()
    assert len(store.listed(KEYS.prefix)) < 20
    assert len(await listed(store)) == 6


@pytest.mark.parametrize("error", [ExistsError, ConflictError, UnavailableError])
@in_simulation
async def test_a_run_is_listed_only_if_it_is_there(
    error: type[Exception], store: ScriptedStore
) -> None:
    """A create refused although nothing is there says nothing; the list would be lost with it."""

    manifest = await with_segments(store, 3)
    store.when("create", lambda key: "/run/" in key, refuse(error))
    assert await manifest.gather_runs(3)
    assert await listed(store) == ["s0000", "s0010", "s0020"]
