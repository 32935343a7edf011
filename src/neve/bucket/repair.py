"""Repairs what verify found, where that cannot lose anything.

Repair uses the same operations as brokers do. An index is rebuilt under a new key and listed by a
manifest number. An orphan is doomed by a manifest number before it is deleted, so an upload that is
still in flight starts again under new keys. Leftovers are removed by the ordinary trims. Repair
never removes a number of a series above its greatest checkpoint, and never touches a damaged object
that holds records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from neve.bucket.verify.context import manifest_of
from neve.bucket.verify.findings import Finding, PartitionRef, Progress, Remedy, Report
from neve.bucket.verify.run import Options, TemporaryFiles, verify
from neve.cluster.fold import ClusterRules
from neve.cluster.liveness.heartbeat import delete_heartbeats
from neve.cluster.log import ClusterLog
from neve.cluster.streams import retire_streams
from neve.errors import DamagedError, NeveError, NotFoundError
from neve.log.keys import cluster_log
from neve.log.manifest.manifest import Manifest
from neve.log.manifest.records import Segment
from neve.log.manifest.state import ManifestRules
from neve.log.remote import load_bundle
from neve.log.restore import history_before, restore_bundle
from neve.log.segment.history import History
from neve.log.series import Series
from neve.log.wal.reader import WalReader
from neve.log.wal.rollup import trim
from neve.store.port import Store


async def verify_and_repair(
    store: Store,
    options: Options | None = None,
    *,
    temporary: object = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Report:
    """Verify a bucket, repair what can be repaired, and report both."""
    report = await verify(store, options, temporary=temporary, progress=progress)
    report.begin("repair")
    await Repair(store, report, temporary).run()
    return report


class Repair:
    """Repairs the findings of one report, and adds what it did to the report."""

    def __init__(self, store: Store, report: Report, temporary: object = None) -> None:
        self._store = store
        self._report = report
        self._temporary = temporary
        self._done: set[str] = set()

    async def run(self) -> None:
        topics = (await ClusterLog(self._store).refresh()).topics
        for place in self._places():
            if place.topic_id in topics:
                await self._partition(place)
        if self._with(Remedy.TRIM_CLUSTER_LOG):
            await self._trim_cluster_log()
        for incarnation in self._incarnations():
            await self._trim_stream(incarnation)
        if self._with(Remedy.RETIRE_STREAM):
            await self._retire()
        if self._with(Remedy.REMOVE_HEARTBEAT):
            await self._remove_heartbeats()
        for finding in self._with(Remedy.REMOVE_PROBE):
            await self._store.delete(finding.key)
            self._did(finding.key, "removed what a probe left behind")
        if self._with(Remedy.REMOVE_TEMPORARY):
            await self._remove_temporary()
        self._report.mark_repaired(lambda row: row.repairable and row.key in self._done)

    def _with(self, remedy: Remedy, place: PartitionRef | None = None) -> list[Finding]:
        return [
            row
            for row in self._report.findings
            if row.remedy is remedy and (place is None or row.place == place)
        ]

    def _places(self) -> list[PartitionRef]:
        found = [row.place for row in self._report.findings if row.remedy is not None]
        return sorted({place for place in found if place is not None})

    def _incarnations(self) -> list[int]:
        found = [row.incarnation for row in self._with(Remedy.TRIM_STREAM)]
        return sorted({each for each in found if each is not None})

    def _did(self, key: str, what: str) -> None:
        self._done.add(key)
        self._report.did(key, what)

    # -- a partition -------------------------------------------------------------------------

    async def _partition(self, place: PartitionRef) -> None:
        manifest = manifest_of(self._store, place)
        await manifest.refresh()
        lost = self._with(Remedy.RESTORE_INDEX, place)
        if lost:
            await self._restore(place, manifest, {row.key for row in lost})
        orphans = [row.key for row in self._with(Remedy.DOOM, place)]
        if orphans:
            await self._doom(manifest, orphans)
        leftovers = self._with(Remedy.TRIM_MANIFEST, place)
        if leftovers:
            await Series(self._store, manifest.keys, ManifestRules()).trim()
            await self._note_gone(leftovers, "removed: its checkpoint sums it up")

    async def _restore(self, place: PartitionRef, manifest: Manifest, lost: set[str]) -> None:
        """Rebuild the lost bundles in the order of offsets, since each needs the one before it."""
        segments = await manifest.segments()
        for at, segment in enumerate(segments):
            if segment.index_key not in lost:
                continue
            try:
                before = await self._history_before(place, manifest, at)
                await restore_bundle(self._store, manifest, segment, before)
            except (DamagedError, NotFoundError):
                continue  # damaged since it was verified: the next run reports it
            old, new = segment.index_key, await _index_now(manifest, segment)
            if new is None or new.index_key == old:
                continue
            (await load_bundle(self._store, new)).check_all()
            self._did(str(old), f"rebuilt from {segment.key} as {new.index_key}")

    async def _history_before(self, place: PartitionRef, manifest: Manifest, at: int) -> History:
        """Return the history at the start of segment `at`, from the nearest bundle below it.

        Raises DamagedError if the history has a state table and that bundle is not the one directly
        below the segment: the table would be incomplete.
        """
        segments = await manifest.segments()
        found = await history_before(self._store, manifest, segments, at, str(place))
        if found.segments < at and found.history.state is not None:
            raise DamagedError(segments[at - 1].key, "its STATE is lost, and needed for the next")
        return found.history

    async def _doom(self, manifest: Manifest, orphans: list[str]) -> None:
        doomed = await manifest.doom(orphans)
        for key in doomed:
            self._report.did(key, "doomed: no manifest may list it any more")
        gone = set(await manifest.collect())
        for key in orphans:
            if key in gone:
                self._did(key, "deleted, since it is doomed")
            else:
                # Another process listed it meanwhile, or doomed and deleted it.
                self._done.add(key)

    # -- trims -------------------------------------------------------------------------------

    async def _trim_cluster_log(self) -> None:
        await Series(self._store, cluster_log(), ClusterRules()).trim()
        await self._note_gone(
            self._with(Remedy.TRIM_CLUSTER_LOG), "removed: its checkpoint sums it up"
        )

    async def _trim_stream(self, incarnation: int) -> None:
        reader = WalReader(self._store, incarnation)
        try:
            end = await reader.end()
        except NeveError:
            return  # reported as damage, and left as it is
        await trim(self._store, reader, end=end[0] if end is not None else None)
        found = [row for row in self._with(Remedy.TRIM_STREAM) if row.incarnation == incarnation]
        await self._note_gone(found, "removed: nothing in its stream needs it")

    async def _retire(self) -> None:
        cluster = ClusterLog(self._store)
        await retire_streams(self._store, cluster)
        await self._note_gone(self._with(Remedy.RETIRE_STREAM), "removed: its stream is over")

    async def _remove_heartbeats(self) -> None:
        await delete_heartbeats(self._store, ClusterLog(self._store))
        found = self._with(Remedy.REMOVE_HEARTBEAT)
        await self._note_gone(found, "removed: its process is over")

    async def _note_gone(self, findings: Sequence[Finding], what: str) -> None:
        for finding in findings:
            try:
                await self._store.get_range(finding.key, 0, 1)
            except NotFoundError:
                self._did(finding.key, what)

    async def _remove_temporary(self) -> None:
        if isinstance(self._temporary, TemporaryFiles):
            await self._temporary.remove_stale_temporary()
            left = {row.key for row in await self._temporary.stale_temporary()}
            for finding in self._with(Remedy.REMOVE_TEMPORARY):
                if finding.key not in left:
                    self._did(finding.key, "removed the temporary file")


async def _index_now(manifest: Manifest, segment: Segment) -> Segment | None:
    await manifest.refresh()
    rows = await manifest.segments(segment.base, segment.last)
    return next((row for row in rows if row.key == segment.key), None)
