"""Implementation of `neve lake run`: a pipeline as a process with an HTTP port and an exit code.

Progress goes to standard output, failures to standard error. Each line begins with its time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from neve import __version__, runtime
from neve.cli import output
from neve.cli.spark import quiet_spark

if TYPE_CHECKING:
    from neve.lake.pipeline.config import PipelineConfig
    from neve.lake.pipeline.dead_letter_limit import DeadLetterLimit
    from neve.lake.pipeline.http_pages import PipelinePages
    from neve.lake.pipeline.runner import Pipeline, TopicReport
    from neve.settings import HttpSettings, LogSettings

TABLES_NAMED_MAX = 10
NEARLY_ALL = "90%"
"""A larger share of dead letters means that the pipeline does not work."""
VALUES_LEAST = 100
"""The minimum number of values for which a running pipeline's share of dead letters counts."""


@dataclass(frozen=True)
class RunOptions:
    """The options of a run."""

    once: bool
    master: str
    conf: Mapping[str, str]
    http: str
    as_json: bool
    max_dead_letters: str | None
    """The given limit. None: `NEARLY_ALL`, which fails a --once run and is logged otherwise."""


def run_pipeline(config: PipelineConfig, folder: Path, options: RunOptions) -> int:
    """Run the pipeline until its end or until it is stopped. Returns the exit code."""
    from neve.bucket.async_bucket import settings_of
    from neve.lake.pipeline.dead_letter_limit import DeadLetterLimit
    from neve.lake.pipeline.http_pages import PipelinePages
    from neve.lake.pipeline.runner import Pipeline, store_ref
    from neve.lake.spark.session import PIPELINE_SETTINGS

    limit = DeadLetterLimit.parse(options.max_dead_letters or NEARLY_ALL)
    settings = settings_of(dict(store_ref(config).settings))
    pages = PipelinePages()
    with (
        _errors_written(settings.logs),
        _http(dataclasses.replace(settings.http, listen=options.http), pages) as address,
        quiet_spark("neve-lake", options.master, {**PIPELINE_SETTINGS, **options.conf}) as spark,
        Pipeline(spark, config, folder=folder) as pipeline,
        output.progress("records", hidden=options.as_json) as bar,
    ):
        pages.reports = pipeline.reports
        progress = _ProgressOutput(bar, as_json=options.as_json)
        progress.begin(config, options, address)
        letters = _DeadLetters(limit, stops=options.max_dead_letters is not None)
        succeeded = _run(pipeline, options, progress, letters)
        progress.end(pipeline.reports)
    return 0 if succeeded else 1


def _run(
    pipeline: Pipeline, options: RunOptions, progress: _ProgressOutput, letters: _DeadLetters
) -> bool:
    """Return whether the exit code is 0: nothing failed."""
    if options.once:
        done = pipeline.run_once(progress.step)
        return letters.judge(pipeline.reports) and done
    stopped = _Stopped()

    def step(report: TopicReport) -> None:
        progress.step(report)
        letters.look(report)

    pipeline.run(lambda: stopped() or letters.ended, step)
    return not letters.ended


@contextlib.contextmanager
def _errors_written(settings: LogSettings) -> Iterator[None]:
    """Send the pipeline's warnings to standard error, with the time."""
    from neve.serving import logs

    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logs.formatter(settings))
    logger = logging.getLogger("neve")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextlib.contextmanager
def _http(settings: HttpSettings, pages: PipelinePages) -> Iterator[str]:
    """Serve HTTP in a thread, because the main thread waits for Spark. Yields the address."""
    from neve.serving.http import HttpServer

    if not settings.listen.strip():
        yield "off"
        return
    with runtime.BlockingRunner("neve-http") as runner:
        server = runner.run(HttpServer.start(settings, pages.by_path()))
        try:
            yield str(server.address)
        finally:
            runner.run(server.close())


class _DeadLetters:
    """Checks for too many dead letters; each topic is reported once.

    `ended` is set if that stops a running pipeline.
    """

    def __init__(self, limit: DeadLetterLimit, *, stops: bool) -> None:
        self._limit = limit
        self._stops = stops
        self._reported: set[str] = set()
        self.ended = False

    def judge(self, reports: Sequence[TopicReport]) -> bool:
        """Check all topics at the end of a run, for any number of values. Returns success."""
        exceeding = [each.table for each in reports if self._exceeds(each, values_least=1)]
        return not exceeding

    def look(self, report: TopicReport) -> None:
        """Check a topic after a step of a running pipeline."""
        if self._exceeds(report, values_least=VALUES_LEAST) and self._stops:
            self.ended = True

    def _exceeds(self, report: TopicReport, *, values_least: int) -> bool:
        from neve.lake.pipeline.dead_letter_limit import complaint

        rows, bad = report.rows, report.bad
        if not self._limit.exceeded(rows, bad, values_least=values_least):
            self._reported.discard(report.table)
            return False
        if report.table not in self._reported:
            self._reported.add(report.table)
            text = complaint(report.table, rows, bad, self._limit)
            logging.getLogger("neve.lake").error("%s", text)
        return True


class _Stopped:
    """A stop request. The current micro-batch is finished first."""

    def __init__(self) -> None:
        self._asked = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._ask)

    def _ask(self, *_: object) -> None:
        self._asked = True

    def __call__(self) -> bool:
        return self._asked


class _ProgressOutput:
    """Reports progress: a bar, a line for each commit, or one JSON document at the end."""

    def __init__(self, bar: output.Bar, *, as_json: bool) -> None:
        self._bar = bar
        self._as_json = as_json
        self._reported_commits: dict[str, int] = {}
        self._counts: dict[str, tuple[int, int]] = {}

    def begin(self, config: PipelineConfig, options: RunOptions, http: str) -> None:
        """Print the first line: tables, interval and HTTP address."""
        tables = [each.table for each in config.topics]
        named = ", ".join(tables[:TABLES_NAMED_MAX])
        if len(tables) > TABLES_NAMED_MAX:
            named += f" and {len(tables) - TABLES_NAMED_MAX} more"
        often = "once" if options.once else f"every {config.interval}"
        self._line(f"neve {__version__} lake run: writes {named} {often}, http {http}")

    def step(self, report: TopicReport) -> None:
        if self._as_json:
            return
        self._counts[report.topic] = (report.rows + report.bad, report.left or 0)
        done = sum(count for count, _ in self._counts.values())
        self._bar.show(done, done + sum(left for _, left in self._counts.values()))
        if report.commits > self._reported_commits.get(report.topic, 0):
            self._reported_commits[report.topic] = report.commits
            self._line(f"{report.table}: {report.rows} rows, {report.bad} dead letters")

    def _line(self, text: str) -> None:
        from neve.serving.logs import time_text

        if not self._as_json:
            print(f"{time_text(runtime.now_ms())} {text}", flush=True)

    def end(self, reports: Sequence[TopicReport]) -> None:
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
