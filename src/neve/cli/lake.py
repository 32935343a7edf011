"""`neve lake …`: pipelines from topics to Iceberg tables."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from neve.cli import output
from neve.cli.sql_session import pairs

if TYPE_CHECKING:
    from neve.lake.pipeline.config import PipelineConfig
    from neve.lake.pipeline.replay import ReplayReport
    from neve.lake.pipeline.status import TopicStatus

File = Annotated[Path, Parameter(name=["--file", "-f"], help="The pipeline, a YAML file.")]
JsonFlag = Annotated[bool, Parameter(negative="", help="Print JSON.")]

REASONS_SHOWN = 5
_UNKNOWN = "unknown"

app = App(name="lake", help="Write topics to Iceberg tables with Spark, without a broker.")


@app.command
def run(
    *,
    file: File,
    once: Annotated[
        bool, Parameter(negative="", help="Stop at the current ends of the topics.")
    ] = False,
    interval: Annotated[
        str | None, Parameter(help="Commit interval, such as 10s. Default: the file's.")
    ] = None,
    master: Annotated[str, Parameter(help="Where Spark runs.")] = "local[*]",
    conf: Annotated[
        list[str] | None,
        Parameter(negative="", help="A setting of Spark as name=value. May be repeated."),
    ] = None,
    http: Annotated[
        str,
        Parameter(help="HOST:PORT for /healthz, /readyz and /metrics; port 0 selects a free port. "
                       "Default: none."),
    ] = "",
    max_dead_letters: Annotated[
        str | None,
        Parameter(help="Fail if a topic has more dead letters: a number, or a share of its values "
                       "such as 5%. Without --once, stop. Default: 90% with --once."),
    ] = None,
    json: JsonFlag = False,
) -> int:  # fmt: skip
    """Run a pipeline until it is stopped.

    With --once, the exit code is 1 if a step failed, offsets were lost, or nearly all values became
    dead letters.
    """
    from neve.cli.lake_run import RunOptions, run_pipeline

    options = RunOptions(once, master, pairs("--conf", conf or []), http, json, max_dead_letters)
    return run_pipeline(_config(file, interval), file.parent, options)


@app.command
def status(*, file: File, json: JsonFlag = False) -> int:
    """Show the progress and the content of each topic's table."""
    from neve.lake.pipeline.status import pipeline_status

    topics = pipeline_status(_config(file, None))
    if json:
        output.write_json([_status_row(each) for each in topics])
    else:
        _print_status(topics)
    return 1 if any(each.error for each in topics) else 0


@app.command
def replay(
    *,
    file: File,
    topic: Annotated[str | None, Parameter(help="Only dead letters of this topic.")] = None,
    dry_run: Annotated[
        bool, Parameter(negative="", help="Say what would be done, and do nothing.")
    ] = False,
    json: JsonFlag = False,
) -> int:
    """Decode dead letters again and write them to their tables.

    First correct the schema in the pipeline's file, or the values in the table of dead letters.
    Values that still cannot be decoded stay dead letters. Needs neither Spark nor a broker. The
    pipeline may be running.
    """
    from neve.lake.pipeline.replay import replay as replay_letters

    config = _config(file, None)
    with _complaints_written():
        reports = replay_letters(config, topic=topic, dry_run=dry_run, folder=file.parent)
    if json:
        output.write_json([_replay_row(each) for each in reports])
        return 0
    done = "could be replayed" if dry_run else "replayed"
    for each in reports:
        print(f"{each.table}: {each.replayed} {done}, {each.left} still cannot be decoded")
        for reason, count in each.reasons.most_common(REASONS_SHOWN):
            print(f"  {count}: {reason}")
        if each.twice:
            print(f"  {each.twice} occur more than once: delete the copies and run this again")
    return 0


@app.command
def rebuild(
    *,
    file: File,
    topic: Annotated[str | None, Parameter(help="Only this topic's table.")] = None,
    dry_run: Annotated[
        bool, Parameter(negative="", help="Say what would be done, and do nothing.")
    ] = False,
    json: JsonFlag = False,
) -> int:
    """Widen columns of integers or decimals to the types in the pipeline's file.

    Rewrites all rows of such a table in one commit. Stop its pipeline first. Run `neve lake replay`
    afterwards: values that did not fit the old type are dead letters. Needs no Spark.
    """
    from neve.lake.pipeline.rebuild import rebuild_tables

    reports = rebuild_tables(_config(file, None), topic=topic, dry_run=dry_run, folder=file.parent)
    if json:
        output.write_json(reports)
        return 0
    for each in reports:
        types = ", ".join(f"{column} is {kind}" for column, kind in each.types.items())
        done = "would be rebuilt" if dry_run else f"{each.rows} rows rewritten"
        print(f"{each.table}: {f'{types}: {done}' if types else 'nothing to do'}")
    return 0


