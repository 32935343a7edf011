"""A whole pipeline: advances its topics in turn, once per interval, and maintains the tables.

A topic that fails does not stop the others: its failure is logged and reported, and the pipeline
retries it at the next interval.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from neve import runtime
from neve.bucket.async_bucket import settings_of
from neve.bucket.sync_bucket import Bucket
from neve.lake.pipeline.config import (
    MaintenanceConfig,
    PipelineConfig,
    load_config,
    parse_config,
)
from neve.lake.pipeline.topic import Step, TopicPipeline
from neve.lake.pipeline.units import bytes_of, seconds_of
from neve.lake.scan.tasks import StoreRef
from neve.lake.tables import MaintenancePolicy, catalog_of, maintain
from neve.lake.tables.table_creation import DEAD_LETTERS_SUFFIX

if TYPE_CHECKING:
    from neve.lake.spark.session import SparkSession

_log = logging.getLogger(__name__)


@dataclass
class TopicReport:
    """Counts and errors of one topic. `failures` are those of the last run, losses included.

    `left` is the number of offsets still to be read, None if unknown. `failing` is the error of the
    last step, without losses: they do not keep the table from being filled. `stepped_ms` is the
    time when the step ended.
    """

    topic: str
    table: str
    rows: int = 0
    bad: int = 0
    lost: int = 0
    left: int | None = None
    commits: int = 0
    failures: list[str] = field(default_factory=list)
    failing: str = ""
    stepped_ms: int | None = None
    committed_ms: int | None = None


OnStep = Callable[[TopicReport], None]


class Pipeline:
    """Fills the Iceberg tables of a pipeline from its topics. A context manager; or `close` it.

    `config` is the path of a pipeline's YAML file, or its content as a mapping. Relative paths in
    it are resolved against `folder`, by default the folder of the file.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: PipelineConfig | Mapping[str, Any] | Path,
        *,
        folder: Path | None = None,
    ) -> None:
        if isinstance(config, Path):
            folder = folder or config.parent
            config = load_config(config)
        elif not isinstance(config, PipelineConfig):
            config = parse_config(config)
        self._config = config
        self._store = store_ref(config)
        with contextlib.ExitStack() as opening:
            self._bucket: Bucket = opening.enter_context(self._store.open())
            self._catalog: Catalog = opening.enter_context(pipeline_catalog(config))
            self._topics = [
                TopicPipeline(
                    spark,
                    self._bucket,
                    self._store,
                    self._catalog,
                    each,
                    batch_bytes=config.batch_bytes,
                    task_bytes=config.task_bytes,
                    folder=folder,
                )
                for each in config.topics
            ]
            self._opened = opening.pop_all()
        self.reports = [TopicReport(each.topic, each.table) for each in config.topics]
        self._maintain_at = runtime.monotonic() + seconds_of(config.maintenance.every, "every")

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._opened.close()

    def run_once(
        self, on_step: OnStep = lambda _: None, stop: Callable[[], bool] = lambda: False
    ) -> bool:
        """Fill every table up to the current end of its topic.

        Stops early if `stop()` is true, which is checked between micro-batches. Returns True if
        nothing failed and no offsets were found lost.
        """
        for report in self.reports:
            report.failures.clear()
        pending = list(zip(self._topics, self.reports, strict=True))
        while pending:
            pending = [pair for pair in pending if not stop() and self._advance(*pair, on_step)]
        return not any(report.failures for report in self.reports)

    def run(self, stop: Callable[[], bool], on_step: OnStep = lambda _: None) -> None:
        """Run until `stop()` is true, which is checked between micro-batches and while waiting."""
        while not stop():
            began = runtime.monotonic()
            self.run_once(on_step, stop)
            due = self._config.maintenance.enabled and not stop()
            if due and runtime.monotonic() >= self._maintain_at:
                self.maintain()
            until = began + self._config.interval_seconds
            while not stop() and (left := until - runtime.monotonic()) > 0:
                runtime.run(runtime.sleep(min(left, 0.2)))

    def maintain(self) -> None:
        """Maintain all tables. A failure is logged, and the table is retried the next time."""
        policy = maintenance_policy(self._config.maintenance)
        for each in self._topics:
            for name in (each.config.table, each.config.table + DEAD_LETTERS_SUFFIX):
                try:
                    maintain(self._catalog.load_table(name), policy)
                except NoSuchTableError:
                    continue
                except Exception as error:
                    _log.warning("%s: table maintenance failed: %s", name, error)
        every = seconds_of(self._config.maintenance.every, "maintenance.every")
        self._maintain_at = runtime.monotonic() + every

    def _advance(self, topic: TopicPipeline, report: TopicReport, on_step: OnStep) -> bool:
        """Run one step of one topic. Returns True if the next step can read more immediately."""
        try:
            step = topic.step()
        except Exception as error:
            # Other topics continue, and this one is retried later.
            step = Step(failures=(f"{report.topic}: {error}",))
        _add(report, step)
        for complaint in step.complaints:
            _log.error("%s", complaint)
        self._note(topic, step)
        on_step(report)
        return step.behind

    def _note(self, topic: TopicPipeline, step: Step) -> None:
        try:
            topic.note(step.failures)
        except Exception as error:
            # The error is already logged. Only `neve lake status` does not show it.
            _log.info(
                "%s: the last error could not be stored in the table: %s", topic.config.table, error
            )


def _add(report: TopicReport, step: Step) -> None:
    report.rows += step.rows
    report.bad += step.bad
    report.lost += step.lost.offsets
    report.left = step.left
    report.failures.extend(step.complaints)
    report.failing = "; ".join(step.failures)
    report.stepped_ms = runtime.now_ms()
    if step.rows or step.bad:
        report.commits += 1
        report.committed_ms = report.stepped_ms


def store_ref(config: PipelineConfig) -> StoreRef:
    """Return what workers need to open the bucket."""
    return StoreRef(
        config.store, "neve", tuple((name, _text(value)) for name, value in config.settings.items())
    )


def pipeline_catalog(config: PipelineConfig) -> Catalog:
    """Open the catalog, with the endpoint and region of the pipeline's store."""
    settings = settings_of(dict(store_ref(config).settings))
    return catalog_of(config.catalog, config.store, store=settings.store)


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def maintenance_policy(config: MaintenanceConfig) -> MaintenancePolicy:
    """Convert the configuration of maintenance to a policy."""
    return MaintenancePolicy(
        target_bytes=bytes_of(config.file_size, "maintenance.file_size"),
        small_bytes=bytes_of(config.small_file_size, "maintenance.small_file_size"),
        keep_snapshots_ms=int(seconds_of(config.keep, "maintenance.keep") * 1000),
        keep_snapshots_least=config.keep_snapshots,
        keep_snapshots_most=max(MaintenancePolicy.keep_snapshots_most, config.keep_snapshots),
    )
