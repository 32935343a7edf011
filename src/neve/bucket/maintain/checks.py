"""Verifying a bucket in parts that can be looked at apart: one partition, or all that is between.

`verify_partition` for every partition and `verify_rest` once find what `neve storage verify` finds
in one go. The store's rules are not tried here: that is about the store, not about what is in it.
"""

from __future__ import annotations

from collections.abc import Callable

from neve import runtime
from neve.bucket.maintain.guard import open_partition
from neve.bucket.verify import Options, Report
from neve.bucket.verify.bounds import Bounds
from neve.bucket.verify.cluster import ClusterCheck
from neve.bucket.verify.findings import Progress
from neve.bucket.verify.look import Look
from neve.bucket.verify.partition import PartitionCheck
from neve.bucket.verify.run import tell_strays, tell_streams
from neve.bucket.verify.strangers import Strangers, streams_to_check
from neve.bucket.verify.stream import Streams
from neve.cluster.log import ClusterLog
from neve.store.port import Store


async def verify_partition(
    store: Store,
    topic: str,
    partition: int,
    options: Options | None = None,
    *,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Report:
    """Check one partition: its manifest, every segment and bundle, the order of its offsets."""
    chosen = options or Options()
    started = runtime.monotonic()
    opened = await open_partition(store, topic, partition)
    look = _look(store, opened.cluster, chosen, progress)
    await PartitionCheck(look, opened.place, opened.state, Streams(look)).check()
    await tell_strays(look, started, chosen.settle_seconds)
    return look.report


async def verify_rest(
    store: Store,
    options: Options | None = None,
    *,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Report:
    """Check the cluster log, the WAL streams, and what belongs to nobody."""
    chosen = options or Options()
    started = runtime.monotonic()
    look = _look(store, ClusterLog(store), chosen, progress)
    if not await ClusterCheck(look).check():
        return look.report
    streams = Streams(look)
    look.report.begin("streams")
    for incarnation in streams_to_check(look.cluster.state):
        await streams.of(incarnation).walk()
        await look.watch(streams.of(incarnation))
    await tell_streams(look, streams)
    await Strangers(look).check()
    await tell_strays(look, started, chosen.settle_seconds)
    return look.report


def _look(
    store: Store, cluster: ClusterLog, options: Options, progress: Callable[[Progress], None]
) -> Look:
    bounds = Bounds(options.objects_at_once, options.bytes_at_once)
    return Look(store, cluster, Report(progress=progress), bounds, options.url)
