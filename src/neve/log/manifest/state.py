"""The state of a manifest: how it is folded from numbers, and the payload of its checkpoints. Pure.

Segments are either loose (listed here) or in runs (immutable objects). If a segment in a run is
removed or gets another index, the state records that until the run is replaced. So folding never
needs the content of runs, and two processes that read the same numbers write the same checkpoint.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import msgspec

from neve.errors import DamagedError
from neve.log.envelope import Kind, Stored
from neve.log.keys import segment_name
from neve.log.manifest.records import (
    Add,
    Collected,
    Doom,
    ManifestRecord,
    Reindex,
    Removal,
    Replace,
    Run,
    Runs,
    Segment,
    Skip,
    Start,
)
from neve.log.segment.frame import FOREIGN_INDEX_BYTES_MAX


class StateBundle(Stored, frozen=True):
    """The bundle of the last segment, kept when retention removed the segment itself.

    It has the producers and epochs, which must outlive the records that they come from.
    """

    key: str
    bytes: int
    end: int
    owned: bool = True

    @property
    def bytes_max(self) -> int:
        """The maximum size of the object."""
        return self.bytes if self.owned else FOREIGN_INDEX_BYTES_MAX


class DoomedRun(Stored, frozen=True):
    """A replaced run. The collector deletes it once a checkpoint above `number` exists."""

    key: str
    number: int


class ManifestState(Stored, frozen=True, kw_only=True):
    """The folded manifest of one partition.

    `start` is the log's first offset, and `next` the offset at which the next segment begins.
    """

    start: int = 0
    next: int = 0
    loose: tuple[Segment, ...] = ()
    runs: tuple[Run, ...] = ()
    removed: tuple[Removal, ...] = ()
    reindexed: tuple[Reindex, ...] = ()
    doomed: tuple[str, ...] = ()
    doomed_runs: tuple[DoomedRun, ...] = ()
    state_bundle: StateBundle | None = None
    skips: tuple[Skip, ...] = ()


class ManifestRules:
    """The rules by which a manifest is a series."""

    record_kind: Kind = Kind.MANIFEST_RECORD
    checkpoint_kind: Kind = Kind.MANIFEST_CHECKPOINT
    record_schema: type[ManifestRecord] = ManifestRecord
    state_schema: type[ManifestState] = ManifestState

    def empty(self) -> ManifestState:
        return ManifestState()

    def fold(self, state: ManifestState, number: int, record: ManifestRecord) -> ManifestState:
        for change in record.changes:
            state = _FOLDS[type(change)](state, number, change)
        return state


def states_since(base: ManifestState, records: Iterable[ManifestRecord]) -> Iterator[ManifestState]:
    """Yield the base, and the state after each change of these records."""
    yield base
    for record in records:
        for change in record.changes:
            base = _FOLDS[type(change)](base, 0, change)
            yield base


def doomed_since(base: ManifestState, records: Iterable[ManifestRecord]) -> set[str]:
    """Return the keys doomed at the base or by a record since, even if collected meanwhile."""
    return {key for state in states_since(base, records) for key in state.doomed}


def empty_runs(state: ManifestState) -> tuple[str, ...]:
    """Return the keys of the runs of which every segment was removed."""
    gone = {row.key: row.base for row in state.removed}
    return tuple(
        run.key
        for run in state.runs
        if sum(run.base <= base <= run.last for base in gone.values()) == run.segments
    )


def _add(state: ManifestState, number: int, change: Add) -> ManifestState:
    segments = change.segments
    ordered = all(
        row.base <= row.last and (at == 0 or segments[at - 1].last < row.base)
        for at, row in enumerate(segments)
    )
    if not segments or not ordered:
        raise DamagedError("manifest", f"number {number} adds no segments in their order")
    if not _continues(state, segments[0].base):
        raise DamagedError(
            "manifest",
            f"number {number} adds offset {segments[0].base} where {state.next} is expected",
        )
    doomed, bundle = state.doomed, state.state_bundle
    if bundle is not None:
        doomed = (*doomed, bundle.key) if bundle.owned else doomed
        bundle = None
    return msgspec.structs.replace(
        state,
        next=segments[-1].last + 1,
        loose=_merged(state.loose, segments),
        doomed=doomed,
        state_bundle=bundle,
    )


def _continues(state: ManifestState, base: int) -> bool:
    """Return whether a segment at `base` continues the log.

    Offsets below the log's start and skipped ones may be missing before it.
    """
    expected = state.next
    if expected < base:
        expected = min(max(expected, state.start), base)
    for skip in sorted(state.skips, key=lambda row: row.first):
        if expected < base and skip.first <= expected <= skip.last:
            expected = min(skip.last + 1, base)
    return expected == base


def _replace(state: ManifestState, number: int, change: Replace) -> ManifestState:
    del number
    # If no added segment reaches the log's end, keep the last bundle for its history.
    reaches_end = any(row.last + 1 == state.next for row in change.added)
    listed = {key for row in change.added for key in (row.key, row.index_key)}
    state = _without(state, change.removed, listed, keep_last_bundle=not reaches_end)
    return msgspec.structs.replace(state, loose=_merged(state.loose, change.added))


def _start(state: ManifestState, number: int, change: Start) -> ManifestState:
    del number
    state = _without(state, change.removed, keep_last_bundle=True)
    return msgspec.structs.replace(state, start=max(state.start, change.offset))


def _reindex(state: ManifestState, number: int, change: Reindex) -> ManifestState:
    del number
    found = next((row for row in state.loose if row.key == change.key), None)
    if found is None and not _is_in_a_run(state, change.key, change.base):
        return msgspec.structs.replace(state, doomed=(*state.doomed, change.index_key))
    doomed = state.doomed
    if change.old_index_key is not None and (found is None or found.owned):
        doomed = (*doomed, change.old_index_key)
    if found is None:
        others = (row for row in state.reindexed if row.key != change.key)
        return msgspec.structs.replace(state, reindexed=(*others, change), doomed=doomed)
    fresh = msgspec.structs.replace(
        found, index_key=change.index_key, index_bytes=change.index_bytes
    )
    loose = tuple(fresh if row is found else row for row in state.loose)
    return msgspec.structs.replace(state, loose=loose, doomed=doomed)


def _is_in_a_run(state: ManifestState, key: str, base: int) -> bool:
    return _inside(base, state.runs) and all(row.key != key for row in state.removed)


def _doom(state: ManifestState, number: int, change: Doom) -> ManifestState:
    del number
    known = set(state.doomed)
    fresh = tuple(key for key in change.keys if key not in known)
    return msgspec.structs.replace(state, doomed=state.doomed + fresh)


def _collected(state: ManifestState, number: int, change: Collected) -> ManifestState:
    del number
    gone = set(change.keys)
    return msgspec.structs.replace(
        state,
        doomed=tuple(key for key in state.doomed if key not in gone),
        doomed_runs=tuple(run for run in state.doomed_runs if run.key not in gone),
    )


def _runs(state: ManifestState, number: int, change: Runs) -> ManifestState:
    replaced = set(change.replaced)

    def rewritten(base: int) -> bool:
        return any(run.base <= base <= run.last for run in change.added) or any(
            run.base <= base <= run.last for run in state.runs if run.key in replaced
        )

    kept = [run for run in state.runs if run.key not in replaced]
    return msgspec.structs.replace(
        state,
        runs=tuple(sorted([*kept, *change.added], key=lambda run: run.base)),
        loose=tuple(row for row in state.loose if not _inside(row.base, change.added)),
        removed=tuple(row for row in state.removed if not rewritten(row.base)),
        reindexed=tuple(row for row in state.reindexed if not rewritten(row.base)),
        doomed_runs=state.doomed_runs + tuple(DoomedRun(key, number) for key in change.replaced),
    )


def _inside(base: int, runs: tuple[Run, ...]) -> bool:
    return any(run.base <= base <= run.last for run in runs)


def _skip(state: ManifestState, number: int, change: Skip) -> ManifestState:
    del number
    return msgspec.structs.replace(state, skips=(*state.skips, change))


_FOLDS: dict[type, Callable[[ManifestState, int, Any], ManifestState]] = {
    Add: _add,
    Replace: _replace,
    Reindex: _reindex,
    Start: _start,
    Doom: _doom,
    Collected: _collected,
    Runs: _runs,
    Skip: _skip,
}


def _merged(listed: tuple[Segment, ...], fresh: tuple[Segment, ...]) -> tuple[Segment, ...]:
    merged = list(listed)
    for segment in fresh:
        bisect.insort(merged, segment, key=lambda row: row.base)
    return tuple(merged)


def _without(
    state: ManifestState,
    removed: tuple[Removal, ...],
    listed: Collection[str | None] = (),
    *,
    keep_last_bundle: bool,
) -> ManifestState:
    """Remove segments from the list, and doom those objects that Neve owns.

    Keys in `listed` are listed again and not doomed. A bundle that Neve wrote for an imported
    segment is Neve's, even though the segment is not.
    """
    keys = {row.key for row in removed}
    loose = {segment.key: segment for segment in state.loose}
    # A segment may have got another index after the removal was derived.
    indexes: dict[str, Segment | Reindex] = {**{row.key: row for row in state.reindexed}, **loose}
    doomed = list(state.doomed)
    bundle = state.state_bundle
    for row in removed:
        if row.owned and row.key not in listed:
            doomed.append(row.key)
        index = indexes.get(row.key, row)
        if index.index_key is None:
            continue
        is_ours = row.owned or segment_name(index.index_key) is not None
        if keep_last_bundle and row.last + 1 == state.next:
            bundle = StateBundle(index.index_key, index.index_bytes, state.next, is_ours)
        elif is_ours and index.index_key not in listed:
            doomed.append(index.index_key)
    in_runs = tuple(row for row in removed if row.key not in loose)
    return msgspec.structs.replace(
        state,
        loose=tuple(segment for segment in state.loose if segment.key not in keys),
        removed=state.removed + in_runs,
        reindexed=tuple(row for row in state.reindexed if row.key not in keys),
        doomed=tuple(doomed),
        state_bundle=bundle,
    )
