"""Verifies a bucket: every checksum, every gap, every orphan, and the store's rules.

Nothing here writes except the probe of the store's rules, which removes what it wrote. Brokers may
write meanwhile: an apparent error is checked again, and an object is reported as an orphan only if
it stays unlisted for a while, since an upload in flight looks the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from neve import runtime
from neve.bucket.verify.bounds import BYTES_AT_ONCE, OBJECTS_AT_ONCE, Bounds
from neve.bucket.verify.cluster import ClusterCheck
from neve.bucket.verify.context import Scope, Stray, VerifyContext
from neve.bucket.verify.findings import Finding, Progress, Remedy, Report, Severity
from neve.bucket.verify.heartbeats import HeartbeatCheck
from neve.bucket.verify.partition import PartitionCheck, partitions_of
from neve.bucket.verify.stream import Streams
from neve.bucket.verify.unreferenced_objects import UnreferencedObjects, streams_to_check
from neve.cluster.log import ClusterLog
from neve.errors import DeniedError, StoreFailedError
from neve.store.port import ObjectInfo, Store
from neve.store.probe import inspect

# How long an object must stay unlisted. Uploading a segment of the default size takes seconds.
SETTLE_SECONDS = 30.0


@dataclass(frozen=True)
class Options:
    """How to verify. `url` names the bucket in the commands that the report suggests."""

    url: str = "URL"
    probe: bool = True
    settle_seconds: float = SETTLE_SECONDS
    objects_at_once: int = OBJECTS_AT_ONCE
    bytes_at_once: int = BYTES_AT_ONCE


@runtime_checkable
class TemporaryFiles(Protocol):
    """A store that keeps temporary files of its own, as a local folder does."""

    async def stale_temporary(self) -> Sequence[ObjectInfo]:
        """Return temporary files that a crash left behind; never those of a live writer."""

    async def remove_stale_temporary(self) -> int:
        """Remove them, and return how many there were."""


async def verify(
    store: Store,
    options: Options | None = None,
    *,
    temporary: object = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Report:
    """Verify a whole bucket. Raises NoClusterError if it is not a Neve bucket.

    `temporary` is the bare store under `store`, if it may have temporary files of its own.
    """
    chosen = options or Options()
    report = Report(progress=progress)
    bounds = Bounds(chosen.objects_at_once, chosen.bytes_at_once)
    context = VerifyContext(store, ClusterLog(store), report, bounds, chosen.url)
    # First, so that the probe below never writes to a mistyped folder or another bucket.
    readable = await ClusterCheck(context).check()
    if chosen.probe:
        await _check_rules(context)
    if isinstance(temporary, TemporaryFiles):
        await _check_temporary(report, temporary)
    if not readable:
        return report
    streams = Streams(context)
    partitions = partitions_of(context, streams)  # as of before their streams are read
    await walk_streams(context, streams, streams_to_check(context.cluster.state))
    context.report.begin("partitions")
    await context.bounds.each(partitions, PartitionCheck.check)
    await report_streams(context, streams)
    await UnreferencedObjects(context).check()
    await HeartbeatCheck(context).check()
    await report_strays(context, chosen.settle_seconds)
    return report


async def _check_rules(context: VerifyContext) -> None:
    context.report.begin("the store's rules")
    try:
        rules = await inspect(context.store)
    except (DeniedError, StoreFailedError) as error:
        raise type(error)(
            error.key, f"{error.reason}; where writing is not allowed, pass --no-probe"
        ) from error
    for rule in rules:
        context.report.counts["rules"] += 1
        if not rule.ok:
            context.report.add(
                Finding(
                    severity=Severity.RULE,
                    key=rule.rule,
                    what=f"the store breaks the rule that {rule.says}: {rule.detail}",
                    do="Neve would lose records on this store: use another",
                )
            )


async def _check_temporary(report: Report, files: TemporaryFiles) -> None:
    for row in await files.stale_temporary():
        report.add(
            Finding(
                severity=Severity.LEFTOVER,
                key=row.key,
                bytes=row.size,
                what="a temporary file that a crash left behind",
                do="harmless; --repair removes it",
                remedy=Remedy.REMOVE_TEMPORARY,
            )
        )


async def walk_streams(
    context: VerifyContext, streams: Streams, incarnations: Iterable[int]
) -> None:
    """Read these streams completely. Call this before checking partitions.

    A tail must be read before its partition's manifest.
    """
    context.report.begin("streams")
    for incarnation in incarnations:
        await streams.of(incarnation).walk()
        await context.watch(streams.of(incarnation))


async def report_streams(context: VerifyContext, streams: Streams) -> None:
    """Report the findings of streams that are still needed."""
    # A stream that was retired while it was read may lack roll-ups, which is not an error.
    needed = streams_to_check(await context.cluster.refresh())
    for stream in streams.all():
        for finding in stream.findings() if stream.incarnation in needed else ():
            context.report.add(finding)


async def report_strays(context: VerifyContext, settle_seconds: float) -> None:
    """Search for strays again after they had time to be listed or removed; report those left."""
    if not context.first_strays:
        return
    context.report.begin("unlisted objects")
    young_ms = runtime.now_ms() - settle_seconds * 1000
    strays = [stray for _, found in context.first_strays for stray in found]
    left = context.watched_at + settle_seconds - runtime.monotonic()
    if left > 0 and any(stray.row.modified_ms > young_ms for stray in strays):
        await runtime.sleep(left)

    async def again(first: tuple[Scope, list[Stray]]) -> None:
        scope, found = first
        known = {stray.row.key for stray in found}
        for stray in await scope.strays():
            if stray.row.key in known:
                context.report.add(replace(stray.finding, bytes=stray.row.size))

    await context.bounds.each(context.first_strays, again)
