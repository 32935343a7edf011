"""Takes ownership of imported segments, so that Neve may delete them.

First every segment gets a bundle of Neve's, since KafScale's index has only a small part of one.
Then manifest numbers list the segments as owned and doom KafScale's index files, which are no
longer read. Merging, retention and the collector then treat the segments like all others.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import msgspec

from neve.bucket.maintain.commit import Replacement, listed_now, replace_segments
from neve.bucket.maintain.guard import MaintainedPartition, open_partition
from neve.bucket.maintain.indexes import build_partition_indexes
from neve.log.keys import segment_name
from neve.log.manifest.manifest import DoomedError
from neve.log.manifest.records import Segment
from neve.log.series import PassedError
from neve.settings import Settings
from neve.store.port import Store

# The segments in one manifest number, at about 400 bytes each.
SEGMENTS_AT_ONCE = 1_000
ATTEMPTS_MAX = 20


@dataclass
class OwnershipResult:
    """The number of segments taken over in one partition, and those that could not be."""

    topic: str
    partition: int
    taken: int = 0
    failed: list[str] = field(default_factory=list)


async def take_ownership(
    store: Store,
    topic: str,
    partition: int,
    *,
    dry_run: bool = False,
    collect: bool = True,
    settings: Settings | None = None,
) -> OwnershipResult:
    """Make the imported segments of one partition Neve's own."""
    chosen = settings or Settings()
    result = OwnershipResult(topic, partition)
    opened = await open_partition(store, topic, partition, chosen)
    if dry_run:
        _, listed = await listed_now(opened.manifest)
        result.taken = sum(not row.owned for row in listed)
        return result
    built = await build_partition_indexes(store, topic, partition, complete=True, settings=chosen)
    result.failed = built.failed
    lost_races = 0
    while lost_races < ATTEMPTS_MAX:
        _, listed = await listed_now(opened.manifest)
        foreign = [row for row in listed if not row.owned and _has_own_bundle(row)]
        if not foreign:
            break
        some = foreign[:SEGMENTS_AT_ONCE]
        if await _take(opened, some):
            result.taken += len(some)
        else:
            lost_races += 1
    await opened.manifest.checkpoint(chosen.segment.checkpoint_numbers)
    if collect:
        await opened.manifest.collect()
    return result


def _has_own_bundle(segment: Segment) -> bool:
    return segment_name(segment.index_key or "") is not None


async def _take(opened: MaintainedPartition, some: list[Segment]) -> bool:
    base = opened.manifest.view
    owned = tuple(msgspec.structs.replace(row, owned=True) for row in some)
    index_keys = {
        f"{row.key.removesuffix('.kfs')}.{suffix}" for row in some for suffix in _INDEX_SUFFIXES
    }
    folder = some[0].key[: some[0].key.rindex("/") + 1]
    there = [row.key for row in await opened.store.list(folder) if row.key in index_keys]
    replacement = Replacement(tuple(some), owned, tuple(there))
    uploaded: list[str] = []  # runs that were rewritten
    won = False
    with contextlib.suppress(DoomedError, PassedError):
        won = await replace_segments(opened.store, opened.manifest, base, uploaded, replacement)
    if not won and uploaded:
        await opened.manifest.doom(uploaded)
    return won


_INDEX_SUFFIXES = ("index", "kfst")
