"""Builds missing or damaged bundles for one partition of a Neve topic.

A bundle is built from its segment and the history before it, gets a new key, and is listed by a
manifest number that dooms the old one. If its segment was merged or expired meanwhile, the new
bundle is doomed instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from neve.bucket.maintain.build import history_at, is_complete
from neve.bucket.maintain.commit import listed_now, nearby
from neve.bucket.maintain.guard import MaintainedPartition, open_partition
from neve.errors import DamagedError, NotFoundError, UnavailableError, UnsupportedError
from neve.log.create import create_own
from neve.log.downloads import fetch_checked
from neve.log.keys import new_segment_key, segment_name
from neve.log.manifest.manifest import DoomedError, ManifestView
from neve.log.manifest.records import Change, Doom, Reindex, Segment
from neve.log.manifest.state import ManifestState
from neve.log.remote import load_bundle
from neve.log.segment.rebuild import rebuild
from neve.log.segment.state_table import is_internal
from neve.log.series import PassedError
from neve.settings import Settings
from neve.store.port import Store

ATTEMPTS_MAX = 10


@dataclass
class IndexResult:
    """What was done in one partition, or what a dry run would do."""

    topic: str
    partition: int
    segments: int = 0
    built: list[str] = field(default_factory=list)
    """The keys of segments that have a new bundle."""
    failed: list[str] = field(default_factory=list)
    """The segments for which no bundle could be built, and why."""


async def build_partition_indexes(
    store: Store,
    topic: str,
    partition: int,
    *,
    complete: bool = False,
    dry_run: bool = False,
    settings: Settings | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> IndexResult:
    """Build missing bundles. With `complete`, also replace bundles that lack sections.

    Those are KafScale's index files. `progress` is called with the bytes of each segment.
    """
    chosen = settings or Settings()
    opened = await open_partition(store, topic, partition, chosen)
    result = IndexResult(topic, partition)
    _, listed = await listed_now(opened.manifest)
    result.segments = len(listed)
    for segment in listed:
        if await _is_missing(opened, segment, complete=complete):
            if dry_run:
                result.built.append(segment.key)
            else:
                await _build(opened, segment, chosen.segment.index_interval, result)
        progress(segment.bytes)
    return result


async def _is_missing(opened: MaintainedPartition, segment: Segment, *, complete: bool) -> bool:
    try:
        bundle = await load_bundle(opened.store, segment)
        bundle.check_all()
    except (NotFoundError, DamagedError):
        return True
    except UnsupportedError:
        return False  # written by a newer Neve: do not replace it
    if int(bundle.offsets[0]) != segment.base or bundle.last_offset not in (None, segment.last):
        return True
    return complete and not is_complete(bundle, internal=is_internal(opened.place.topic))


async def _build(
    opened: MaintainedPartition, segment: Segment, interval: int, result: IndexResult
) -> None:
    try:
        for _ in range(ATTEMPTS_MAX):
            done = await _attempt(opened, segment, interval)
            if done is not None:
                if done:
                    result.built.append(segment.key)
                return
        raise UnavailableError(segment.key, "its manifest changes faster than an index is listed")
    except (DamagedError, NotFoundError) as error:
        _, listed = await listed_now(opened.manifest)
        if any(row.key == segment.key for row in listed):
            await opened.must_be_alive()
            result.failed.append(f"{segment.key}: {error}")


async def _attempt(opened: MaintainedPartition, segment: Segment, interval: int) -> bool | None:
    """Build and list one bundle. Returns False if it is not needed any more, None to retry."""
    manifest, store = opened.manifest, opened.store
    _, listed = await listed_now(manifest)
    base = manifest.view  # before the upload
    if not any(row.key == segment.key for row in listed):
        return False
    before = await history_at(store, manifest, listed, segment)
    rebuilt = await fetch_checked(
        store,
        segment.key,
        segment.bytes_max,
        lambda data: rebuild(
            data,
            segment.key,
            interval,
            producers=before.producers.entries(),
            epochs=before.epochs.starts,
            state=None if before.state is None else before.state.rows(),
        ),
    )
    facts = rebuilt.facts
    if (facts.base_offset, facts.last_offset) != (segment.base, segment.last):
        raise DamagedError(
            segment.key,
            f"it holds offsets {facts.base_offset} to {facts.last_offset}, and is listed as "
            f"{segment.base} to {segment.last}: no index is written for it",
        )
    key = new_segment_key(opened.prefix, segment.base, 0, "index")
    try:
        await create_own(store, key, rebuilt.bundle)
        done: bool | None = await _list(opened, base, segment, key, len(rebuilt.bundle))
    except (DoomedError, PassedError):
        done = None
    if not done:
        await manifest.doom([key])
    return done


async def _list(
    opened: MaintainedPartition, base: ManifestView, segment: Segment, key: str, bundle_bytes: int
) -> bool:
    """List a bundle. Returns False if another is listed already, or the segment is gone."""
    manifest = opened.manifest
    for _ in range(ATTEMPTS_MAX):
        state, listed = await listed_now(manifest)
        now = next((row for row in listed if row.key == segment.key), None)
        if now is None or now.index_key != segment.index_key:
            return False
        expected = nearby(state, segment.base, segment.last)
        changes = _changes(now, key, bundle_bytes)

        def make(
            state: ManifestState, expected: object = expected, changes: list[Change] = changes
        ) -> Sequence[Change]:
            return changes if nearby(state, segment.base, segment.last) == expected else []

        if (await manifest.commit(base, (key,), make)).number is not None:
            return True
    raise UnavailableError(manifest.keys.prefix, "it changes faster than an index can be listed")


def _changes(segment: Segment, key: str, bundle_bytes: int) -> list[Change]:
    old = segment.index_key if segment.owned else None
    changes: list[Change] = [Reindex(segment.key, segment.base, old, key, bundle_bytes)]
    if not segment.owned and segment_name(segment.index_key or "") is not None:
        # The segment is KafScale's, but Neve wrote its bundle and may delete it.
        changes.append(Doom((str(segment.index_key),)))
    return changes
