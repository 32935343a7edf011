"""The lag of tables behind their topics, from the bucket and the catalog alone.

No pipeline needs to run. The lag in seconds is the age of the oldest record that is not in the
table yet. Unknown values are None, never 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from neve import runtime
from neve.bucket.model import PARTITION_ERRORS
from neve.bucket.planning import offsets_left
from neve.bucket.sync_bucket import Bucket
from neve.errors import NeveError
from neve.lake.pipeline.config import PipelineConfig, PipelineTopic
from neve.lake.pipeline.runner import pipeline_catalog, store_ref
from neve.lake.tables import read_progress
from neve.lake.tables.last_commit import last_commit_of
from neve.lake.tables.last_error import last_error_of, loss_of
from neve.lake.tables.table_creation import DEAD_LETTERS_SUFFIX


@dataclass(frozen=True)
class PartitionStatus:
    """One partition: the next offset of the table, and the log end; `end` is None if unknown."""

    partition: int
    committed: int | None
    end: int | None
    next: int = 0
    """The first offset to be read; offsets that retention removed are not lag."""
    leapt: int = 0
    """How many offsets from there on are part of a leap: they are not lag either."""

    @property
    def lag(self) -> int | None:
        return None if self.end is None else max(0, self.end - self.next - self.leapt)


@dataclass(frozen=True)
class TopicStatus:
    """One topic and its table.

    `error` has the current errors, or else those that the last run of a pipeline stored, after the
    last loss. `rows` is None if the table could not be read, `partitions` if the table or the topic
    could not be read.
    """

    topic: str
    table: str
    last_commit_ms: int | None = None
    last_commit_before_ms: int | None = None
    """Set instead of `last_commit_ms` if that snapshot was expired: the commit is older."""
    rows: int | None = None
    files: int | None = None
    dead_letters: int | None = None
    partitions: tuple[PartitionStatus, ...] | None = None
    lag_seconds: float | None = None
    error: str = ""
    error_ms: int | None = None
    loss: str = ""
    loss_ms: int | None = None

    @property
    def lag_records(self) -> int | None:
        return self._sum(each.lag for each in self.partitions or ())

    @property
    def committed(self) -> int | None:
        """Return the sum of the table's next offsets; None if no partition was started."""
        known = [each.committed for each in self.partitions or () if each.committed is not None]
        return sum(known) if known else None

    @property
    def end(self) -> int | None:
        """Return the sum of the log ends."""
        return self._sum(each.end for each in self.partitions or ())

    def _sum(self, numbers: Iterable[int | None]) -> int | None:
        """Return the sum; None if a value is unknown or there is none."""
        found = list(numbers)
        if self.partitions is None or None in found:
            return None
        return sum(each for each in found if each is not None)


def pipeline_status(config: PipelineConfig) -> list[TopicStatus]:
    """Return the status of every topic of a pipeline."""
    with pipeline_catalog(config) as catalog, store_ref(config).open() as bucket:
        return [_with_loss(_status(bucket, catalog, topic)) for topic in config.topics]


def _status(bucket: Bucket, catalog: Catalog, config: PipelineTopic) -> TopicStatus:
    """Return the status of one topic. A part that cannot be read does not hide the rest."""
    try:
        found = _of_table(catalog, config)
    except Exception as error:
        return TopicStatus(config.topic, config.table, error=f"its table cannot be read: {error}")
    try:
        return _with_topic(bucket, catalog, config, found)
    except NeveError as error:
        return replace(found, error=str(error), error_ms=None)


def _of_table(catalog: Catalog, config: PipelineTopic) -> TopicStatus:
    table = _table(catalog, config.table)
    complaint = None if table is None else last_error_of(table)
    loss = None if table is None else loss_of(table)
    last = None if table is None else last_commit_of(table)
    return TopicStatus(
        config.topic,
        config.table,
        last_commit_ms=None if last is None or last.expired else last.at_ms,
        last_commit_before_ms=last.at_ms if last is not None and last.expired else None,
        rows=_total(table, "total-records"),
        files=_total(table, "total-data-files"),
        dead_letters=_total(_table(catalog, config.table + DEAD_LETTERS_SUFFIX), "total-records"),
        error="" if complaint is None else complaint.text,
        error_ms=None if complaint is None else complaint.at_ms,
        loss="" if loss is None else loss.text,
        loss_ms=None if loss is None else loss.at_ms,
    )


def _with_loss(found: TopicStatus) -> TopicStatus:
    """Return the status with the last loss in front of its error."""
    if not found.loss:
        return found
    if not found.error:
        return replace(found, error=found.loss, error_ms=found.loss_ms)
    found_at = f" (found {time_text(found.loss_ms)})" if found.loss_ms else ""
    return replace(found, error=f"{found.loss}{found_at}; {found.error}")


def time_text(at_ms: int) -> str:
    """Format a time in UTC, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(" ", "seconds")


def _with_topic(
    bucket: Bucket, catalog: Catalog, config: PipelineTopic, found: TopicStatus
) -> TopicStatus:
    topic = bucket.topic(config.topic)
    table = _table(catalog, config.table)
    known = None if table is None else read_progress(table).get(topic.id)
    offsets = {} if known is None else known.offsets
    plans = bucket.plan(config.topic, from_offset=dict(offsets))
    failures = [str(plan.failure) for plan in plans if plan.failure is not None]
    partitions = tuple(
        PartitionStatus(
            plan.partition,
            offsets.get(plan.partition),
            plan.end if plan.failure is None else None,
            plan.first,
            plan.stop - plan.first - offsets_left(plan, plan.first),
        )
        for plan in plans
    )
    lag_seconds = _lag_seconds(bucket, config.topic, partitions, failures)
    seen = replace(found, partitions=partitions, lag_seconds=lag_seconds)
    return replace(seen, error="; ".join(failures), error_ms=None) if failures else seen


def _table(catalog: Catalog, name: str) -> Table | None:
    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        return None


def _total(table: Table | None, name: str) -> int:
    snapshot = None if table is None else table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary.additional_properties.get(name, 0))


def _lag_seconds(
    bucket: Bucket, topic: str, partitions: Sequence[PartitionStatus], failures: list[str]
) -> float | None:
    """Return the age of the oldest record to be read, over all lagging partitions."""
    oldest: int | None = None
    unknown = False
    for each in partitions:
        if each.lag is None:
            unknown = True
        elif each.lag:
            try:
                first = next(bucket.read(topic, each.partition, from_offset=each.next), None)
            except PARTITION_ERRORS as error:
                failures.append(f"{topic}-{each.partition}: {error}")
                unknown = True
                continue
            if first is not None:
                oldest = first.timestamp if oldest is None else min(oldest, first.timestamp)
    if unknown:
        return None
    return 0.0 if oldest is None else max(0.0, (runtime.now_ms() - oldest) / 1000)
