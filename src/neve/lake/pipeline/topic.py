"""Fills one topic's table, one micro-batch at a time.

A step reads the table's offsets, reads the records that follow on Spark, and commits them. All
state is in the table: a pipeline that is killed at any point continues from the table's offsets,
and two pipelines on one table take turns.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from neve.bucket.model import (
    LATEST,
    PARTITION_ERRORS,
    Offsets,
    PartitionName,
    TopicReplacedError,
    raise_failures,
)
from neve.bucket.planning import PartitionPlan, offsets_left
from neve.bucket.sync_bucket import Bucket
from neve.errors import DamagedError, InvalidError, UnavailableError
from neve.lake.pipeline.config import PipelineTopic
from neve.lake.pipeline.data_loss import NOTHING_LOST, Loss, loss_of, with_all_lost
from neve.lake.pipeline.micro_batches import (
    BatchResult,
    MicroBatch,
    combine_results,
    next_micro_batch,
)
from neve.lake.pipeline.range_task import RangeResult, TopicTask, run_range
from neve.lake.pipeline.schema_growth import PASSES_MAX, columns_for, grow, value_schema
from neve.lake.scan.tasks import StoreRef
from neve.lake.spark.jobs import run_tasks
from neve.lake.tables import (
    CommitKind,
    CommitOutcome,
    Progress,
    TopicProgress,
    commit,
    commit_range,
    open_dead_letters,
    open_table,
    read_progress,
    table_ref,
)
from neve.lake.tables.last_error import loss_property, record_error
from neve.lake.tables.progress import offset_of
from neve.lake.tables.table_creation import complete_origin
from neve.lake.values import value_format

if TYPE_CHECKING:
    from neve.lake.spark.session import SparkSession

_log = logging.getLogger(__name__)

SAMPLE_RECORDS = 10_000
SAMPLE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Step:
    """The result of one step. `left` is the number of offsets still to be read, None if unknown.

    `behind` is True if the next step can read more immediately. `failures` keep the table from
    being filled. Lost offsets do not, but are reported too.
    """

    rows: int = 0
    bad: int = 0
    lost: Loss = NOTHING_LOST
    left: int | None = None
    behind: bool = False
    failures: tuple[str, ...] = ()

    @property
    def complaints(self) -> tuple[str, ...]:
        """Return all failures and losses."""
        return (*self.failures, self.lost.text) if self.lost.text else self.failures


class TopicPipeline:
    """Fills one table. Not thread-safe."""

    def __init__(
        self,
        spark: SparkSession,
        bucket: Bucket,
        store: StoreRef,
        catalog: Catalog,
        config: PipelineTopic,
        *,
        batch_bytes: int,
        task_bytes: int,
        folder: Path | None = None,
    ) -> None:
        self._spark = spark
        self._bucket = bucket
        self._store = store
        self._catalog = catalog
        self._format = value_format(config.value, folder=folder)
        self._batch_bytes = batch_bytes
        self._task_bytes = task_bytes
        self._table: Table | None = None
        # Partitions with a range that ended early in the last step. Only an optimization: without
        # it, as after a restart, a step reads more than it can commit.
        self._stuck: frozenset[int] = frozenset()
        self.config = config

    def step(self) -> Step:
        """Commit one micro-batch to the table."""
        table = self._opened()
        if table is None:
            return Step(left=0)  # no partition has a record
        expected = read_progress(table)
        plans = self._plans(expected, table)
        batch = next_micro_batch(
            plans,
            batch_bytes=self._batch_bytes,
            task_bytes=self._task_bytes,
            doubtful=self._stuck,
        )
        found = self._read(batch, table, expected)
        self._stuck = found.stuck
        left = _left(plans, found)
        if not _moves(expected, found.new):
            return Step(left=left, failures=found.failures)
        lost = loss_of(plans, found.new, self.config.table)
        outcome = self._commit(table, found, expected, lost)
        if not outcome.in_table:
            _log.info("%s: %s; looking again", self.config.table, outcome.reason)
            return Step(behind=True, failures=found.failures)
        behind = any(plan.partition not in batch.whole | found.stuck for plan in plans)
        if outcome.kind is CommitKind.ALREADY:
            # Another pipeline moved the offsets, and counts the rows.
            return Step(left=left, behind=behind, failures=found.failures)
        return Step(found.rows, found.bad, lost, left, behind, found.failures)

    def note(self, failures: Sequence[str]) -> None:
        """Store the failures in the table, for `neve lake status`."""
        if self._table is not None:
            record_error(self._table, "; ".join(failures) or None)

    # -- planning ----------------------------------------------------------------------------

    def _plans(self, expected: Progress, table: Table) -> list[PartitionPlan]:
        topic = self._bucket.topic(self.config.topic)
        known = expected.get(topic.id)
        started_before = any(each.topic == topic.name for each in expected.values())
        if not started_before and self.config.start == "latest":
            return self._begin_at_the_end(topic.id, table)
        offsets = {} if known is None else dict(known.offsets)
        plans = [_not_behind(plan, offsets) for plan in self._planned(topic.id, offsets)]
        if started_before:
            # A new partition or topic id starts at 0, even if its log start is higher.
            return [with_all_lost(plan, offsets) for plan in plans]
        return plans

    def _planned(self, topic_id: str, offsets: Offsets) -> list[PartitionPlan]:
        """Plan the topic. Raises TopicReplacedError if its id is not `topic_id`."""
        plans = self._bucket.plan(self.config.topic, from_offset=offsets)
        for plan in plans:
            if plan.topic_id != topic_id:
                raise TopicReplacedError(self.config.topic, topic_id, plan.topic_id)
        return plans

    def _begin_at_the_end(self, topic_id: str, table: Table) -> list[PartitionPlan]:
        """Commit the current ends as start offsets, and plan from them.

        Without the commit, a later start would begin at later ends and skip the records between.
        Raises the failure of a partition whose end is unknown: without an offset in the table, it
        would count as new from then on, and begin at its first record.
        """
        plans = self._planned(topic_id, LATEST)
        raise_failures(
            {
                PartitionName(plan.topic, plan.partition): plan.failure
                for plan in plans
                if plan.failure is not None
            }
        )
        ends = {plan.partition: plan.end for plan in plans}
        commit(table, [], {}, {topic_id: TopicProgress(self.config.topic, ends)})
        return self._planned(topic_id, ends)

    # -- the table ---------------------------------------------------------------------------

    def _opened(self) -> Table | None:
        """Return the table, created if it is missing; None while its columns are unknown."""
        if self._table is not None and self._is_there(self._table):
            return self._table
        self._table = None
        given = self._format.schema()
        try:
            table = self._catalog.load_table(self.config.table)
        except NoSuchTableError:
            schema = _checked(given) if given is not None else self._inferred()
            if schema is None:
                return None
            table = open_table(
                self._catalog, self.config.table, schema, tuple(self.config.partition_by)
            )
        complete_origin(table)
        if given is not None:
            grow(table, self.config, [given])
        self._table = table
        return table

    def _is_there(self, table: Table) -> bool:
        """Return True if the table was neither dropped nor recreated."""
        try:
            found = self._catalog.load_table(self.config.table)
        except NoSuchTableError:
            return False
        return found.metadata.table_uuid == table.metadata.table_uuid

    def _inferred(self) -> pa.Schema | None:
        """Infer the columns from the first values.

        Returns None if there are no values, unless the table must store the start offsets.
        """
        values: list[pa.Array] = []
        records = size = 0
        for column in self._first_values():
            values.append(column)
            records += len(column) - column.null_count
            size += column.nbytes
            if records >= SAMPLE_RECORDS or size >= SAMPLE_BYTES:
                break
        if not records:
            return pa.schema([]) if self.config.start == "latest" else None
        # If none of them is readable, the table has no columns from values yet.
        sample = pa.concat_arrays([each.cast(pa.binary()) for each in values])
        return columns_for(self._format.infer(sample))

    def _first_values(self) -> Iterator[pa.Array]:
        """Yield values of all partitions, up to the first read error of each."""
        for plan in self._bucket.plan(self.config.topic):
            batches = self._bucket.arrow(self.config.topic, plan.partition, columns=("value",))
            try:
                for batch in batches:
                    yield batch.column("value")
            except PARTITION_ERRORS:
                continue  # the step that reads it will report it

    # -- reading and committing --------------------------------------------------------------

    def _read(self, batch: MicroBatch, table: Table, expected: Progress) -> BatchResult:
        known = expected.get(batch.topic_id)
        started = () if known is None else known.offsets
        strict = False
        for _ in range(PASSES_MAX):
            results = self._run(batch, table, strict=strict)
            unknown = [schema for each in results for schema in each.unknown]
            if unknown and not grow(table, self.config, unknown):
                # Values with fields that cannot become columns are dead letters.
                strict = True
            elif not unknown:
                return combine_results(batch, results, started=started)
        raise UnavailableError(
            self.config.table, "its values have new fields each time they are read: try later"
        )

    def _run(self, batch: MicroBatch, table: Table, *, strict: bool) -> list[RangeResult]:
        ranges = batch.ranges
        if not ranges:
            return []
        letters = None
        if self.config.on_error == "dead_letters":
            letters = table_ref(self._letters())
        work = TopicTask(
            self._store,
            self._format,
            value_schema(table),
            table_ref(table),
            letters,
            strict,
            stop=self.config.on_error == "stop",
        )
        return run_tasks(self._spark, functools.partial(run_range, work), ranges)

    def _letters(self) -> Table:
        return open_dead_letters(self._catalog, self.config.table)

    def _commit(
        self, table: Table, found: BatchResult, expected: Progress, lost: Loss
    ) -> CommitOutcome:
        return commit_range(
            table,
            found.files,
            expected,
            found.new,
            letters=self._letters,
            letter_files=found.letter_files,
            properties=loss_property(lost.text) if lost.text else None,
        )


def _left(plans: Sequence[PartitionPlan], found: BatchResult) -> int | None:
    """Return how many offsets are still to be read; None if a partition is unreadable."""
    if any(plan.failure is not None for plan in plans):
        return None
    return sum(offsets_left(plan, found.reached(plan)) for plan in plans)


def _not_behind(plan: PartitionPlan, offsets: Mapping[int, int]) -> PartitionPlan:
    """Return the plan, with a failure if the log ends before the table's offset."""
    reached = offsets.get(plan.partition, 0)
    if plan.failure is not None or reached <= plan.end:
        return plan
    reason = (
        f"it ends at offset {plan.end}, and the table has it up to {reached}: committed records "
        "are missing from the bucket, or the bucket was restored to an older state"
    )
    return replace(plan, failure=DamagedError(f"{plan.topic}-{plan.partition}", reason))


def _checked(given: pa.Schema) -> pa.Schema:
    """Return the schema of the pipeline's file. Raises InvalidError if a table cannot have it."""
    usable = columns_for(given)
    if not usable.equals(given):
        wrong = [each.name for each in given if each not in list(usable)]
        raise InvalidError(
            f"value.schema: a table cannot have the columns {', '.join(map(repr, wrong))}: give "
            "each a unique name, also if case is ignored"
        )
    return given


def _moves(expected: Progress, new: Progress) -> bool:
    """Return True if a commit would change an offset of the table.

    Offset 0 of an empty partition is such a change: once it is in the table, records that are
    removed before they are read count as lost.
    """
    return any(
        end != offset_of(expected, topic_id, number)
        for topic_id, topic in new.items()
        for number, end in topic.offsets.items()
    )
