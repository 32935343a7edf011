"""Removes objects that killed jobs and brokers left behind in a partition.

An unlisted object may be an upload in flight. Dooming it is safe: its uploader sees the doom and
starts again under new keys. As that costs the uploader its work, only old objects are doomed. Their
age is measured from the newest object in the listing, whose time is never ahead of the store's
clock.
"""

from __future__ import annotations

from neve.bucket.maintain.guard import MaintainedPartition
from neve.log.keys import segment_name
from neve.log.manifest.state import ManifestRules
from neve.log.series import Series
from neve.store.port import ObjectInfo

ORPHAN_AGE_MS = 3_600_000


async def doom_orphans(opened: MaintainedPartition, *, older_than_ms: int = ORPHAN_AGE_MS) -> int:
    """Doom a partition's unlisted objects that are older than this, and return their number.

    The collector deletes them. Numbers below a checkpoint are deleted at once: the process that
    wrote the checkpoint ended before it could delete them.
    """
    await Series(opened.store, opened.manifest.keys, ManifestRules()).trim()
    series = opened.manifest.keys.prefix
    runs = await opened.store.list(f"{series}run/")
    rows = [*runs, *await opened.store.list(opened.prefix), *await opened.store.list(series)]
    newest_ms = max((row.modified_ms for row in rows), default=0)
    old = [
        row.key
        for row in rows
        if row.modified_ms <= newest_ms - older_than_ms and _may_be_orphan(opened, row)
    ]
    if not old:
        return 0
    return len(await opened.manifest.doom(dict.fromkeys(old)))


def _may_be_orphan(opened: MaintainedPartition, row: ObjectInfo) -> bool:
    """Return whether an object is a run, segment or bundle, not a number or a checkpoint."""
    if row.key.startswith(f"{opened.manifest.keys.prefix}run/"):
        return True
    return row.key.startswith(opened.prefix) and segment_name(row.key) is not None
