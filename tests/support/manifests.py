"""A partition's manifest on a scripted store, and the changes that its processes make."""

from __future__ import annotations

from collections.abc import Sequence

from neve.log import keys
from neve.log.manifest.manifest import Manifest, ManifestView
from neve.log.manifest.records import (
    Add,
    Change,
    Segment,
)
from neve.log.manifest.state import ManifestState
from support.manifest_rows import segment
from support.scripted_store import ScriptedStore

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