@app.command
def relocate(
    *,
    file: Annotated[
        Path | None, Parameter(name=["--file", "-f"], help="The pipeline, a YAML file.")
    ] = None,
    store: Annotated[
        str | None, Parameter(help="Alternatively, the folder that contains bucket and catalog.")
    ] = None,
) -> int:
    """Update the paths in the tables of a folder that was moved or copied.

    Iceberg tables refer to their files by absolute path, so Neve rejects a catalog in a folder that
    was moved. Run this once in the new place, while no pipeline uses it. The original of a copy is
    not changed.
    """
    from neve.lake.tables.relocation import relocate_tables

    if (file is None) == (store is None):
        raise output.UsageError("give either the pipeline's file (-f) or the folder (--store)")
    if file is not None:
        config = _config(file, None)
        moved = relocate_tables(config.catalog, config.store)
    else:
        moved = relocate_tables({}, str(store))
    for name in moved:
        print(f"{name}: paths updated")
    if not moved:
        print("nothing to do: the catalog was not moved, or has no tables")
    return 0


def _replay_row(each: ReplayReport) -> dict[str, Any]:
    return {
        "topic": each.topic,
        "table": each.table,
        "replayed": each.replayed,
        "left": each.left,
        "twice": each.twice,
        "reasons": dict(each.reasons.most_common(REASONS_SHOWN)),
    }


def _print_status(topics: Sequence[TopicStatus]) -> None:
    titles = (
        "topic", "table", "last commit", "committed / end", "lag", "lag seconds", "rows", "files",
        "dead letters", "error",
    )  # fmt: skip
    output.print_table(
        titles,
        [
            (
                each.topic,
                each.table,
                _last_commit(each),
                _offsets(each),
                _known(each.lag_records),
                _known(None if each.lag_seconds is None else f"{each.lag_seconds:.1f}"),
                _known(each.rows),
                _known(each.files),
                _known(each.dead_letters),
                _error(each),
            )
            for each in topics
        ],
    )


def _status_row(each: TopicStatus) -> dict[str, Any]:
    return {
        "topic": each.topic,
        "table": each.table,
        "last_commit_ms": each.last_commit_ms,
        "last_commit_before_ms": each.last_commit_before_ms,
        "lag_records": each.lag_records,
        "lag_seconds": each.lag_seconds,
        "rows": each.rows,
        "files": each.files,
        "dead_letters": each.dead_letters,
        "partitions": [
            {"partition": part.partition, "committed": part.committed, "end": part.end}
            for part in each.partitions or ()
        ],
        "error": each.error,
        "error_ms": each.error_ms,
        "loss": each.loss,
        "loss_ms": each.loss_ms,
    }


def _last_commit(each: TopicStatus) -> str:
    if each.last_commit_ms is not None:
        return _time(each.last_commit_ms)
    if each.rows is None:
        return _UNKNOWN
    before_ms = each.last_commit_before_ms
    return "never" if before_ms is None else f"before {_time(before_ms)}"


def _offsets(each: TopicStatus) -> str:
    """Return sums over the partitions. The JSON output has each partition."""
    if each.partitions is None:
        return _UNKNOWN
    return f"{'-' if each.committed is None else each.committed} / {_known(each.end)}"


def _known(value: int | str | None) -> int | str:
    return _UNKNOWN if value is None else value


def _error(each: TopicStatus) -> str:
    return f"{each.error} (since {_time(each.error_ms)})" if each.error_ms else each.error


def _time(at_ms: int) -> str:
    from neve.lake.pipeline.status import time_text

    return time_text(at_ms)


def _config(file: Path, interval: str | None) -> PipelineConfig:
    import msgspec

    from neve.lake.pipeline.config import load_config
    from neve.lake.pipeline.units import seconds_of

    config = load_config(file)
    if interval is None:
        return config
    seconds_of(interval, "--interval")
    return msgspec.structs.replace(config, interval=interval)


@contextlib.contextmanager
def _complaints_written() -> Iterator[None]:
    logger, handler = logging.getLogger("neve.lake"), _Complaints()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Complaints(logging.Handler):
    """Print a pipeline's warnings as the command's error lines."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        output.complain(record.getMessage())
