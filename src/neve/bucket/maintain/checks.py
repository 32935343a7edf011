"""Verifies a bucket in two parts: what partitions list, and everything else.

A `ListedCheck` over every partition, in any number of processes, and one `verify_rest` together
find what `neve storage verify` finds in one run. Segments are most of a bucket, and each belongs to
one partition. WAL streams are shared by all partitions, so only `verify_rest` reads them and the
tails in them. The store's rules are not probed here, since they do not depend on its content.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from neve.bucket.maintain.guard import topic_with
from neve.bucket.verify import Options, Report
from neve.bucket.verify.bounds import Bounds
from neve.bucket.verify.cluster import ClusterCheck
from neve.bucket.verify.context import VerifyContext
from neve.bucket.verify.findings import PartitionRef, Progress
from neve.bucket.verify.partition import PartitionCheck, partitions_of
from neve.bucket.verify.run import report_strays, report_streams, walk_streams
from neve.bucket.verify.stream import Streams
from neve.bucket.verify.unreferenced_objects import UnreferencedObjects, streams_to_check
from neve.cluster.log import ClusterLog
from neve.store.port import Store


class ListedCheck:
    """Checks partitions one after the other: manifest, segments, bundles, order of offsets.

    All checks share the view of the cluster log and the limits. `settle` waits once for all of them
    until unlisted objects had time to be listed.
    """

    def __init__(self, store: Store, options: Options | None = None) -> None:
        self._store = store
        self._options = options or Options()
        self._cluster = ClusterLog(store)
        self._bounds = Bounds(self._options.objects_at_once, self._options.bytes_at_once)
        self._contexts: list[VerifyContext] = []

    async def check(self, topic: str, partition: int) -> Report:
        """Check one partition. `settle` adds its unlisted objects to the returned report."""
        found = topic_with(await self._cluster.must_exist(), topic, partition)
        context = VerifyContext(
            self._store, self._cluster, Report(), self._bounds, self._options.url
        )
        place = PartitionRef(found.name, found.topic_id, partition)
        check = PartitionCheck(context, place, found.partitions[partition], Streams(context))
        await check.check_listed()
        self._contexts.append(context)
        return context.report

    async def settle(self) -> None:
        """Wait until no unlisted object can be an upload in flight, and report those left."""
        for context in self._contexts:
            await report_strays(context, self._options.settle_seconds)
        self._contexts.clear()


async def verify_rest(
    store: Store,
    options: Options | None = None,
    *,
    only: Collection[tuple[str, int]] | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Report:
    """Check the cluster log, the WAL streams, every partition's tail, and unreferenced objects.

    With `only`, check just the cluster log, and the tails and streams of these partitions, given by
    topic and number.
    """
    chosen = options or Options()
    bounds = Bounds(chosen.objects_at_once, chosen.bytes_at_once)
    context = VerifyContext(store, ClusterLog(store), Report(progress=progress), bounds, chosen.url)
    if not await ClusterCheck(context).check():
        return context.report
    streams = Streams(context)
    partitions = partitions_of(context, streams)
    incarnations = streams_to_check(context.cluster.state)
    if only is not None:
        partitions = [row for row in partitions if (row.place.topic, row.place.partition) in only]
        incarnations = sorted({each for row in partitions for each in row.incarnations})
    await walk_streams(context, streams, incarnations)
    context.report.begin("tails")
    await context.bounds.each(partitions, PartitionCheck.check_tail)
    await report_streams(context, streams)
    if only is None:
        await UnreferencedObjects(context).check()
    await report_strays(context, chosen.settle_seconds)
    return context.report
