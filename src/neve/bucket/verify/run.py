"""Verifying a bucket: every checksum, every gap, every orphan, the store's rules.

Nothing here writes, but for the probe of the store's rules, which removes what it wrote. It may run
beside brokers that write: an apparent error is checked again, and an unlisted object must
have been there unlisted for a while before it is called an orphan, since an upload in flight looks
the same.
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
from neve.bucket.verify.partition import PartitionCheck, partitions_of
from neve.bucket.verify.stream import Streams
from neve.bucket.verify.unreferenced_objects import UnreferencedObjects, streams_to_check
from neve.cluster.log import ClusterLog
from neve.errors import DeniedError, StoreFailedError
from neve.store.port import ObjectInfo, Store
from neve.store.probe import inspect

# An upload in flight looks like an orphan. Segments of the default size take seconds.
SETTLE_SECONDS = 30.0


@dataclass(frozen=True)
class Options:
    """How to verify. `url` is what the commands in the report call the bucket."""

    url: str = "URL"
    probe: bool = True
    settle_seconds: float = SETTLE_SECONDS
    objects_at_once: int = OBJECTS_AT_ONCE
    bytes_at_once: int = BYTES_AT_ONCE


@runtime_checkable
class TemporaryFiles(Protocol):
    """What a store offers that keeps temporary files of its own: a local folder does."""

    async def stale_temporary(self) -> Sequence[ObjectInfo]:
        """Temporary files that a crash left behind; never those of a live writer."""

    async def remove_stale_temporary(self) -> int:
        """Remove them; how many there were."""


async def verify(
    store: Store,
    options: Options | None = None,
    *,
    temporary: object = None,
    progress: Callable[[Progress], None] = lambda _: None,
) -> Report:
    """Look at all of a bucket. NoClusterError where it is not Neve's.

    `temporary` is the bare store under `store`, if it may have temporary files of its own.
    """
    chosen = options or Options()
    report = Report(progress=progress)
    bounds = Bounds(chosen.objects_at_once, chosen.bytes_at_once)
    context = VerifyContext(store, ClusterLog(store), report, bounds, chosen.url)
    # First of all: nothing is written to a bucket, or a mistyped folder, that is not Neve's.
    readable = await ClusterCheck(context).check()
    if chosen.probe:
        await _check_rules(context)
    if isinstance(temporary, TemporaryFiles):
        await _check_temporary(report, temporary)
    if not readable:
        return report
    streams = Streams(context)
    partitions = partitions_of(context, streams)  # as they are before their streams are walked
    await walk_streams(context, streams, streams_to_check(context.cluster.state))
    context.report.begin("partitions")
    await context.bounds.each(partitions, PartitionCheck.check)
    await report_streams(context, streams)
    await UnreferencedObjects(context).check()
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
    """Read these streams whole. Partitions come after: a tail is read before its manifest."""
    context.report.begin("streams")
    for incarnation in incarnations:
        await streams.of(incarnation).walk()
        await context.watch(streams.of(incarnation))


async def report_streams(context: VerifyContext, streams: Streams) -> None:
    """Report what was found in streams that are still needed."""
    # A stream that was retired while it was walked has lost its roll-ups, which are not needed.
    needed = streams_to_check(await context.cluster.refresh())
    for stream in streams.all():
        for finding in stream.findings() if stream.incarnation in needed else ():
            context.report.add(finding)


async def report_strays(context: VerifyContext, settle_seconds: float) -> None:
    """Look at strays a second time, once they had time to be listed or removed."""
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
