"""`neve lake …`: topics into Iceberg tables, and how far they have come."""

from __future__ import annotations

import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from neve.cli import output

if TYPE_CHECKING:
    from neve.lake.pipeline.config import PipelineConfig
    from neve.lake.pipeline.runner import TopicReport

File = Annotated[Path, Parameter(name=["--file", "-f"], help="The pipeline, a YAML file.")]
JsonFlag = Annotated[bool, Parameter(negative="", help="Print JSON.")]

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
    """Fill the tables of a pipeline, until stopped. Exit code 1 where something failed."""
    from neve.lake import session
    from neve.lake.pipeline.runner import Pipeline

    config = _config(file, interval)
    logging.getLogger("neve.lake").addHandler(_Complaints())
    spark = session("neve-lake", master=master)
    try:
        with Pipeline(spark, config, folder=file.parent) as pipeline:
            shown = _Shown(as_json=json)
            if once:
                succeeded = pipeline.run_once(shown.step)
                shown.end(pipeline.reports)
                return 0 if succeeded else 1
            pipeline.run(_Stopped(), shown.step)
            shown.end(pipeline.reports)
            return 0
    finally:
        spark.stop()


@app.command
def status(*, file: File, json: JsonFlag = False) -> int:
    """Show for each topic how far its table has come, and what is in it."""
    from neve.lake.pipeline.status import pipeline_status

    rows = [_status_row(each) for each in pipeline_status(_config(file, None))]
    if json:
        output.write_json(rows)
    else:
        titles = ("topic", "table", "lag", "lag seconds", "rows", "files", "dead letters", "error")
        output.print_table(
            titles,
            [
                (
                    row["topic"],
                    row["table"],
                    str(row["lag_records"]),
                    f"{row['lag_seconds']:.1f}",
                    str(row["rows"]),
                    str(row["files"]),
                    str(row["dead_letters"]),
                    row["error"],
                )
                for row in rows
            ],
        )
    return 1 if any(row["error"] for row in rows) else 0


def _status_row(each: Any) -> dict[str, Any]:
    return {
        "topic": each.topic,
        "table": each.table,
        "last_commit_ms": each.last_commit_ms,
        "lag_records": each.lag_records,
        "lag_seconds": each.lag_seconds,
        "rows": each.rows,
        "files": each.files,
        "dead_letters": each.dead_letters,
        "partitions": [
            {"partition": part.partition, "committed": part.committed, "end": part.end}
            for part in each.partitions
        ],
        "error": each.error,
    }


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
    """Tells how topics come forward: a line for each commit, or one JSON at the end."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._told: dict[str, int] = {}

    def step(self, report: TopicReport) -> None:
        if self._as_json:
            return
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
