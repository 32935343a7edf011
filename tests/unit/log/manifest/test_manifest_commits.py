"""Commits to a manifest: base, lost responses, and keys doomed meanwhile."""

from __future__ import annotations

import pytest

from neve.errors import ConflictError, UnavailableError
from neve.log.manifest.manifest import DoomedError
from neve.log.manifest.records import (
    Add,
    Start,
)
from neve.log.series import PassedError
from support.manifest_rows import segment
from support.manifests import KEYS, changed, committed, listed, opened, with_segments
from support.scripted_store import ScriptedStore, first, in_simulation, refuse


@in_simulation
async def test_a_commit_lists_what_was_uploaded(store: ScriptedStore) -> None:
    manifest = await with_segments(store, 1)
    number, state = await committed(manifest, manifest.view, segment(10))
    assert number == 1
    assert state.next == 20
    assert manifest.state == state


@in_simulation
async def test_a_commit_that_others_made_needless_lists_nothing(store: ScriptedStore) -> None:
    mine, other = await with_segments(store, 1), opened(store)
    base = mine.view
    await changed(other, Add((segment(10, name="theirs"),)))
    number, _ = await committed(mine, base, segment(10, name="mine"))
    assert number is None
    assert await listed(store) == ["s0000", "theirs"]


@pytest.mark.parametrize("which", ["key", "index"])
@in_simulation
async def test_a_doomed_key_is_never_listed(which: str, store: ScriptedStore) -> None:
    mine, other = await with_segments(store, 1), opened(store)
    base, row = mine.view, segment(10)
    doomed = row.key if which == "key" else f"{row.index_key}"
    assert await other.doom([doomed]) == [doomed]
    with pytest.raises(DoomedError, match=doomed):
        await committed(mine, base, row)
    assert await listed(store) == ["s0000"]


@in_simulation
async def test_a_key_doomed_and_collected_since_the_base_is_never_listed(
    store: ScriptedStore,
) -> None:
    mine, other = await with_segments(store, 1), opened(store)
    base, row = mine.view, segment(10)
    await other.doom([row.key])
    assert await other.collect() == [row.key]
    assert other.state.doomed == ()
    await mine.refresh()
    with pytest.raises(DoomedError):
        await committed(mine, base, row)


@in_simulation
async def test_a_doom_that_wins_the_number_we_wanted_is_seen(store: ScriptedStore) -> None:
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
async def test_a_base_that_a_checkpoint_passed_is_given_up(store: ScriptedStore) -> None:
    """The doom may be behind the checkpoint, where nobody finds it."""
    mine, other = await with_segments(store, 1), opened(store)
    base, row = mine.view, segment(10)
    await other.doom([row.key])
    await other.collect()
    assert await other.checkpoint(1)
    with pytest.raises(PassedError):
        await committed(mine, base, row)
    assert await listed(store) == ["s0000"]


@in_simulation
async def test_a_commit_with_a_lost_answer_is_found_to_be_ours(store: ScriptedStore) -> None:
    manifest = await with_segments(store, 1)
    store.when("create", KEYS.number(1), refuse(UnavailableError, after=True))
    number, _ = await committed(manifest, manifest.view, segment(10))
    assert number == 1
    assert await listed(store) == ["s0000", "s0010"]


@in_simulation
async def test_a_change_at_a_view_is_made_there_or_not_at_all(store: ScriptedStore) -> None:
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
async def test_a_change_at_a_view_knows_its_own_lost_answer(store: ScriptedStore) -> None:
    manifest = await with_segments(store, 1)
    store.when("create", KEYS.number(1), refuse(ConflictError, after=True))
    assert await manifest.change_at(manifest.view, [Start(1)])
    assert manifest.view.position == 2
