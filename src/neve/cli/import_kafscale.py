"""`neve import kafscale URL`: import the topics of a KafScale bucket in place."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from neve import runtime
from neve.cli import output
from neve.settings import Settings

if TYPE_CHECKING:
    from neve.bucket.maintain.import_kafscale import ImportedTopic, ImportOptions, ImportResult
    from neve.bucket.maintain.jobs import Outcome
    from neve.store.port import Store

app = App(name="import", help="Import topics of other systems in place.")


@app.command
def kafscale(
    url: Annotated[str, Parameter(help="The KafScale bucket. It becomes a Neve bucket too.")],
    /,
    *,
    namespace: Annotated[str | None, Parameter(help="Only this namespace.")] = None,
    topic: Annotated[
        list[str] | None, Parameter(negative="", help="Only this topic. Repeatable.")
    ] = None,
    trust: Annotated[
        bool,
        Parameter(negative="", help="Check only headers and footers of segments."),
    ] = False,
    skip_damaged: Annotated[
        bool,
        Parameter(negative="", help="Omit damaged segments. Readers skip their offsets."),
    ] = False,
    take_ownership: Annotated[
        bool,
        Parameter(negative="", help="Allow Neve to merge and delete the objects."),
    ] = False,
    dry_run: Annotated[
        bool, Parameter(negative="", help="Print what would be done without writing.")
    ] = False,
    json: Annotated[bool, Parameter(negative="", help="Print JSON.")] = False,
    settings: output.SettingsFlags = output.DEFAULT_FLAGS,
) -> int:
    """Import a KafScale bucket: list its segments in Neve manifests, without copying them.

    An interrupted import can be repeated. KafScale must no longer write to the topics.
    """
    from neve.bucket.maintain.import_kafscale import ImportOptions

    options = ImportOptions(
        namespace=namespace, topics=topic, trust=trust, skip_damaged=skip_damaged, dry_run=dry_run
    )
    return runtime.run(
        _import(url, settings.load(), options, take_ownership=take_ownership, as_json=json)
    )


async def _import(
    url: str, settings: Settings, options: ImportOptions, *, take_ownership: bool, as_json: bool
) -> int:
    from neve.bucket.maintain.import_kafscale import import_kafscale
    from neve.log.wal.stores import connect_bucket

    stacked = connect_bucket(url, settings)
    taken: list[Outcome] = []
    try:
        with output.naming(url), output.progress("bytes", hidden=as_json) as bar:
            read = 0

            def show(more: int) -> None:
                nonlocal read
                read += more
                bar.show(read)

            result = await import_kafscale(stacked.store, options, settings=settings, progress=show)
        if take_ownership:
            taken = await _take(stacked.store, url, settings, result, dry_run=options.dry_run)
    finally:
        await stacked.close()
    ok = result.ok and all(row.ok for row in taken)
    if as_json:
        about = {"url": url, "ok": ok, "dry_run": options.dry_run}
        output.write_json({**about, **_as_json(result, taken)})
    else:
        _print(url, result, taken, options, take_ownership=take_ownership)
    return 0 if ok else 1


async def _take(
    store: Store, url: str, settings: Settings, result: ImportResult, *, dry_run: bool
) -> list[Outcome]:
    from neve.bucket.maintain.jobs import Job, do_here, plan_units, settings_given

    topics = [row.topic for row in result.topics if row.outcome in {"imported", "there"}]
    if not topics:
        return []
    job = Job("take-ownership", url, dry_run=dry_run, settings=settings_given(settings))
    return await do_here(store, job, await plan_units(store, job, topics))


def _as_json(result: ImportResult, taken: list[Outcome]) -> dict[str, Any]:
    document: dict[str, Any] = dataclasses.asdict(result)
    if taken:
        document["taken"] = [dataclasses.asdict(row) for row in taken]
    return document


def _print(
    url: str,
    result: ImportResult,
    taken: list[Outcome],
    options: ImportOptions,
    *,
    take_ownership: bool,
) -> None:
    for row in result.topics:
        print(f"{row.topic}: {_outcome(row)}")
        if take_ownership and row.outcome == "planned":  # its manifests do not exist yet
            print(f"  {_taken(row.segments, dry_run=True)}")
        for note in row.notes:
            print(f"  {note}")
    for key in result.half_pairs:
        print(f"ignored, a segment or index without the other: {key}")
    for outcome in taken:
        outcome_text = outcome.error or _taken(outcome.result["taken"], dry_run=options.dry_run)
        print(f"{outcome.topic}-{outcome.partition}: {outcome_text}")
    counted = "planned" if options.dry_run else "imported"
    done = sum(row.outcome == counted for row in result.topics)
    refused = sum(row.outcome == "refused" for row in result.topics)
    verb = "would be imported" if options.dry_run else "imported"
    print(f"{url}: {done} topics {verb}, {refused} refused")


def _taken(segments: int, *, dry_run: bool) -> str:
    if dry_run:
        return f"{segments} segments would be owned by Neve"
    return f"{segments} segments are now owned by Neve"


def _outcome(row: ImportedTopic) -> str:
    if row.outcome == "refused":
        return f"refused: {row.reason}"
    if row.outcome == "there":
        return "already imported"
    verb = "imported" if row.outcome == "imported" else "would be imported"
    size = output.human_bytes(row.bytes)
    lost = f", {row.skipped_offsets} offsets missing" if row.skipped_offsets else ""
    return f"{verb}: {row.partitions} partitions, {row.segments} segments, {size}{lost}"
