"""Restores indexes: rebuilds a missing or damaged bundle from its segment.

The new bundle gets a new key and is listed by a manifest number, which dooms the old one. The state
before the segment (producers, epochs, and the table of an internal partition) comes from the bundle
before it. If that is lost too, the search continues backwards, at most to the first listed segment.
Then producers and epochs from before that segment are forgotten. A lost table raises DamagedError
instead, because an empty one would be taken for the real one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from neve.errors import DamagedError, NotFoundError, UnavailableError
from neve.log.create import create_own
from neve.log.downloads import fetch_checked
from neve.log.keys import new_segment_key, partition_of, segment_name, segment_prefix
from neve.log.manifest.manifest import DoomedError, Manifest
from neve.log.manifest.records import Change, Reindex, Segment
from neve.log.manifest.state import ManifestState
from neve.log.remote import read_bundle
from neve.log.segment.bundle import Bundle, decode_bundle
from neve.log.segment.history import History
from neve.log.segment.rebuild import Rebuilt, rebuild
from neve.log.segment.state_table import is_internal
from neve.log.series import PassedError
from neve.store.port import Store

INDEX_INTERVAL_DEFAULT = 100
ATTEMPTS_MAX = 5


async def load_history(store: Store, manifest: Manifest, name: str) -> tuple[History, int]:
    """Return the history at the end of the tiered segments, and the offset of that end.

    Lost bundles are rebuilt. The manifest may change during the call.
    """
    for _ in range(ATTEMPTS_MAX):
        state = manifest.state
        segments = await manifest.segments()
        if manifest.state is not state:
            continue
        try:
            history = await _state_kept(store, manifest, state, name)
            if history is None:
                if state.state_bundle is not None and await manifest.refresh() is not state:
                    continue  # a later segment's bundle holds all of its state
                history = await _history_at_end(store, manifest, segments, name)
        except NotFoundError as error:
            # A segment to rebuild a bundle from is gone: was it merged or expired meanwhile?
            await manifest.refresh()
            if any(row.key == error.key for row in await manifest.segments()):
                raise DamagedError(error.key, f"{name} lists this segment; it is gone") from error
            continue
        return history, state.next
    raise UnavailableError(manifest.keys.prefix, "it changes faster than its history can be read")


async def _state_kept(
    store: Store, manifest: Manifest, state: ManifestState, name: str
) -> History | None:
    """Return the history in the bundle that was kept after the last segment was removed.

    Returns None if there is no such bundle, or it is lost.
    """
    kept = state.state_bundle
    if kept is None:
        return None
    internal = is_internal_partition(manifest)

    def take(data: memoryview) -> History:
        return history_of(decode_bundle(data, kept.key), name, internal=internal)

    try:
        return await fetch_checked(store, kept.key, kept.bytes_max, take)
    except (NotFoundError, DamagedError):
        return None  # it cannot be rebuilt, because its segment was removed


async def _history_at_end(
    store: Store, manifest: Manifest, segments: Sequence[Segment], name: str
) -> History:
    found = await history_before(store, manifest, segments, len(segments), name)
    history = found.history
    for segment in segments[found.segments :]:
        history = (await restore_bundle(store, manifest, segment, history)).history
    return history


class Before(NamedTuple):
    """The history at the end of the first `segments` segments."""

    segments: int
    history: History


async def history_before(
    store: Store, manifest: Manifest, segments: Sequence[Segment], count: int, name: str
) -> Before:
    """Return the history in the last sound bundle of the first `count` segments.

    If none is sound, it is the empty history before the first segment. Raises DamagedError if that
    would lose an internal partition's table.
    """
    internal = is_internal_partition(manifest)
    for at in range(count, 0, -1):
        try:
            return Before(
                at,
                await read_bundle(
                    store,
                    segments[at - 1],
                    lambda bundle: history_of(bundle, name, internal=internal),
                ),
            )
        except (NotFoundError, DamagedError):
            continue
    if internal and _something_came_before(manifest.state, segments):
        raise DamagedError(
            manifest.keys.prefix,
            f"no sound bundle of {name} is left that has its STATE, and the records it was made "
            "of have expired: restore a bundle from a backup, or recreate the topic",
        )
    return Before(0, History(name, state=() if internal else None))


def _something_came_before(state: ManifestState, segments: Sequence[Segment]) -> bool:
    return segments[0].base > 0 if segments else state.next > 0


def is_internal_partition(manifest: Manifest) -> bool:
    partition = partition_of(manifest.keys.prefix)
    return partition is not None and is_internal(partition.topic_shown)


def history_of(bundle: Bundle, name: str, *, internal: bool) -> History:
    """Return the history in a bundle. Raises DamagedError if it lacks the table it must have."""
    if internal and bundle.state is None:
        raise DamagedError(bundle.key, f"it has no STATE section, and {name} is internal")
    return History(
        name, bundle.producers or (), bundle.epochs or (), bundle.state if internal else None
    )


async def restore_bundle(
    store: Store, manifest: Manifest, segment: Segment, before: History
) -> Rebuilt:
    """Rebuild one segment's bundle and list it. Raises DamagedError for a damaged segment."""
    rebuilt = await fetch_checked(
        store,
        segment.key,
        segment.bytes_max,
        lambda data: rebuild(
            data,
            segment.key,
            INDEX_INTERVAL_DEFAULT,
            producers=before.producers.entries(),
            epochs=before.epochs.starts,
            state=None if before.state is None else before.state.rows(),
        ),
    )
    for _ in range(ATTEMPTS_MAX):
        try:
            await _list_bundle(store, manifest, segment, rebuilt.bundle)
        except (DoomedError, PassedError):
            continue
        return rebuilt
    raise UnavailableError(segment.key, "its manifest changes faster than an index can be listed")


async def _list_bundle(store: Store, manifest: Manifest, segment: Segment, bundle: bytes) -> None:
    await manifest.refresh()
    base = manifest.view
    name = segment_name(segment.key)
    incarnation = name.incarnation if name is not None else 0
    key = new_segment_key(_own_prefix(manifest, segment), segment.base, incarnation, "index")
    await create_own(store, key, bundle)

    def make(state: ManifestState) -> Sequence[Change]:
        # If another process restored it, or the segment was merged or expired, list nothing.
        if _index_now(state, segment) != (True, segment.index_key):
            return []
        # An imported index is not Neve's to delete.
        old = segment.index_key if segment.owned else None
        return [Reindex(segment.key, segment.base, old, key, len(bundle))]

    await manifest.commit(base, (key,), make)


def _own_prefix(manifest: Manifest, segment: Segment) -> str:
    """Return the prefix of the partition's own objects; an imported segment has another one."""
    partition = partition_of(manifest.keys.prefix)
    if partition is None:
        return segment.key[: segment.key.rindex("/") + 1]
    return segment_prefix(partition.topic_shown, partition.topic_id, partition.partition)


def _index_now(state: ManifestState, segment: Segment) -> tuple[bool, str | None]:
    """Return whether a segment is still listed, and the key of its listed index."""
    for row in state.loose:
        if row.key == segment.key:
            return True, row.index_key
    in_run = any(run.base <= segment.base <= run.last for run in state.runs)
    if not in_run or any(row.key == segment.key for row in state.removed):
        return False, None
    for change in state.reindexed:
        if change.key == segment.key:
            return True, change.index_key
    return True, segment.index_key
