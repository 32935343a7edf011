"""Reads and changes one partition's manifest.

A committer reads its base before its first upload, reads every number from there to the one it
wins, and lists no key that was doomed in between. So an orphan can be doomed and deleted while its
upload is still in flight: the uploader finds the doom and starts again under new keys.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import msgspec

from neve import runtime
from neve.errors import DamagedError, NotFoundError, UnavailableError
from neve.log.create import create_own
from neve.log.downloads import fetch_checked
from neve.log.envelope import (
    AUTHOR_BYTES,
    ENVELOPE_BYTES_MAX,
    Kind,
    decode_payload,
    open_envelope,
    seal_envelope,
)
from neve.log.keys import SeriesKeys, new_run_key
from neve.log.manifest.records import (
    Change,
    Collected,
    Doom,
    ManifestRecord,
    Run,
    RunBody,
    Runs,
    Segment,
)
from neve.log.manifest.state import (
    ManifestRules,
    ManifestState,
    doomed_since,
    empty_runs,
    states_since,
)
from neve.log.series import Entry, Outcome, PassedError, Series, View, greatest_checkpoint
from neve.store.deletion import delete_all
from neve.store.port import Store

RUN_SEGMENTS_MAX = 1_000
# Runs are immutable, so remembering some saves requests; 16 of them list 16,000 segments.
RUNS_REMEMBERED_MAX = 16
# Attempts to list segments while runs keep being replaced.
LISTING_ATTEMPTS_MAX = 10

ManifestView: TypeAlias = View[ManifestState]


class DoomedError(UnavailableError):
    """A key was doomed before it could be listed: upload again under new keys."""


class Manifest:
    """Reads and changes one partition's list of segments."""

    def __init__(self, store: Store, keys: SeriesKeys) -> None:
        self._store = store
        self._series: Series[ManifestState, ManifestRecord] = Series(store, keys, ManifestRules())
        self._runs: OrderedDict[str, tuple[Segment, ...]] = OrderedDict()
        self._checkpointed = 0
        self.keys = keys
        self.view: ManifestView = View(0, ManifestState())

    @property
    def state(self) -> ManifestState:
        """The manifest's state as last read."""
        return self.view.state

    async def refresh(self, through: Store | None = None) -> ManifestState:
        """Read the new numbers, from the store `through` if given, and return the newest state."""
        series = self._series
        if through is not None:
            series = Series(through, self.keys, ManifestRules())
        self._reached((await series.advance(self.view)).view)
        return self.view.state

    def _reached(self, view: ManifestView) -> None:
        # Two reads may overlap: keep the newer view.
        if view.position >= self.view.position:
            self.view = view

    async def segments(self, first: int = 0, last: int | None = None) -> list[Segment]:
        """Return the listed segments with an offset from first to last, in order of offsets.

        The list is that of the last refresh, or newer if a run was replaced during the read.
        """
        for _ in range(LISTING_ATTEMPTS_MAX):
            state = self.view.state
            try:
                return await self._listed(state, max(first, state.start), last)
            except NotFoundError as error:
                await self.refresh()  # a run was replaced during the read: read the list again
                if any(run.key == error.key for run in self.view.state.runs):
                    raise DamagedError(
                        error.key, "the manifest lists this run; it is gone"
                    ) from error
        raise UnavailableError(self.keys.prefix, "its runs are replaced faster than they are read")

    async def _listed(self, state: ManifestState, first: int, last: int | None) -> list[Segment]:
        def wanted(base: int, end: int) -> bool:
            return end >= first and (last is None or base <= last)

        in_runs: list[Segment] = []
        for run in state.runs:
            if wanted(run.base, run.last):
                in_runs += await self._run(run.key)
        removed = {row.key for row in state.removed}
        reindexed = {row.key: row for row in state.reindexed}
        rows = []
        for segment in [*in_runs, *state.loose]:
            if segment.key in removed or not wanted(segment.base, segment.last):
                continue
            change = reindexed.get(segment.key)
            if change is not None:
                segment = msgspec.structs.replace(  # noqa: PLW2901
                    segment, index_key=change.index_key, index_bytes=change.index_bytes
                )
            rows.append(segment)
        return sorted(rows, key=lambda segment: segment.base)

    async def _run(self, key: str) -> tuple[Segment, ...]:
        if key in self._runs:
            self._runs.move_to_end(key)
            return self._runs[key]

        def decode(data: memoryview) -> RunBody:
            envelope = open_envelope(data, Kind.MANIFEST_RUN, self.keys.prefix, 0, key)
            body: RunBody = decode_payload(envelope, RunBody, key)
            return body

        segments = (await fetch_checked(self._store, key, ENVELOPE_BYTES_MAX, decode)).segments
        self._runs[key] = segments
        if len(self._runs) > RUNS_REMEMBERED_MAX:
            self._runs.popitem(last=False)
        return segments

    async def commit(
        self,
        base: ManifestView,
        keys: Collection[str],
        make: Callable[[ManifestState], Sequence[Change]],
    ) -> Outcome[ManifestState]:
        """Write a number with changes that list `keys`, which were uploaded after `base` was read.

        `make` is called with each new state until its changes are written, or it returns none. On
        DoomedError or PassedError the caller must abandon the keys and start from a new base.
        """

        def derive(
            view: ManifestView, entries: tuple[Entry[ManifestRecord], ...]
        ) -> ManifestRecord | None:
            doomed = doomed_since(base.state, (entry.record for entry in entries))
            for key in keys:
                if key in doomed:
                    raise DoomedError(key, "was doomed before it could be listed")
            changes = make(view.state)
            return ManifestRecord(tuple(changes)) if changes else None

        outcome = await self._series.propose_from_base(base, derive)
        self._reached(outcome.view)
        return outcome

    async def change(
        self, make: Callable[[ManifestState], Sequence[Change]]
    ) -> Outcome[ManifestState]:
        """Write a number with changes that list no new keys, such as a doom, a start or a skip.

        `make` is called as in `commit`.
        """

        def derive(view: ManifestView) -> ManifestRecord | None:
            changes = make(view.state)
            return ManifestRecord(tuple(changes)) if changes else None

        outcome = await self._series.propose(self.view, derive)
        self._reached(outcome.view)
        return outcome

    async def change_at(self, base: ManifestView, changes: Sequence[Change]) -> bool:
        """Write the number directly after `base`. Returns False if another writer took it.

        For changes that depend on the whole list: on False, the caller must read it again and
        derive the changes again.
        """

        def derive(
            view: ManifestView, _: tuple[Entry[ManifestRecord], ...]
        ) -> ManifestRecord | None:
            return ManifestRecord(tuple(changes)) if view.position == base.position else None

        try:
            outcome = await self._series.propose_from_base(base, derive)
        except PassedError:
            return False
        self._reached(outcome.view)
        return outcome.number is not None

    async def checkpoint(self, numbers_between: int) -> bool:
        """Checkpoint and trim after `numbers_between` numbers. Returns True if it did."""
        if self.view.position - self._checkpointed < numbers_between:
            return False
        greatest = await greatest_checkpoint(self._store, self.keys)
        self._checkpointed = max(self._checkpointed, greatest or 0)
        if self.view.position - self._checkpointed < numbers_between:
            return False
        view = self.view
        await self._series.checkpoint(view)
        self._checkpointed = view.position
        await self._series.trim()
        return True

    async def gather_runs(self, segments_min: int = RUN_SEGMENTS_MAX) -> bool:
        """Move loose segments into runs if there are at least `segments_min`; drop empty runs.

        Returns True if segments were moved.
        """
        await self.drop_empty_runs()
        base = self.view
        loose = base.state.loose
        if len(loose) < segments_min:
            return False
        chosen = loose[: len(loose) - len(loose) % segments_min]
        pieces = [
            chosen[start : start + RUN_SEGMENTS_MAX]
            for start in range(0, len(chosen), RUN_SEGMENTS_MAX)
        ]
        if not _clear_of_runs(chosen, base.state.runs):
            return False
        runs = [await self._upload_run(piece) for piece in pieces]

        def make(state: ManifestState) -> Sequence[Change]:
            unchanged = set(chosen) <= set(state.loose)
            return [Runs(tuple(runs))] if unchanged else []

        outcome = await self.commit(base, [run.key for run in runs], make)
        return outcome.number is not None

    async def drop_empty_runs(self) -> bool:
        """Remove runs whose segments were all removed. Returns True if there were any.

        Otherwise a log with retention would keep every run for ever.
        """

        def make(state: ManifestState) -> Sequence[Change]:
            empty = empty_runs(state)
            return [Runs((), empty)] if empty else []

        if not empty_runs(self.view.state):
            return False
        return (await self.change(make)).number is not None

    async def _upload_run(self, segments: Sequence[Segment]) -> Run:
        key = new_run_key(self.keys)
        author = runtime.token(AUTHOR_BYTES)
        body = RunBody(tuple(segments))
        data = seal_envelope(Kind.MANIFEST_RUN, self.keys.prefix, 0, author, body)
        await create_own(self._store, key, data)
        return Run(
            key=key,
            base=segments[0].base,
            last=segments[-1].last,
            segments=len(segments),
            bytes=sum(segment.bytes for segment in segments),
            min_timestamp=min(segment.min_timestamp for segment in segments),
            max_timestamp=max(segment.max_timestamp for segment in segments),
        )

    async def doom(self, keys: Collection[str]) -> list[str]:
        """Doom unlisted objects, so that they may be deleted. Returns the keys that were doomed.

        A key that was listed before the number is written is not doomed.
        """
        for _ in range(LISTING_ATTEMPTS_MAX):
            await self.refresh()
            base = self.view
            try:
                in_runs = await self._in_runs(base.state)
            except NotFoundError:
                continue  # a run was replaced during the read
            doomed: list[str] = []

            def derive(
                view: ManifestView,
                entries: tuple[Entry[ManifestRecord], ...],
                base: ManifestView = base,
                in_runs: set[str] = in_runs,
                doomed: list[str] = doomed,
            ) -> ManifestRecord | None:
                # A key may be listed and moved into a run between our base and our number.
                taken = in_runs | set(view.state.doomed)
                for state in states_since(base.state, (entry.record for entry in entries)):
                    taken |= _named(state)
                doomed[:] = [key for key in keys if key not in taken]
                return ManifestRecord((Doom(tuple(doomed)),)) if doomed else None

            try:
                self._reached((await self._series.propose_from_base(base, derive)).view)
            except PassedError:
                continue
            return doomed
        raise UnavailableError(self.keys.prefix, "it is checkpointed faster than it can be changed")

    async def _in_runs(self, state: ManifestState) -> set[str]:
        """Return the keys of all listed segments and bundles, also below the log's start."""
        rows = await self._listed(state, 0, None)
        return {key for row in rows for key in (row.key, row.index_key) if key is not None}

    async def collect(self) -> list[str]:
        """Delete the doomed objects and record that in a number. Returns the deleted keys."""
        state = await self.refresh()
        greatest = await greatest_checkpoint(self._store, self.keys) or 0
        ripe = [run.key for run in state.doomed_runs if run.number < greatest]
        gone = (*state.doomed, *ripe)
        if not gone:
            return []
        await delete_all(self._store, gone)

        def make(state: ManifestState) -> Sequence[Change]:
            known = {*state.doomed, *(run.key for run in state.doomed_runs)}
            left = tuple(key for key in gone if key in known)
            return [Collected(left)] if left else []

        await self.change(make)
        return list(gone)


def _clear_of_runs(segments: Sequence[Segment], runs: Sequence[Run]) -> bool:
    """Return whether segments are outside all runs, so that a run of them overlaps none."""
    first, last = segments[0].base, segments[-1].last
    return all(run.last < first or run.base > last for run in runs)


def _named(state: ManifestState) -> set[str]:
    named = {run.key for run in state.runs} | {run.key for run in state.doomed_runs}
    for segment in state.loose:
        named.add(segment.key)
        if segment.index_key is not None:
            named.add(segment.index_key)
    if state.state_bundle is not None:
        named.add(state.state_bundle.key)
    for row in state.reindexed:
        named.add(row.index_key)
    return named
