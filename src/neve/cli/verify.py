"""`neve storage verify` and `neve storage skip`: verify and repair a bucket, skip lost offsets."""

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
from neve.log.wal.stores import connect_bucket
from neve.settings import Settings
from neve.store.port import Store
from neve.store.url import Stack, connect, open_store, stack

# How many lines of garbage are shown: a crash during a roll-up leaves about a hundred objects.
GARBAGE_SHOWN_MAX = 20

Url = Annotated[str, Parameter(help="The bucket: s3://, gs://, az://, file:// or a plain path.")]


def verify(
    url: Url,
    /,
    *,
    repair: Annotated[
        bool, Parameter(negative="", help="Repair what can be repaired without loss of data.")
    ] = False,
    json: Annotated[bool, Parameter(negative="", help="Print JSON.")] = False,
    layout: Annotated[
        Literal["neve", "kafscale"],
        Parameter(help="The system that wrote the files. KafScale's are only read."),
    ] = "neve",
    probe: Annotated[
        bool,
        Parameter(help="Test the store's guarantees: writes and deletes a few small objects."),
    ] = True,
    settle_seconds: Annotated[
        float,
        Parameter(help="Minimum age of an unreferenced object to count as an orphan."),
    ] = SETTLE_SECONDS,
    settings: output.SettingsFlags = output.DEFAULT_FLAGS,
) -> int:
    """Verify all checksums, find gaps and orphans, and test the store's guarantees.

    Brokers may be running. What a crash left behind is listed as garbage and is harmless. The exit
    code is 1 if anything is damaged, missing or lost, or the store breaks a guarantee.
    """
    if settle_seconds < 0 or not math.isfinite(settle_seconds):
        raise output.UsageError(f"--settle-seconds {settle_seconds}: must be >= 0")
    if layout == "kafscale" and repair:
        raise output.UsageError(
            "--repair is only for Neve's files; use `neve maintain build-index --layout kafscale` "
            "to write KafScale's indexes"
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
        int, Parameter(name="--to", help="The end of the range, which is excluded.")
    ],
    accept_loss: Annotated[
        bool, Parameter(negative="", help="Confirm that readers lose these offsets permanently.")
    ] = False,
    reason: Annotated[str, Parameter(help="Reason, kept on record.")] = skipping.REASON_DEFAULT,
    settings: output.SettingsFlags = output.DEFAULT_FLAGS,
) -> int:
    """Give up damaged offsets, so that readers skip them.

    The manifest records the range, readers count it, and verify shows it. Nothing is deleted.
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
    """Print the findings and repairs. Returns the exit code: 0 if nothing is wrong."""
    raw = open_store(url, settings.store)
    work = verify_and_repair if repair else verifying.verify

    async def report(store: Store, progress: Callable[[Progress], None]) -> Report:
        return await work(store, options, temporary=raw, progress=progress)

    stacked = connect_bucket(url, settings, main=stack(raw, settings.store))
    return await _reported(url, stacked, report, as_json=as_json)


async def verify_foreign(url: str, settings: Settings, options: Options, *, as_json: bool) -> int:
    """Verify a KafScale bucket, which is only read."""

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
    """Print the report as text."""
    garbage = [row for row in report.findings if row.severity.is_garbage]
    others = [row for row in report.findings if not row.severity.is_garbage]
    for finding in [*others, *garbage[:GARBAGE_SHOWN_MAX]]:
        _print_finding(finding)
    if len(garbage) > GARBAGE_SHOWN_MAX:
        print(f"{len(garbage) - GARBAGE_SHOWN_MAX} more garbage: --json lists them")
    for deed in report.repaired:
        print(f"repaired  {deed.key}")
        print(f"          {deed.did}")
    counts = report.counts
    print(
        f"{url}: verified {_counted(counts['partitions'], 'partition')}, "
        f"{_counted(counts['segments'], 'segment')}, "
        f"{_counted(counts['stream_numbers'] + counts['rollups'], 'WAL object')}, "
        f"{output.human_bytes(counts['bytes'])}"
    )
    left_out = counts["findings_left_out"] + counts["wrong_left_out"]
    if left_out:
        print(f"not shown: {_counted(left_out, 'more finding')}")
    if report.garbage:
        can = sum(row.repairable for row in report.garbage)
        print(garbage_line(len(report.garbage), sum(row.bytes for row in report.garbage), can))
    mended = sum(row.repaired for row in report.findings)
    if report.ok:
        print(f"no problems; {mended} repaired" if mended else "no problems")
        return
    left = len(report.wrong) + counts["wrong_left_out"]
    can = sum(row.repairable for row in report.wrong)
    print(_counted(left, "problem") + (f"; --repair can fix {can}" if can else ""))


def garbage_line(objects: int, size: int, repairable: int) -> str:
    """Return the line about garbage: its amount, and what removes it."""
    does = f"`neve storage verify --repair` removes {repairable}"
    return f"garbage: {_counted(objects, 'object')}, {output.human_bytes(size)}, harmless; {does}"


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
    """Record lost offsets and print what was recorded."""
    stacked = connect_bucket(url, settings)
    try:
        with output.naming(url):
            done = await skipping.skip(
                stacked.store, topic, partition, first, end, accept_loss=accept_loss, reason=reason
            )
    finally:
        await stacked.close()
    print(_skipped_line(done))
    return 0


def _skipped_line(done: skipping.Skipped) -> str:
    where = f"offsets {done.first} to {done.end - 1} of {done.topic}-{done.partition}"
    if done.number is None and not done.offsets:
        return f"{where} are already skipped: nothing to do"
    return (
        f"{_counted(done.offsets, 'offset')} given up: every reader skips {where}; the manifest "
        "keeps this on record"
    )
