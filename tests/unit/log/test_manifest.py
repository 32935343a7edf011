"""A partition's manifest as processes share it: committing, dooming, collecting, runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from neve import runtime
from neve.errors import ConflictError, DamagedError, ExistsError, UnavailableError
from neve.log import keys
from neve.log.manifest import manifest as module
from neve.log.manifest.manifest import DoomedError, Manifest, ManifestView
from neve.log.manifest.records import (
    Add,
    Change,
    Collected,
    Doom,
    Reindex,
    Replace,
    Runs,
    Segment,
    Skip,
    Start,
    removal,
)
from neve.log.manifest.state import ManifestState
from neve.log.series import PassedError, greatest_checkpoint
from support.manifest_rows import segment
from support.scripted_store import ScriptedStore, first, hold, in_simulation, refuse, then

KEYS = keys.manifest("t", bytes(16), 0)


def opened(store: ScriptedStore) -> Manifest:
    return Manifest(store, KEYS)


async def changed(manifest: Manifest, *changes: Change) -> ManifestState:
    """Win a number for each change."""
    await manifest.refresh()
    for change in changes:
        outcome = await manifest.change(lambda _, change=change: [change])
        assert outcome.number is not None
    return manifest.state


async def with_segments(store: ScriptedStore, count: int, *, gathered: int = 0) -> Manifest:
    """A manifest of ten-offset segments, the first of which may be in runs."""
    manifest = opened(store)
    await manifest.refresh()
    for at in range(count):
        row = segment(10 * at)
        await store.put(row.key, b"segment")
        await store.put(f"{row.index_key}", b"index")
        await changed(manifest, Add((row,)))
        if at + 1 == gathered:
            assert await manifest.gather_runs(gathered)
    return manifest


async def listed(store: ScriptedStore, first: int = 0, last: int | None = None) -> list[str]:
    manifest = opened(store)
    await manifest.refresh()
    return [row.key for row in await manifest.segments(first, last)]


async def committed(
    manifest: Manifest, base: ManifestView, row: Segment
) -> tuple[int | None, ManifestState]:
    """Tier one segment as a leader does."""

    def make(state: ManifestState) -> Sequence[Change]:
        return [Add((row,))] if state.next == row.base else []

    outcome = await manifest.commit(base, [row.key, f"{row.index_key}"], make)
    return outcome.number, outcome.view.state


# --- listing


@in_simulation
async def test_segments_are_listed_by_offset() -> None:
    store = ScriptedStore()
    await with_segments(store, 5, gathered=3)
    assert await listed(store) == ["s0000", "s0010", "s0020", "s0030", "s0040"]
    assert await listed(store, 15, 34) == ["s0010", "s0020", "s0030"]
    assert await listed(store, 20, 20) == ["s0020"]
    assert await listed(store, 50) == []


@in_simulation
async def test_a_run_outside_the_wanted_offsets_is_not_read() -> None:
    store = ScriptedStore()
    await with_segments(store, 4, gathered=2)
    manifest = opened(store)
    await manifest.refresh()
    store.calls.clear()
    assert len(await manifest.segments(20)) == 2
    assert store.calls == []


@in_simulation
async def test_a_run_is_read_once() -> None:
    store = ScriptedStore()
    await with_segments(store, 4, gathered=4)
    manifest = opened(store)
    await manifest.refresh()
    store.calls.clear()
    for _ in range(3):
        assert len(await manifest.segments()) == 4
    assert len(store.calls) == 1


@in_simulation
async def test_what_happened_to_segments_in_runs_is_seen() -> None:
    store = ScriptedStore()
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
async def test_what_lies_below_the_start_is_not_given_to_readers() -> None:
    store = ScriptedStore()
    manifest = await with_segments(store, 4, gathered=2)
    await changed(manifest, Start(25))
    assert await listed(store) == ["s0020", "s0030"]


@in_simulation
async def test_a_run_replaced_under_a_reader_is_looked_up_again() -> None:
    store = ScriptedStore()
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
async def test_a_listed_run_that_is_gone_is_damage_that_names_it() -> None:
    store = ScriptedStore()
    manifest = await with_segments(store, 3, gathered=2)
    run = manifest.state.runs[0]
    await store.delete(run.key)
    reader = opened(store)
    await reader.refresh()
    with pytest.raises(DamagedError) as raised:
        await reader.segments()
    assert raised.value.key == run.key
    assert len(await reader.segments(20)) == 1


# --- committing


@in_simulation
async def test_a_commit_lists_what_was_uploaded() -> None:
    store = ScriptedStore()
    manifest = await with_segments(store, 1)
    number, state = await committed(manifest, manifest.view, segment(10))
    assert number == 1
    assert state.next == 20
    assert manifest.state == state


@in_simulation
async def test_a_commit_that_others_made_needless_lists_nothing() -> None:
    store = ScriptedStore()
    mine, other = await with_segments(store, 1), opened(store)
    base = mine.view
    await changed(other, Add((segment(10, name="theirs"),)))
    number, _ = await committed(mine, base, segment(10, name="mine"))
    assert number is None
    assert await listed(store) == ["s0000", "theirs"]


@pytest.mark.parametrize("which", ["key", "index"])
def test_a_doomed_key_is_never_listed(which: str) -> None:
    async def main() -> None:
        store = ScriptedStore()
        mine, other = await with_segments(store, 1), opened(store)
        base, row = mine.view, segment(10)
        doomed = row.key if which == "key" else f"{row.index_key}"
        assert await other.doom([doomed]) == [doomed]
        with pytest.raises(DoomedError, match=doomed):
            await committed(mine, base, row)
        assert await listed(store) == ["s0000"]

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_a_key_doomed_and_collected_since_the_base_is_never_listed() -> None:
    store = ScriptedStore()
    mine, other = await with_segments(store, 1), opened(store)
    base, row = mine.view, segment(10)
    await other.doom([row.key])
    assert await other.collect() == [row.key]
    assert other.state.doomed == ()
    await mine.refresh()
    with pytest.raises(DoomedError):
        await committed(mine, base, row)


@in_simulation
async def test_a_doom_that_wins_the_number_we_wanted_is_seen() -> None:
    store = ScriptedStore()
    mine, other = await with_segments(store, 1), opened(store)
    row = segment(10)

    async def doom() -> None:
        store.scripts.clear()
        await other.doom([row.key])
        await other.collect()

    store.when("create", KEYS.number(1), first(doom))
    with pytest.raises(DoomedError):
        await committed(mine, mine.view, row)


@in_simulation
async def test_a_base_that_a_checkpoint_passed_is_given_up() -> None:
    """The doom may be behind the checkpoint, where nobody finds it."""
    store = ScriptedStore()
    mine, other = await with_segments(store, 1), opened(store)
    base, row = mine.view, segment(10)
    await other.doom([row.key])
    await other.collect()
    assert await other.checkpoint(1)
    with pytest.raises(PassedError):
        await committed(mine, base, row)
    assert await listed(store) == ["s0000"]


@in_simulation
async def test_a_commit_with_a_lost_answer_is_found_to_be_ours() -> None:
    store = ScriptedStore()
    manifest = await with_segments(store, 1)
    store.when("create", KEYS.number(1), refuse(UnavailableError, after=True))
    number, _ = await committed(manifest, manifest.view, segment(10))
    assert number == 1
    assert await listed(store) == ["s0000", "s0010"]


@in_simulation
async def test_a_change_at_a_view_is_made_there_or_not_at_all() -> None:
    store = ScriptedStore()
    mine, other = await with_segments(store, 2), opened(store)
    base = mine.view
    assert await mine.change_at(base, [Start(1)])
    assert not await mine.change_at(base, [Start(2)])
    await changed(other, Start(3))
    assert not await mine.change_at(mine.view, [Start(4)])
    await other.checkpoint(1)
    assert not await mine.change_at(base, [Start(5)])
    assert (await mine.refresh()).start == 3


@in_simulation
async def test_a_change_at_a_view_knows_its_own_lost_answer() -> None:
    store = ScriptedStore()
    manifest = await with_segments(store, 1)
    store.when("create", KEYS.number(1), refuse(ConflictError, after=True))
    assert await manifest.change_at(manifest.view, [Start(1)])
    assert manifest.view.position == 2


# --- dooming


@in_simulation
async def test_only_what_is_not_listed_is_doomed() -> None:
    store = ScriptedStore()
    manifest = await with_segments(store, 4, gathered=2)
    run = manifest.state.runs[0].key
    rows = await manifest.segments()
    all_keys = [key for row in rows for key in (row.key, f"{row.index_key}")]
    assert await manifest.doom([*all_keys, run, "orphan"]) == ["orphan"]
    assert manifest.state.doomed == ("orphan",)
    assert await manifest.doom(["orphan"]) == []


@in_simulation
async def test_a_listed_segment_below_the_start_is_not_doomed() -> None:
    store = ScriptedStore()
    manifest = await with_segments(store, 3, gathered=2)
    await changed(manifest, Start(15))
    assert await manifest.doom(["s0000", "s0000.index", "s0010"]) == []


@in_simulation
async def test_the_kept_bundle_and_a_rebuilt_one_are_not_doomed() -> None:
    store = ScriptedStore()
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
async def test_a_key_listed_between_our_look_and_our_number_is_not_doomed() -> None:
    store = ScriptedStore()
    other = await with_segments(store, 1)

    async def list_it() -> None:
        store.scripts.clear()
        await changed(other, Add((segment(10),)))

    store.when("create", KEYS.number(1), first(list_it))
    assert await opened(store).doom(["s0010", "orphan"]) == ["orphan"]


@in_simulation
async def test_a_key_listed_and_moved_into_a_run_meanwhile_is_not_doomed() -> None:
    store = ScriptedStore()
    other = await with_segments(store, 1)

    async def list_and_gather() -> None:
        store.scripts.clear()
        await changed(other, Add((segment(10),)))
        assert await other.gather_runs(2)
        assert other.state.loose == ()

    store.when("create", KEYS.number(1), first(list_and_gather))
    assert await opened(store).doom(["s0010", "s0010.index"]) == []


@in_simulation
async def test_a_key_listed_and_moved_behind_a_checkpoint_meanwhile_is_not_doomed() -> None:
    store = ScriptedStore()
    other = await with_segments(store, 1)

    async def list_gather_and_checkpoint() -> None:
        store.scripts.clear()
        await changed(other, Add((segment(10),)))
        assert await other.gather_runs(2)
        assert await other.checkpoint(1)

    store.when("create", KEYS.number(1), first(list_gather_and_checkpoint))
    assert await opened(store).doom(["s0010", "s0010.index"]) == []


@in_simulation
async def test_a_run_that_was_uploaded_and_not_listed_can_be_doomed() -> None:
    store = ScriptedStore()
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
async def test_only_what_is_doomed_is_deleted() -> None:
    store = ScriptedStore()
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
async def test_a_collector_that_dies_before_it_says_so_is_followed_by_another() -> None:
    store = ScriptedStore()
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
async def test_a_replaced_run_is_deleted_only_after_a_checkpoint_above() -> None:
    store = ScriptedStore()
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


# --- checkpoints


@in_simulation
async def test_a_checkpoint_is_written_and_trimmed_after_so_many_numbers() -> None:
    store = ScriptedStore()
    manifest = await with_segments(store, 3)
    assert not await manifest.checkpoint(4)
    assert await manifest.checkpoint(3)
    assert store.listed(KEYS.prefix) == [KEYS.checkpoint(3)]
    assert not await manifest.checkpoint(1)
    await changed(manifest, Start(1))
    assert not await manifest.checkpoint(2)


@in_simulation
async def test_another_s_checkpoint_counts_too() -> None:
    store = ScriptedStore()
    manifest, other = await with_segments(store, 3), opened(store)
    await other.refresh()
    assert await other.checkpoint(3)
    assert not await manifest.checkpoint(2)


@in_simulation
async def test_a_checkpoint_sums_up_the_view_it_was_asked_for() -> None:
    """The view moves on while the look is under way: what is noted must be what was written."""
    store = ScriptedStore()
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
async def test_two_processes_write_the_same_checkpoint() -> None:
    store = ScriptedStore()
    manifest = await with_segments(store, 4, gathered=3)
    await changed(manifest, Doom(("a", "b")), Skip(1, 2, 3, "lost"), Collected(("a",)))
    other = opened(store)
    assert await other.refresh() == manifest.state


# --- runs


@in_simulation
async def test_too_few_segments_are_not_gathered() -> None:
    store = ScriptedStore()
    manifest = await with_segments(store, 2)
    assert not await manifest.gather_runs(3)
    assert store.listed(f"{KEYS.prefix}run/") == []


@in_simulation
async def test_gathering_keeps_the_listed_set() -> None:
    store = ScriptedStore()
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
def test_segments_changed_meanwhile_are_not_gathered(change: Change) -> None:
    async def main() -> None:
        store = ScriptedStore()
        manifest, other = await with_segments(store, 3), opened(store)

        async def intrude() -> None:
            store.scripts.clear()
            await changed(other, change)

        store.when("create", KEYS.number(3), first(intrude))
        assert not await manifest.gather_runs(3)
        assert manifest.state.runs == ()
        assert manifest.state.loose == other.state.loose

    runtime.simulate(main(), seed=1)


@in_simulation
async def test_segments_added_meanwhile_do_not_stop_a_gathering() -> None:
    store = ScriptedStore()
    manifest, other = await with_segments(store, 3), opened(store)

    async def intrude() -> None:
        store.scripts.clear()
        await changed(other, Add((segment(30),)))

    store.when("create", KEYS.number(3), first(intrude))
    assert await manifest.gather_runs(3)
    assert await listed(store) == ["s0000", "s0010", "s0020", "s0030"]


@in_simulation
async def test_a_run_whose_segments_are_all_gone_is_dropped_with_its_notes() -> None:
    store = ScriptedStore()
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
async def test_a_log_that_expires_for_ever_keeps_a_bounded_manifest() -> None:
    store = ScriptedStore()
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
def test_a_run_is_listed_only_if_it_is_there(error: type[Exception]) -> None:
    """A create refused although nothing is there says nothing; the list would be lost with it."""

    async def main() -> None:
        store = ScriptedStore()
        manifest = await with_segments(store, 3)
        store.when("create", lambda key: "/run/" in key, refuse(error))
        assert await manifest.gather_runs(3)
        assert await listed(store) == ["s0000", "s0010", "s0020"]

    runtime.simulate(main(), seed=1)


@pytest.mark.parametrize("seed", range(40))
def test_everyone_at_once(seed: int) -> None:
    """A leader, a merger, repair, a collector and checkpoints, all on one manifest."""

    async def main() -> None:
        chance = runtime.chance()
        store = ScriptedStore(latency=lambda: chance.random() / 20)

        def sometimes(key: str) -> bool:
            return KEYS.number_of(key) is not None and chance.random() < 0.05

        store.when("create", sometimes, refuse(UnavailableError, after=True), times=None)
        store.when("create", sometimes, store.late(0.5), times=None)

        await runtime.gather(leader(store), janitor(store), repair(store))
        manifest = opened(store)
        state = await manifest.refresh()
        rows = await manifest.segments()
        assert state.next == 120
        due = state.start
        for row in rows:
            assert row.base <= due <= row.last
            due = row.last + 1
            assert row.key in store.listed()
            assert row.index_key in store.listed()
        assert due == 120

    runtime.simulate(main(), seed=seed)


async def leader(store: ScriptedStore) -> None:
    manifest = opened(store)
    for base in range(0, 120, 10):
        while True:
            await manifest.refresh()
            view = manifest.view
            if view.state.next > base:
                break
            name = runtime.token(4).hex()
            row = segment(base, name=name)
            await runtime.gather(store.put(name, b"x"), store.put(f"{name}.index", b"x"))
            try:
                await committed(manifest, view, row)
            except (DoomedError, PassedError):
                continue
    await manifest.gather_runs(4)


async def janitor(store: ScriptedStore) -> None:
    manifest = opened(store)
    for _ in range(15):
        state = await manifest.refresh()
        view = manifest.view
        rows = [row for row in await manifest.segments() if row.last < state.next - 30]
        if rows and view is manifest.view:
            await manifest.change_at(view, [Start(rows[0].last + 1, (removal(rows[0]),))])
        try:
            await manifest.gather_runs(3)
        except (DoomedError, PassedError):
            continue
        await manifest.checkpoint(4)
        await manifest.collect()


async def repair(store: ScriptedStore) -> None:
    """Dooms whatever it sees and does not find listed, also what is being uploaded right now."""
    manifest = opened(store)
    for _ in range(15):
        await manifest.refresh()
        seen = [key for key in store.listed() if not key.startswith("topics/")]
        runs = store.listed(f"{KEYS.prefix}run/")
        await manifest.doom([*seen, *runs])
        await manifest.collect()
        await runtime.sleep(0.05)
