"""`neve maintain …`: merge, expire, verify and index partitions, with Spark or locally."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from neve import runtime
from neve.cli import output
from neve.cli.extras import INSTALL_LAKE
from neve.errors import InvalidError
from neve.settings import Settings

if TYPE_CHECKING:
    from neve.bucket.maintain.jobs import Job, Outcome, Unit
    from neve.store.port import Store

MASTER = "local[*]"
# How many units of work run at once here. Each may hold a segment of --target-bytes.
AT_ONCE_MAX = 2

Url = Annotated[str, Parameter(help="The bucket: s3://, gs://, az://, file:// or a plain path.")]
LayoutFlag = Annotated[
    Literal["neve", "kafscale"], Parameter(help="The system that wrote the files.")
]
DryRun = Annotated[bool, Parameter(negative="", help="Print what would be done without writing.")]

app = App(
    name="maintain", help="Merge, expire, verify and index partitions while brokers are running."
)


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """The flags that select the partitions and where the work runs."""

    topic: Annotated[
        list[str] | None, Parameter(negative="", help="Only this topic. Repeatable.")
    ] = None
    partition: Annotated[
        list[int] | None, Parameter(negative="", help="Only this partition. Repeatable.")
    ] = None
    local: Annotated[bool, Parameter(negative="", help="Run in this process, without Spark.")] = (
        False
    )
    master: Annotated[str, Parameter(help="The Spark master URL.")] = MASTER
    tasks: Annotated[int | None, Parameter(help="Number of Spark tasks. Default: 4 per core.")] = (
        None
    )
    json: Annotated[bool, Parameter(negative="", help="Print JSON.")] = False


EVERYWHERE = Where()


@app.command
def merge(
    url: Url,
    /,
    *,
    target_bytes: Annotated[
        int, Parameter(help="Maximum size of a merged segment. One is held in memory per task.")
    ] = 256 * 1024 * 1024,
    imported: Annotated[
        bool,
        Parameter(negative="", help="Also merge imported segments. Their originals stay."),
    ] = False,
    dry_run: DryRun = False,
    where: Where = EVERYWHERE,
    settings: output.SettingsFlags = output.DEFAULT_FLAGS,
) -> int:
    """Merge small neighbouring segments into large ones."""
    if not 1 <= target_bytes < 2**31:
        raise output.UsageError(f"--target-bytes {target_bytes}: must be from 1 to {2**31 - 1}")
    options = {"target_bytes": target_bytes, "imported": imported}
    return _run("merge", url, where, settings, options, dry_run=dry_run)


@app.command
def expire(
    url: Url,
    /,
    *,
    dry_run: DryRun = False,
    where: Where = EVERYWHERE,
    settings: output.SettingsFlags = output.DEFAULT_FLAGS,
) -> int:
    """Apply the topics' retention.ms and retention.bytes.

    Fails if this machine's clock differs from the store's by more than a minute.
    """
    return _run("expire", url, where, settings, {}, dry_run=dry_run)


@app.command
def verify(
    url: Url,
    /,
    *,
    settle_seconds: Annotated[
        float,
        Parameter(help="Minimum age of an unreferenced object to count as an orphan."),
    ] = 30.0,
    where: Where = EVERYWHERE,
    settings: output.SettingsFlags = output.DEFAULT_FLAGS,
) -> int:
    """Verify every object of the partitions, and find gaps. Exit code 1 if anything is wrong.

    `neve storage verify` finds the same in one process, tests the store's guarantees, and repairs.
    """
    if settle_seconds < 0:
        raise output.UsageError(f"--settle-seconds {settle_seconds}: must be >= 0")
    return _run("verify", url, where, settings, {"settle_seconds": settle_seconds})


@app.command(name="build-index")
def build_index(
    url: Url,
    /,
    *,
    layout: LayoutFlag = "neve",
    dry_run: DryRun = False,
    where: Where = EVERYWHERE,
    settings: output.SettingsFlags = output.DEFAULT_FLAGS,
) -> int:
    """Rebuild missing or damaged indexes; in a KafScale bucket also `.kfst` files."""
    return _run("build-index", url, where, settings, {}, dry_run=dry_run, layout=layout)


def _run(
    kind: Any,
    url: str,
    where: Where,
    flags: output.SettingsFlags,
    options: dict[str, Any],
    *,
    dry_run: bool = False,
    layout: Literal["neve", "kafscale"] = "neve",
) -> int:
    from neve.bucket.maintain.jobs import Job, settings_given

    if where.tasks is not None and where.tasks < 1:
        raise output.UsageError(f"--tasks {where.tasks}: must be >= 1")
    settings = flags.load()
    given = settings_given(settings)
    job = Job(kind, url, layout, dry_run, given, tuple(options.items()))
    return runtime.run(_maintain(job, where, settings))


async def _maintain(job: Job, where: Where, settings: Settings) -> int:
    from neve.bucket.maintain.jobs import plan_units
    from neve.log.wal.stores import connect_bucket

    stacked = connect_bucket(job.url, settings)
    try:
        with output.naming(job.url):
            units = await plan_units(stacked.store, job, where.topic, where.partition)
        outcomes = await _done(stacked.store, job, units, where)
        whole = where.topic is None and where.partition is None
        rest = await _rest(stacked.store, job, None if whole else units)
    finally:
        await stacked.close()
    outcomes.sort(key=lambda row: (row.topic, row.partition))
    ok = all(row.ok for row in outcomes) and (rest is None or rest["ok"])
    if where.json:
        rows = [{"topic": o.topic, "partition": o.partition, **_document(o)} for o in outcomes]
        more = {} if rest is None else {"rest": rest}
        output.write_json({"url": job.url, "job": job.kind, "ok": ok, "partitions": rows, **more})
    else:
        print_outcomes(job, outcomes, rest)
    return 0 if ok else 1


def _document(outcome: Outcome) -> dict[str, Any]:
    return {"error": outcome.error} if outcome.error else {**outcome.result}


async def _done(store: Store, job: Job, units: Sequence[Unit], where: Where) -> list[Outcome]:
    with output.progress("partitions" if where.local else "tasks", hidden=where.json) as bar:
        if where.local:
            from neve.bucket.maintain.jobs import do_here

            ended: list[Outcome] = []

            def report(outcome: Outcome) -> None:
                ended.append(outcome)
                bar.show(len(ended), len(units))

            at_once = min(AT_ONCE_MAX, os.cpu_count() or 1)
            return await do_here(store, job, units, at_once=at_once, on_outcome=report)
        return await _done_on_spark(job, units, where, bar)


async def _done_on_spark(
    job: Job, units: Sequence[Unit], where: Where, bar: output.Bar
) -> list[Outcome]:
    if job.url.startswith("memory:"):
        raise InvalidError("a memory:// bucket exists in this process only: use --local")
    try:
        from neve.lake import session
        from neve.lake.spark.jobs import run_maintenance

        spark = await runtime.offload(session, "neve maintain", master=where.master)
    except ImportError as error:
        raise InvalidError(
            f"Spark is not installed ({error}): {INSTALL_LAKE}, or use --local"
        ) from error
    try:
        return await run_maintenance(spark, job, units, tasks=where.tasks, on_progress=bar.show)
    finally:
        await runtime.offload(spark.stop)


async def _rest(store: Store, job: Job, units: Sequence[Unit] | None) -> dict[str, Any] | None:
    """Verify what belongs to no single partition, once, in this process."""
    if job.kind != "verify" or job.layout != "neve":
        return None
    from neve.bucket.maintain.checks import verify_rest
    from neve.bucket.verify import Options

    options = Options(url=job.url, **dict(job.options))
    only = None if units is None else {(unit.topic, unit.partition) for unit in units}
    return (await verify_rest(store, options, only=only)).as_json()


def print_outcomes(job: Job, outcomes: Sequence[Outcome], rest: dict[str, Any] | None) -> None:
    """Print a line for each changed partition, and a total."""
    for outcome in outcomes:
        for line in _lines(job, outcome):
            print(f"{outcome.topic}-{outcome.partition}: {line}")
    for finding in (rest or {}).get("findings", ()):
        if not _is_garbage(finding):
            print(f"{finding['severity']:<9} {finding['key']}: {finding['what']}")
    failed = sum(not row.ok for row in outcomes)
    would = " (dry run: nothing was written)" if job.dry_run else ""
    if job.kind == "verify":
        _print_garbage([*(row.result for row in outcomes), *([rest] if rest else [])])
    print(f"{job.url}: {job.kind} of {len(outcomes)} partitions, {failed} failed{would}")


def _print_garbage(reports: Sequence[dict[str, Any]]) -> None:
    from neve.cli.verify import garbage_line

    found = [row for report in reports for row in report.get("findings", ()) if _is_garbage(row)]
    if found:
        can = sum(row["repairable"] for row in found)
        line = garbage_line(len(found), sum(row["bytes"] for row in found), can)
        print(f"{line}; --json lists them")


def _is_garbage(finding: dict[str, Any]) -> bool:
    return "bytes" in finding


def _lines(job: Job, outcome: Outcome) -> list[str]:
    if outcome.error:
        return [outcome.error]
    result = outcome.result
    lines = [f"damaged, skipped: {text}" for text in result.get("damaged", ())]
    lines += [f"failed: {text}" for text in result.get("failed", ())]
    if job.kind == "merge" and result["into"]:
        size = output.human_bytes(result["bytes"])
        lines.append(f"{result['merged']} segments merged into {result['into']}, {size}")
    if job.kind == "expire" and result["segments"]:
        size = output.human_bytes(result["bytes"])
        lines.append(f"starts at {result['start']}: {result['segments']} segments, {size}")
    built = [key for name in ("built", "indexes", "times") for key in result.get(name, ())]
    lines += [f"built for {key}" if "built" in result else f"wrote {key}" for key in built]
    lines += [
        f"{row['severity']} {row['key']}: {row['what']}"
        for row in result.get("findings", ())
        if not _is_garbage(row)
    ]
    return lines
