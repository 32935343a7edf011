"""A manifest under a leader, janitors and repairs that all work at once."""

from __future__ import annotations

import pytest

from neve import runtime
from neve.errors import UnavailableError
from neve.log.manifest.manifest import DoomedError
from neve.log.manifest.records import (
    Start,
    removal,
)
from neve.log.series import PassedError
from support.manifest_rows import segment
from support.manifests import KEYS, committed, opened
from support.scripted_store import ScriptedStore, refuse


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
