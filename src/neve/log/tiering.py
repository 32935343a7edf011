"""Tiering: writes committed records of one partition as a segment and its bundle.

The writer reads the manifest (the base) before the first upload, uploads the two objects
concurrently, and lists them by a manifest number. If the keys were doomed meanwhile, or a
checkpoint hid changes since the base, it abandons them without deleting them, and starts again with
new keys.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

from neve import runtime
from neve.errors import UnavailableError
from neve.log.concat_buffers import concat_buffers
from neve.log.keys import new_segment_key
from neve.log.manifest.manifest import DoomedError, Manifest
from neve.log.manifest.records import Add, Change, Segment, Start, removal
from neve.log.manifest.state import ManifestState
from neve.log.segment import kfs
from neve.log.segment.history import History
from neve.log.segment.rebuild import bundle_of
from neve.log.segment.upload import upload_pair
from neve.log.series import PassedError
from neve.records.batch import check_header
from neve.settings import SegmentSettings
from neve.store.port import Buffer, Store

ATTEMPTS_MAX = 5


class Tiered(NamedTuple):
    """A segment that a won manifest number lists, and the history at its end."""

    segment: Segment
    history: History


class SegmentWriter:
    """Builds and commits segments of one partition. Calls of `write` must not overlap."""

    def __init__(
        self,
        store: Store,
        manifest: Manifest,
        prefix: str,
        incarnation: int,
        settings: SegmentSettings,
    ) -> None:
        self._store = store
        self._manifest = manifest
        self._prefix = prefix
        self._incarnation = incarnation
        self._settings = settings

    def configure(self, settings: SegmentSettings) -> None:
        """Use these settings from the next segment on."""
        self._settings = settings

    async def write(
        self,
        batches: Sequence[Buffer],
        before: History,
        *,
        tiered: int | None = None,
        known: Container[int] | None = None,
    ) -> Tiered | None:
        """Tier batches that begin at the manifest's tiered offset.

        Returns None if another process has tiered them meanwhile. `before` is the history at the
        tiered offset. With `tiered`, nothing is written if the manifest's tiered offset differs:
        the history would miss the batches in between. With `known`, the bundle leaves out all other
        producers.
        """
        for _ in range(ATTEMPTS_MAX):
            try:
                return await self._write_once(batches, before, tiered, known)
            except (DoomedError, PassedError):
                continue
        raise UnavailableError(self._prefix, "its manifest changes faster than segments are added")

    async def _write_once(
        self,
        batches: Sequence[Buffer],
        before: History,
        tiered: int | None,
        known: Container[int] | None,
    ) -> Tiered | None:
        await self._manifest.refresh()
        base = self._manifest.view
        if tiered not in (None, base.state.next):
            return None
        history = before.copy(self._prefix)
        interval = self._settings.index_interval
        built = await runtime.offload(_build, batches, history, known, interval)
        segment = self._described(built)
        if base.state.next > segment.base:
            return None
        assert segment.index_key is not None
        await upload_pair(self._store, segment.key, built.data, segment.index_key, built.bundle)

        def make(state: ManifestState) -> Sequence[Change]:
            if state.next != base.state.next:
                return []
            if segment.last < state.start:
                # Deleted before it was tiered: keep only the history in its bundle.
                return [Add((segment,)), Start(state.start, (removal(segment),))]
            return [Add((segment,))]

        outcome = await self._manifest.commit(base, (segment.key, segment.index_key), make)
        return Tiered(segment, history) if outcome.number is not None else None

    def _described(self, built: _Built) -> Segment:
        facts = built.facts
        name = (self._prefix, facts.base_offset, self._incarnation)
        return Segment(
            key=new_segment_key(*name, "kfs"),
            index_key=new_segment_key(*name, "index"),
            base=facts.base_offset,
            last=facts.last_offset,
            bytes=facts.segment_bytes,
            index_bytes=len(built.bundle),
            records=facts.message_count,
            min_timestamp=facts.min_base_timestamp,
            max_timestamp=facts.max_timestamp,
            created_ms=facts.created_ms,
            epoch=built.epoch,
            crc=facts.body_crc,
        )


class _Built(NamedTuple):
    data: memoryview
    bundle: bytes
    facts: kfs.SegmentFacts
    epoch: int


def _build(
    batches: Sequence[Buffer], history: History, known: Container[int] | None, interval: int
) -> _Built:
    """Do the CPU work for a segment: build it and its bundle, and add its batches to `history`."""
    first = check_header(batches[0], 0, key="the segment being built")
    segment = kfs.build(first.base_offset, runtime.now_ms(), batches, observe=history.observe)
    if known is not None:
        history.producers.retain(known)
    bundle = bundle_of(segment, history, interval)
    starts = history.epochs.starts
    epoch = starts[-1].epoch if starts else -1
    return _Built(concat_buffers(segment.parts), bundle, segment.facts, epoch)
