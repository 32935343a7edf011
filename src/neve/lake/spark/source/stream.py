"""The streaming reader: finds the next offsets, and plans the tasks that read them.

The driver has one per query. It has no state that a restart would lose: everything comes from
Spark's checkpoint and from the bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from neve.bucket.model import LATEST, TopicInfo, TopicReplacedError, raise_failures
from neve.bucket.planning import PartitionPlan
from neve.bucket.sync_bucket import Bucket
from neve.cluster.log import NoTopicError
from neve.errors import LostRangeError, UnsupportedError
from neve.lake.scan.offsets import StreamOffsets, TopicOffsets, known_offsets, limited
from neve.lake.scan.options import ReadOptions
from neve.lake.scan.selection import (
    ScanRequest,
    check_losses,
    check_named,
    chosen_topics,
    edge_offsets,
    is_given,
    is_latest,
    name_of,
    offsets_at,
    plan_requests,
)
from neve.lake.scan.task_planning import plan_tasks
from neve.lake.spark.source.reader import RangeReading, planning_bucket, spark_partitions

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # PySpark 4.1 has neither limits nor Trigger.AvailableNow for such sources
    ReadAllAvailable = ReadMaxRows = None
    SupportsTriggerAvailableNow = object


Begins = Mapping[tuple[str, int], int]
"""The log start offset of each partition, by topic and partition."""


class NeveStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads topics as a stream. Offsets are keyed by topic, topic id and partition."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        if options.max_offsets_per_trigger is not None and ReadMaxRows is None:
            raise UnsupportedError("maxOffsetsPerTrigger needs PySpark 4.2 or later")
        self._options = options
        self._reading = RangeReading(options.store, columns, options.fail_on_data_loss)
        self._target: tuple[StreamOffsets, Begins] | None = None
        self._begins_at: StreamOffsets | None = None

    # -- called by Spark ---------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's names
        bucket = self._bucket()
        starting = self._options.starting or LATEST
        found = {}
        # A topic that is missing when the stream starts is an error even without failOnDataLoss.
        topics = chosen_topics(bucket, self._options.subscription)
        check_named(topics, "starting", starting)
        for topic in map(self._narrowed, topics):
            named = offsets_at(bucket, topic, "starting", starting, self._options)
            others = tuple(each for each in topic.partitions if each not in named)
            if others:
                named |= edge_offsets(bucket, topic._replace(partitions=others), "earliest")
            found[topic.name] = TopicOffsets(topic.id, named)
        self._begins_at = StreamOffsets(found)
        return self._begins_at.to_json()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        most = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._ends()

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        ends, begins = self._target or self._ends()
        if start is None:  # PySpark 4.1 does not pass it
            return ends.to_json()
        begun = StreamOffsets.from_json(start)
        if self._target is not None and any(_beyond(begun, ends)):
            # Spark requests the target before the start, and records were appended in between.
            self._target = ends, begins = self._ends()
        ends = self._first_ends(begun, ends)
        if self._options.fail_on_data_loss:
            _check_topics(begun, ends)
            _check_ends(begun, ends)
        if ReadMaxRows is not None and isinstance(limit, ReadMaxRows):
            ends = limited(begun, ends, begins, limit.max_rows)
        return ends.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begun, ended = StreamOffsets.from_json(start), StreamOffsets.from_json(end)
        if self._options.fail_on_data_loss:
            _check_topics(begun, ended)  # in PySpark 4.1, `latestOffset` could not check this
            self._check_begun(begun, ended)
        bucket = self._bucket()
        requests = [
            ScanRequest(
                TopicInfo(name, topic.id, tuple(sorted(topic.offsets))),
                self._firsts(known_offsets(begun, name, topic.id), topic.offsets),
                topic.offsets,
            )
            for name, topic in ended.topics.items()
            if topic.offsets
        ]
        plans: list[PartitionPlan] = []
        for each in requests:
            plans += self._plans(bucket, each)
        bounds = self._options.bounds
        ranges = plan_tasks(
            plans,
            max_bytes_per_task=self._options.max_bytes_per_partition,
            min_tasks=self._options.min_partitions,
            from_timestamp=bounds.from_timestamp,
            to_timestamp=bounds.to_timestamp,
        )
        return spark_partitions(ranges, self._options) if ranges else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reading.rows(partition)

    # -- implementation ----------------------------------------------------------------------

    def _first_ends(self, begun: StreamOffsets, ends: StreamOffsets) -> StreamOffsets:
        """Return the ends of a batch. A first batch that starts at the latest offset is empty.

        A checkpoint stores only the end of a batch. If the first batch failed, Spark would ask for
        its start again, and records written in between would be lost. So the first batch is empty
        and its end is the start of the stream.
        """
        first, self._begins_at = self._begins_at, None
        if first is None or first != begun:
            return ends
        starting = self._options.starting or LATEST
        topics = {}
        for name, topic in ends.topics.items():
            begins = known_offsets(first, name, topic.id)
            stay = {
                number: offset
                for number, offset in begins.items()
                if number in topic.offsets and is_latest(starting, name, number)
            }
            topics[name] = replace(topic, offsets={**topic.offsets, **stay})
        return StreamOffsets(topics)

    def _check_begun(self, begun: StreamOffsets, ended: StreamOffsets) -> None:
        """Raise LostRangeError if a partition ends before the start, for PySpark 4.1.

        PySpark 4.1 does not pass the start to `latestOffset`, and asks for the initial offset after
        the first end. An initial offset that is not explicit may be beyond that end without a loss.
        """
        if begun != self._begins_at:
            _check_ends(begun, ended)
            return
        starting = self._options.starting or LATEST
        given = {
            name: replace(
                topic,
                offsets={
                    number: offset
                    for number, offset in topic.offsets.items()
                    if is_given(starting, name, number)
                },
            )
            for name, topic in begun.topics.items()
        }
        _check_ends(StreamOffsets(given), ended)

    def _bucket(self) -> Bucket:
        return planning_bucket(self._options.store)

    def _topics(self, bucket: Bucket) -> list[TopicInfo]:
        missing_ok = not self._options.fail_on_data_loss
        topics = chosen_topics(bucket, self._options.subscription, missing_ok=missing_ok)
        return [self._narrowed(topic) for topic in topics]

    def _narrowed(self, topic: TopicInfo) -> TopicInfo:
        wanted = self._options.bounds.wants_partition
        return topic._replace(partitions=tuple(filter(wanted, topic.partitions)))

    def _firsts(self, known: Mapping[int, int], ends: Mapping[int, int]) -> Mapping[int, int]:
        """Return the start offsets. A new partition starts at 0, so that a loss is detected."""
        if not self._options.fail_on_data_loss:
            return known
        return {**dict.fromkeys(ends, 0), **known}

    def _ends(self) -> tuple[StreamOffsets, Begins]:
        """Return the end and start offsets of every partition."""
        bucket = self._bucket()
        found: dict[str, TopicOffsets] = {}
        begins: dict[tuple[str, int], int] = {}
        for topic in self._topics(bucket):
            try:
                plans = bucket.plan(topic.name, topic.partitions, from_offset=LATEST)
            except NoTopicError:  # deleted since it was listed
                if self._options.fail_on_data_loss:
                    raise
                continue
            raise_failures({name_of(plan): plan.failure for plan in plans if plan.failure})
            ids = {plan.topic_id for plan in plans} or {topic.id}
            found[topic.name] = TopicOffsets(
                ids.pop(), {plan.partition: plan.end for plan in plans}
            )
            begins |= {(topic.name, plan.partition): plan.start for plan in plans}
        return StreamOffsets(found), begins

    def _plans(self, bucket: Bucket, request: ScanRequest) -> list[PartitionPlan]:
        options = self._options
        try:
            plans = plan_requests(bucket, [request], options.bounds)
            replaced = next((plan for plan in plans if plan.topic_id != request.topic.id), None)
            if replaced is not None:
                raise TopicReplacedError(request.topic.name, request.topic.id, replaced.topic_id)
        except (NoTopicError, TopicReplacedError):
            if options.fail_on_data_loss:
                raise
            return []
        raise_failures({name_of(plan): plan.failure for plan in plans if plan.failure})
        if options.fail_on_data_loss:
            check_losses(plans, [request], options.bounds)
        return plans


def _check_topics(begun: StreamOffsets, ends: StreamOffsets) -> None:
    """Raise NoTopicError for a deleted topic, TopicReplacedError for a recreated one."""
    for name, topic in begun.topics.items():
        now = ends.topics.get(name)
        if now is None:
            raise NoTopicError(
                f"topic {name!r} was deleted while the stream read it: set failOnDataLoss to false "
                "to continue without it"
            )
        if now.id != topic.id:
            raise TopicReplacedError(name, topic.id, now.id)


def _check_ends(begun: StreamOffsets, ends: StreamOffsets) -> None:
    """Raise LostRangeError for a partition that ends before the stream's offset."""
    for name, number, offset, end in _beyond(begun, ends):
        raise LostRangeError(
            f"{name}-{number}: the stream is at offset {offset}, and the log ends at {end}; set "
            "failOnDataLoss to false to continue from there"
        )


def _beyond(begun: StreamOffsets, ends: StreamOffsets) -> Iterator[tuple[str, int, int, int]]:
    """Yield (topic, partition, stream offset, log end) where the log ends before the stream."""
    for name, topic in ends.topics.items():
        for number, offset in known_offsets(begun, name, topic.id).items():
            end = topic.offsets.get(number, offset)
            if end < offset:
                yield name, number, offset, end
