"""`neve lake …`: topics into Iceberg tables, and how far they have come."""

from __future__ import annotations

import logging
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from neve.cli import output
from neve.cli.spark import quiet_spark

if TYPE_CHECKING:
    from neve.lake.pipeline.config import PipelineConfig
    from neve.lake.pipeline.replay import ReplayReport
    from neve.lake.pipeline.runner import TopicReport
    from neve.lake.pipeline.status import TopicStatus

File = Annotated[Path, Parameter(name=["--file", "-f"], help="The pipeline, a YAML file.")]
JsonFlag = Annotated[bool, Parameter(negative="", help="Print JSON.")]

REASONS_SHOWN = 5
_UNKNOWN = "unknown"

app = App(name="lake", help="Fill Iceberg tables from topics, on Spark, without asking a broker.")


@app.command
def run(
    *,
    file: File,
    once: Annotated[
        bool, Parameter(negative="", help="Bring the tables to where topics end now, and stop.")
    ] = False,
    interval: Annotated[
        str | None, Parameter(help="How often to commit, such as 10s; otherwise the file's.")
    ] = None,
    master: Annotated[str, Parameter(help="Where Spark runs.")] = "local[*]",
    json: JsonFlag = False,
) -> int:
    """Fill the tables of a pipeline, until stopped.

    With --once, exit code 1 where something failed, or offsets were found to be lost.
    """
    from neve.lake.pipeline.runner import Pipeline
    from neve.lake.session import PIPELINE_SETTINGS

    config = _config(file, interval)
    logging.getLogger("neve.lake").addHandler(_Complaints())
    with (
        quiet_spark("neve-lake", master, PIPELINE_SETTINGS) as spark,
        Pipeline(spark, config, folder=file.parent) as pipeline,
        output.progress("records", hidden=json) as bar,
    ):
        shown = _Shown(bar, as_json=json)
        if once:
            succeeded = pipeline.run_once(shown.step)
        else:
            pipeline.run(_Stopped(), shown.step)
            succeeded = True
        shown.end(pipeline.reports)
    return 0 if succeeded else 1


@app.command
def status(*, file: File, json: JsonFlag = False) -> int:
    """Show for each topic how far its table has come, and what is in it."""
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
    topic: Annotated[str | None, Parameter(help="Only this topic's letters.")] = None,
    dry_run: Annotated[
        bool, Parameter(negative="", help="Say what would be done, and do nothing.")
    ] = False,
    json: JsonFlag = False,
) -> int:
    """Put dead letters that can be read by now into their tables.

    Mend the values' schema in the pipeline's file, or the values in the table of dead letters,
    before. What still cannot be read stays a dead letter. Needs neither Spark nor a broker, and may
    run beside the pipeline.
    """
    from neve.lake.pipeline.replay import replay as replay_letters

    logging.getLogger("neve.lake").addHandler(_Complaints())
    reports = replay_letters(_config(file, None), topic=topic, dry_run=dry_run, folder=file.parent)
    if json:
        output.write_json([_replay_row(each) for each in reports])
        return 0
    done = "could be replayed" if dry_run else "replayed"
    for each in reports:
        print(f"{each.table}: {each.replayed} {done}, {each.left} still cannot be read")
        for reason, count in each.reasons.most_common(REASONS_SHOWN):
            print(f"  {count}: {reason}")
        if each.twice:
            print(
                f"  {each.twice} stand there more than once: leave one of each, and run this again"
            )
    return 0


@app.command
def relocate(*, file: File) -> int:
    """Give the tables of a moved or copied folder the paths of where they are now.

    Iceberg's tables name their files by absolute paths, so a catalog in a folder is refused
    anywhere but where it was made. Run this once at the new place, while no pipeline uses it. The
    original of a copy is not touched.
    """
    from neve.lake.pipeline.runner import relocate_tables

    moved = relocate_tables(_config(file, None))
    for name in moved:
        print(f"{name}: its paths are those of this place now")
    if not moved:
        print("nothing to do: the catalog is where it was made, or has no tables")
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
    """Sums over the partitions; JSON has each of them."""
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
    from neve.lake.pipeline.quantities import seconds_of

    config = load_config(file)
    if interval is None:
        return config
    seconds_of(interval, "--interval")
    return msgspec.structs.replace(config, interval=interval)


class _Complaints(logging.Handler):
    """What goes wrong while a pipeline runs, as commands tell it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        output.complain(record.getMessage())


class _Stopped:
    """Whether somebody asked to stop: the portion at hand is finished first."""

    def __init__(self) -> None:
        self._asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, *_: object) -> None:
        self._asked = True

    def __call__(self) -> bool:
        return self._asked


class _Shown:
    """Tells how topics come forward: a bar, a line for each commit, or one JSON at the end."""

    def __init__(self, bar: output.Bar, *, as_json: bool) -> None:
        self._bar = bar
        self._as_json = as_json
        self._told: dict[str, int] = {}
        self._counts: dict[str, tuple[int, int]] = {}

    def step(self, report: TopicReport) -> None:
        if self._as_json:
            return
        self._counts[report.topic] = (report.rows + report.bad, report.left)
        done = sum(count for count, _ in self._counts.values())
        self._bar.show(done, done + sum(left for _, left in self._counts.values()))
        if report.commits > self._told.get(report.topic, 0):
            self._told[report.topic] = report.commits
            print(f"{report.table}: {report.rows} rows, {report.bad} dead letters", flush=True)

    def end(self, reports: list[TopicReport]) -> None:
        if self._as_json:
            output.write_json(
                [
                    {
                        "topic": each.topic,
                        "table": each.table,
                        "rows": each.rows,
                        "bad": each.bad,
                        "lost": each.lost,
                        "commits": each.commits,
                        "failures": each.failures,
                    }
                    for each in reports
                ]
            )
