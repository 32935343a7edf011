"""Lists merged segments in place of their inputs, whether those are loose or in runs.

A merge takes effect by one manifest number, which replaces loose inputs. If an input is in a run,
the same number also replaces that run by one without the input. Otherwise a run would overlap loose
segments, and the leader could gather no more segments into runs. A rewritten run is correct only
for the list that it was made from; if the list changes first, the run is written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from neve import runtime
from neve.errors import UnavailableError
from neve.log.create import create_own
from neve.log.envelope import AUTHOR_BYTES, Kind, seal_envelope
from neve.log.keys import new_run_key
from neve.log.manifest.manifest import RUN_SEGMENTS_MAX, Manifest, ManifestView
from neve.log.manifest.records import (
    Change,
    Doom,
    Reindex,
    Removal,
    Replace,
    Run,
    RunBody,
    Runs,
    Segment,
    removal,
)
from neve.log.manifest.state import ManifestState
from neve.store.port import Store

ATTEMPTS_MAX = 10


class Nearby(NamedTuple):
    """The rows of a manifest's state for a range of offsets and the runs that overlap it."""

    loose: tuple[Segment, ...]
    runs: tuple[Run, ...]
    removed: tuple[Removal, ...]
    reindexed: tuple[Reindex, ...]


class Replacement(NamedTuple):
    """Segments that replace others with the same offsets."""

    inputs: tuple[Segment, ...]
    outputs: tuple[Segment, ...]
    doomed: tuple[str, ...] = ()
    """Further keys to doom: objects that Neve may delete and that no manifest lists."""

    @property
    def first(self) -> int:
        return self.inputs[0].base

    @property
    def last(self) -> int:
        return self.inputs[-1].last


async def replace_segments(
    store: Store,
    manifest: Manifest,
    base: ManifestView,
    uploaded: list[str],
    replacement: Replacement,
) -> bool:
    """Commit a replacement whose objects were uploaded after `base` was read.

    Adds the runs that it writes to `uploaded`. Returns False if an input is no longer listed; the
    caller must then abandon the uploaded objects. The same applies if DoomedError or PassedError is
    raised, but then the caller may start again.
    """
    wanted = {segment.key for segment in replacement.inputs}
    stale: list[str] = []
    for _ in range(ATTEMPTS_MAX):
        state, listed = await listed_now(manifest)
        if wanted - {segment.key for segment in listed}:
            return False
        expected = nearby(state, replacement.first, replacement.last)
        runs = await _rewritten_runs(store, manifest, expected, listed, replacement)
        changes = [*_changes(state, expected, listed, replacement), *runs]

        def make(
            state: ManifestState,
            expected: Nearby = expected,
            changes: Sequence[Change] = changes,
        ) -> Sequence[Change]:
            now = nearby(state, replacement.first, replacement.last)
            return changes if now == expected else []

        fresh = [run.key for change in runs for run in change.added]
        uploaded += fresh
        if (await manifest.commit(base, uploaded, make)).number is not None:
            if stale:
                await manifest.doom(stale)
            return True
        stale += fresh
    raise UnavailableError(manifest.keys.prefix, "it changes faster than segments can be replaced")


async def listed_now(manifest: Manifest) -> tuple[ManifestState, list[Segment]]:
    """Return the newest manifest state and the segments that it lists."""
    await manifest.refresh()
    while True:
        state = manifest.state
        segments = await manifest.segments()
        if manifest.state is state:
            return state, segments


def nearby(state: ManifestState, first: int, last: int) -> Nearby:
    runs = tuple(run for run in state.runs if run.base <= last and run.last >= first)
    low = min([first, *(run.base for run in runs)])
    high = max([last, *(run.last for run in runs)])
    return Nearby(
        tuple(row for row in state.loose if low <= row.base <= high),
        runs,
        tuple(row for row in state.removed if low <= row.base <= high),
        tuple(row for row in state.reindexed if low <= row.base <= high),
    )


def _changes(
    state: ManifestState, near: Nearby, listed: Sequence[Segment], replacement: Replacement
) -> list[Change]:
    keys = {segment.key for segment in replacement.inputs}
    now = [segment for segment in listed if segment.key in keys]
    same = {segment.key for segment in replacement.outputs}
    changes: list[Change] = []
    if not near.runs or not keys <= same:
        changes.append(Replace(tuple(map(removal, now)), replacement.outputs))
    doomed = [key for key in replacement.doomed if key not in state.doomed]
    if doomed:
        changes.append(Doom(tuple(doomed)))
    return changes


async def _rewritten_runs(
    store: Store,
    manifest: Manifest,
    near: Nearby,
    listed: Sequence[Segment],
    replacement: Replacement,
) -> list[Runs]:
    """Write runs that replace the overlapping ones, with the outputs instead of the inputs."""
    if not near.runs:
        return []
    gone = {segment.key for segment in replacement.inputs}
    low = min(run.base for run in near.runs)
    high = max(run.last for run in near.runs)
    kept = [row for row in listed if low <= row.base <= high and row.key not in gone]
    rows = sorted([*kept, *replacement.outputs], key=lambda row: row.base)
    pieces = [rows[at : at + RUN_SEGMENTS_MAX] for at in range(0, len(rows), RUN_SEGMENTS_MAX)]
    fresh = [await upload_run(store, manifest, piece) for piece in pieces]
    return [Runs(tuple(fresh), tuple(run.key for run in near.runs))]


async def upload_run(store: Store, manifest: Manifest, segments: Sequence[Segment]) -> Run:
    """Write a run of these segments under a new key."""
    key = new_run_key(manifest.keys)
    prefix = manifest.keys.prefix
    body = RunBody(tuple(segments))
    author = runtime.token(AUTHOR_BYTES)
    await create_own(store, key, seal_envelope(Kind.MANIFEST_RUN, prefix, 0, author, body))
    return Run(
        key=key,
        base=segments[0].base,
        last=segments[-1].last,
        segments=len(segments),
        bytes=sum(segment.bytes for segment in segments),
        min_timestamp=min(segment.min_timestamp for segment in segments),
        max_timestamp=max(segment.max_timestamp for segment in segments),
    )
