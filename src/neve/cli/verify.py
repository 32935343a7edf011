"""`neve storage verify` and `neve storage skip`: checking a bucket, mending it, giving up."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

from cyclopts import Parameter

from neve import runtime
from neve.bucket import skip as skipping
from neve.bucket import verify as verifying
from neve.bucket.repair import verify_and_repair
from neve.bucket.verify import Finding, Options, Progress, Report
from neve.bucket.verify.kafscale import verify_kafscale
from neve.bucket.verify.run import SETTLE_SECONDS
from neve.cli import output
from neve.settings import Settings
from neve.store.port import Store
from neve.store.url import Stack, connect, open_store, stack

# A person reads these; a crash in the middle of a roll-up leaves some hundred of them.
LEAVINGS_SHOWN_MAX = 20

Url = Annotated[str, Parameter(help="The bucket: s3://, gs://, az://, file:// or a plain path.")]


def verify(
    url: Url,
    /,
    *,
    repair: Annotated[
        bool, Parameter(negative="", help="Mend what can be mended without losing anything.")
    ] = False,
    json: Annotated[bool, Parameter(negative="", help="Print JSON.")] = False,
    layout: Annotated[
        Literal["neve", "kafscale"],
        Parameter(help="Whose files they are: Neve's, or KafScale's, which are only read."),
    ] = "neve",
    probe: Annotated[
        bool,
        Parameter(help="Try the store's rules, which writes and removes a few small objects."),
    ] = True,
    settle_seconds: Annotated[
        float,
        Parameter(help="An object that nobody lists for so long is an orphan, not an upload."),
    ] = SETTLE_SECONDS,
    settings: output.SettingsFlags = output.DEFAULT_FLAGS,
) -> int:
    """Check every checksum, every gap, every orphan and the store's rules.

    It may run beside brokers that write. What a crash left behind is listed as leavings and is
    harmless. The exit code is 1 where anything is damaged, missing or lost, or a rule is broken.
    """
    if settle_seconds < 0 or not math.isfinite(settle_seconds):
        raise output.UsageError(f"--settle-seconds {settle_seconds}: give 0 or more")
    if layout == "kafscale" and repair:
        raise output.UsageError(
            "--repair is for Neve's own files; `neve maintain build-index --layout kafscale` "
            "writes KafScale's indexes"
        )
    options = Options(url=url, probe=probe, settle_seconds=settle_seconds)
    if layout == "kafscale":
        return runtime.run(verify_foreign(url, settings.load(), options, as_json=json))
    return runtime.run(verify_bucket(url, settings.load(), options, repair=repair, as_json=json))


def skip(
    url: Url,
    /,
    *,
    topic: Annotated[str, Parameter(help="The topic.")],
    partition: Annotated[int, Parameter(help="The partition.")],
    from_offset: Annotated[int, Parameter(name="--from", help="The first offset to give up.")],
    to_offset: Annotated[
        int, Parameter(name="--to", help="Up to this offset, which is not given up.")
    ],
    accept_loss: Annotated[
        bool, Parameter(negative="", help="The offsets are lost to every reader, for ever.")
    ] = False,
    reason: Annotated[str, Parameter(help="Why; it is kept on record.")] = skipping.REASON_DEFAULT,
    settings: output.SettingsFlags = output.DEFAULT_FLAGS,
) -> int:
    """Give damaged offsets up for lost, so that readers get past them.

    It is recorded in the manifest, counted by readers, and shown by verify. Nothing is deleted.
    """
    return runtime.run(
        skip_offsets(
            url,
            settings.load(),
            topic=topic,
            partition=partition,
            first=from_offset,
            end=to_offset,
            reason=reason,
            accept_loss=accept_loss,
        )
    )


async def verify_bucket(
    url: str, settings: Settings, options: Options, *, repair: bool, as_json: bool
) -> int:
    """Print what is wrong with a bucket, and what was done about it; 0 only if all is well."""
    raw = open_store(url, settings.store)
    work = verify_and_repair if repair else verifying.verify

    async def report(store: Store, progress: Callable[[Progress], None]) -> Report:
        return await work(store, options, temporary=raw, progress=progress)

    return await _reported(url, stack(raw, settings.store), report, as_json=as_json)


async def verify_foreign(url: str, settings: Settings, options: Options, *, as_json: bool) -> int:
    """The same for a KafScale bucket, of which nothing is written."""

    async def report(store: Store, progress: Callable[[Progress], None]) -> Report:
        return await verify_kafscale(store, options, progress=progress)

    return await _reported(url, connect(url, settings.store), report, as_json=as_json)


async def _reported(
    url: str,
    stacked: Stack,
    work: Callable[[Store, Callable[[Progress], None]], Awaitable[Report]],
    *,
    as_json: bool,
) -> int:
    try:
        with output.naming(url), output.progress("objects", hidden=as_json) as bar:

            def show(progress: Progress) -> None:
                bar.show(progress.objects)

            report = await work(stacked.store, show)
    finally:
        await stacked.close()
    if as_json:
        output.write_json({"url": url, **report.as_json()})
    else:
        print_report(url, report)
    return 0 if report.ok else 1


def print_report(url: str, report: Report) -> None:
    """The same for people."""
    leavings = [row for row in report.findings if row.severity.is_leaving]
    others = [row for row in report.findings if not row.severity.is_leaving]
    for finding in [*others, *leavings[:LEAVINGS_SHOWN_MAX]]:
        _print_finding(finding)
    if len(leavings) > LEAVINGS_SHOWN_MAX:
        print(f"{len(leavings) - LEAVINGS_SHOWN_MAX} more leavings: --json lists them")
    for deed in report.repaired:
        print(f"repaired  {deed.key}")
        print(f"          {deed.did}")
    counts = report.counts
    print(
        f"{url}: looked at {_counted(counts['partitions'], 'partition')}, "
        f"{_counted(counts['segments'], 'segment')}, "
        f"{_counted(counts['stream_numbers'] + counts['rollups'], 'WAL object')}, "
        f"{output.human_bytes(counts['bytes'])}"
    )
    left_out = counts["findings_left_out"] + counts["wrong_left_out"]
    if left_out:
        print(f"not shown: {_counted(left_out, 'more finding')}")
    if report.leavings:
        can = sum(row.repairable for row in report.leavings)
        print(leavings_line(len(report.leavings), sum(row.bytes for row in report.leavings), can))
    mended = sum(row.repaired for row in report.findings)
    if report.ok:
        print(f"all is well; {_counted(mended, 'thing')} repaired" if mended else "all is well")
        return
    left = len(report.wrong) + counts["wrong_left_out"]
    can = sum(row.repairable for row in report.wrong)
    wrong_now = f"{_counted(left, 'thing')} {'is' if left == 1 else 'are'} wrong"
    print(wrong_now + (f"; --repair takes care of {can}" if can else ""))


def leavings_line(objects: int, size: int, repairable: int) -> str:
    """How much a crash left, and what removes it."""
    does = f"`neve storage verify --repair` removes {repairable}"
    return f"leavings: {_counted(objects, 'object')}, {output.human_bytes(size)}, harmless; {does}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _print_finding(finding: Finding) -> None:
    print(f"{finding.severity.value:<9} {finding.key}")
    print(f"          {finding.what}")
    if finding.repaired:
        print("          repaired")
    elif finding.do:
        print(f"          {finding.do}")


async def skip_offsets(
    url: str,
    settings: Settings,
    *,
    topic: str,
    partition: int,
    first: int,
    end: int,
    reason: str,
    accept_loss: bool,
) -> int:
    """Record a loss, and say what was recorded."""
    stacked = stack(open_store(url, settings.store), settings.store)
    try:
        with output.naming(url):
            done = await skipping.skip(
                stacked.store, topic, partition, first, end, accept_loss=accept_loss, reason=reason
            )
    finally:
        await stacked.close()
    print(_told(done))
    return 0


def _told(done: skipping.Skipped) -> str:
    where = f"offsets {done.first} to {done.end - 1} of {done.topic}-{done.partition}"
    if done.number is None and not done.offsets:
        return f"{where} were given up for lost before: nothing to do"
    return (
        f"{_counted(done.offsets, 'offset')} given up for lost: {where} are passed over by every "
        "reader; the manifest keeps this on record"
    )
