"""Merges small neighbouring segments of one partition into large ones.

A merge commits in the same way as the leader: it reads the manifest before the first upload,
uploads segment and bundle concurrently under new keys, and one manifest number lists them and dooms
their inputs. A job may be killed at any point, and any number of jobs may run beside the leader,
retention, repair and each other: a job whose inputs were merged by another abandons its objects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from neve.bucket.maintain.build import build_merged
from neve.bucket.maintain.commit import Replacement, listed_now, replace_segments
from neve.bucket.maintain.guard import MaintainedPartition, open_partition
from neve.bucket.maintain.leftovers import ORPHAN_AGE_MS, doom_orphans
from neve.bucket.maintain.merge_groups import merge_groups
from neve.errors import DamagedError, InvalidError, NotFoundError
from neve.log.manifest.manifest import DoomedError, ManifestView
from neve.log.manifest.records import Segment
from neve.log.segment import kfs
from neve.log.segment.state_table import is_internal
from neve.log.segment.upload import upload_pair
from neve.log.series import PassedError
from neve.settings import MIB, Settings
from neve.store.port import Store

TARGET_BYTES = 256 * MIB
ATTEMPTS_MAX = 20


@dataclass
class MergeResult:
    """What was done to one partition, or what a dry run would do."""

    topic: str
    partition: int
    merged: int = 0
    into: int = 0
    bytes: int = 0
    lost_races: int = 0
    collected: int = 0
    orphans: int = 0
    damaged: list[str] = field(default_factory=list)
    """Segments that were not merged because they cannot be read, and why."""


async def merge_partition(
    store: Store,
    topic: str,
    partition: int,
    *,
    target_bytes: int = TARGET_BYTES,
    imported: bool = False,
    collect: bool = True,
    orphan_age_ms: int = ORPHAN_AGE_MS,
    dry_run: bool = False,
    settings: Settings | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> MergeResult:
    """Merge all segments that are worth merging.

    `progress` is called with the input bytes of each merge. With `collect`, doomed objects are
    deleted at once, otherwise by the leader.
    """
    if not 1 <= target_bytes <= kfs.SEGMENT_BYTES_MAX:
        raise InvalidError(
            f"segments of {target_bytes} bytes: choose 1 to {kfs.SEGMENT_BYTES_MAX}, and remember "
            "that one is held in memory"
        )
    chosen = settings or Settings()
    opened = await open_partition(store, topic, partition, chosen)
    work = _Merging(opened, target_bytes, imported, chosen, progress)
    if dry_run:
        return await work.planned()
    work.result.orphans = await doom_orphans(opened, older_than_ms=orphan_age_ms)
    await work.run()
    await opened.manifest.checkpoint(chosen.segment.checkpoint_numbers)
    if collect:
        work.result.collected = len(await opened.manifest.collect())
    return work.result


class _Merging:
    """One merge run over one partition."""

    def __init__(
        self,
        opened: MaintainedPartition,
        target_bytes: int,
        imported: bool,
        settings: Settings,
        progress: Callable[[int], None],
    ) -> None:
        self._opened = opened
        self._target_bytes = target_bytes
        self._imported = imported
        self._settings = settings
        self._progress = progress
        self._damaged: dict[str, str] = {}
        self.result = MergeResult(opened.place.topic, opened.place.partition)

    async def _groups(self) -> tuple[list[Segment], list[list[Segment]]]:
        _, listed = await listed_now(self._opened.manifest)
        groups = merge_groups(
            listed,
            self._target_bytes,
            left_out=self._damaged,
            imported=self._imported,
            internal=is_internal(self._opened.place.topic),
        )
        return listed, groups

    async def planned(self) -> MergeResult:
        for group in (await self._groups())[1]:
            self._count(group)
        return self.result

    async def run(self) -> None:
        """Merge the groups in order. The manifest is read again for each."""
        failures = 0
        while failures < ATTEMPTS_MAX:
            listed, groups = await self._groups()
            if not groups:
                break
            failures = 0 if await self._merge(listed, groups[0]) else failures + 1
        self.result.damaged = [f"{key}: {why}" for key, why in self._damaged.items()]

    async def _merge(self, listed: list[Segment], group: list[Segment]) -> bool:
        """Merge one group. Returns False if another job was first, or a segment is unreadable."""
        manifest = self._opened.manifest
        base = manifest.view  # before the first upload
        uploaded: list[str] = []
        won = False
        try:
            won = await self._attempt(listed, group, uploaded, base)
            self.result.lost_races += not won
        except (DoomedError, PassedError):
            self.result.lost_races += 1
        except (DamagedError, NotFoundError) as error:
            await self._note_damage(group, error)
        if won:
            self._count(group)
        elif uploaded:
            await manifest.doom(uploaded)  # a listed object is not doomed
        return won

    async def _attempt(
        self,
        listed: list[Segment],
        group: list[Segment],
        uploaded: list[str],
        base: ManifestView,
    ) -> bool:
        store, manifest = self._opened.store, self._opened.manifest
        interval = self._settings.segment.index_interval
        built = await build_merged(
            store, manifest, self._opened.prefix, listed, group, interval=interval
        )
        segment = built.segment
        assert segment.index_key is not None
        uploaded += [segment.key, segment.index_key]
        await upload_pair(store, segment.key, built.data, segment.index_key, built.bundle)
        replacement = Replacement(tuple(group), (segment,))
        return await replace_segments(store, manifest, base, uploaded, replacement)

    async def _note_damage(self, group: list[Segment], error: DamagedError | NotFoundError) -> None:
        """Exclude an unreadable segment from further merges, unless it is no longer listed."""
        _, listed = await listed_now(self._opened.manifest)
        keys = {row.key for row in listed}
        if isinstance(error, NotFoundError) and error.key not in keys:
            return
        await self._opened.must_be_alive()
        at_fault = error.key if any(row.key == error.key for row in group) else group[0].key
        self._damaged[at_fault] = error.reason

    def _count(self, group: list[Segment]) -> None:
        self.result.merged += len(group)
        self.result.into += 1
        size = sum(segment.bytes for segment in group)
        self.result.bytes += size
        self._progress(size)
