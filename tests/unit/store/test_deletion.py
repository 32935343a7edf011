"""Deleting many objects: all of them, few at once, and a failure is told."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.errors import UnavailableError
from neve.store.deletion import DELETES_AT_ONCE, delete_all
from neve.store.memory import MemoryStore
from support.scripted_store import ScriptedStore, in_simulation, refuse


class CountingStore(MemoryStore):
    running = 0
    most = 0

    async def delete(self, key: str) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await runtime.sleep(0.01)
        await super().delete(key)
        self.running -= 1


@in_simulation
async def test_all_go_and_only_so_many_at_once() -> None:
    store = CountingStore()
    keys = [f"a/{at:04d}" for at in range(10 * DELETES_AT_ONCE)]
    for key in keys:
        await store.put(key, b"x")
    await store.put("b", b"x")
    await delete_all(store, keys)
    assert [row.key for row in await store.list("")] == ["b"]
    assert store.most == DELETES_AT_ONCE


@in_simulation
async def test_nothing_to_delete_asks_nothing() -> None:
    store = ScriptedStore()
    await delete_all(store, [])
    assert store.calls == []


@in_simulation
async def test_a_failure_is_raised() -> None:
    store = ScriptedStore()
    store.when("delete", "b", refuse(UnavailableError))
    with pytest.raises(UnavailableError):
        await delete_all(store, ["a", "b", "c"])
