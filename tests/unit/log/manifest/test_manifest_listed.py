"""Manifests read through a listing: as by themselves, with fewer requests, and never less."""

from __future__ import annotations

import pytest

from neve.errors import NotFoundError
from neve.log.keys import manifest as manifest_keys
from neve.log.manifest.listed import ListedStore
from neve.log.manifest.manifest import Manifest
from neve.log.manifest.records import Start
from support.scripted_store import ScriptedStore, in_simulation

TOPIC_ID = bytes(16)
PREFIX = manifest_keys("t", TOPIC_ID, 0).prefix.removesuffix("00/")


def manifest(store: ScriptedStore, partition: int) -> Manifest:
    return Manifest(store, manifest_keys("t", TOPIC_ID, partition))


async def moved(store: ScriptedStore, partition: int, offsets: range, every: int = 1000) -> None:
    """A manifest with a number for each offset at which its log was made to start."""
    row = manifest(store, partition)
    for offset in offsets:
        await row.change(lambda state, at=offset: [Start(at)] if state.start < at else [])
        await row.checkpoint(every)


@in_simulation
async def test_all_states_are_as_read_one_by_one() -> None:
    store = ScriptedStore()
    await moved(store, 1, range(1, 4))
    await moved(store, 2, range(1, 8), every=3)
    listed = await ListedStore.of(store, PREFIX)
    store.calls.clear()
    for partition in range(4):
        through = await manifest(store, partition).refresh(listed)
        assert through == await manifest(store, partition).refresh()
    assert not listed.is_stale


@in_simulation
async def test_what_is_not_there_costs_no_request() -> None:
    store = ScriptedStore()
    await moved(store, 1, range(1, 4))
    listed = await ListedStore.of(store, PREFIX)
    store.calls.clear()
    await manifest(store, 0).refresh(listed)
    assert store.calls == []
    await manifest(store, 1).refresh(listed)
    assert [call.operation for call in store.calls] == ["get"] * 3


@in_simulation
async def test_what_was_trimmed_since_the_listing_is_looked_for_again() -> None:
    """Otherwise a log whose numbers went into a checkpoint would look shorter than it is."""
    store = ScriptedStore()
    await moved(store, 0, range(1, 4))
    listed = await ListedStore.of(store, PREFIX)
    await moved(store, 0, range(4, 8), every=2)
    assert (await manifest(store, 0).refresh(listed)).start == 7
    assert listed.is_stale


@in_simulation
async def test_a_listing_is_no_older_than_it_says() -> None:
    store = ScriptedStore()
    await moved(store, 0, range(1, 3))
    listed = await ListedStore.of(store, PREFIX)
    await moved(store, 0, range(3, 4))
    assert (await manifest(store, 0).refresh(listed)).start == 2
    assert (await manifest(store, 0).refresh()).start == 3


@in_simulation
async def test_other_keys_go_to_the_store() -> None:
    store = ScriptedStore()
    await store.put("a", b"1")
    listed = await ListedStore.of(store, PREFIX)
    assert bytes(await listed.get("a")) == b"1"
    assert [row.key for row in await listed.list("")] == ["a"]
    with pytest.raises(NotFoundError):
        await listed.get(f"{PREFIX}01/none")
