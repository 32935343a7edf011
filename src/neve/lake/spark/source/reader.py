"""The batch reader: plans in the driver, reads in workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from neve.bucket.sync_bucket import Bucket
from neve.lake.scan.options import ReadOptions
from neve.lake.scan.selection import plan_batch
from neve.lake.scan.task_planning import PACK_BYTES, pack_tasks, plan_tasks
from neve.lake.scan.tasks import ScanRange, StoreRef, bucket_of, read_range, read_what_is_left
from neve.lake.spark.source.columns import reader_columns, renamed
from neve.lake.spark.source.filters import narrowed

if TYPE_CHECKING:
    import pyarrow as pa

PLANNING = {"prefetch.window": "1", "prefetch.downloads": "1"}
"""Planning reads at most single records, to resolve timestamps: no read-ahead."""


class RangesPartition(InputPartition):  # type: ignore[misc]
    """The ranges that one Spark task reads: one, or several small ones."""

    def __init__(self, ranges: Sequence[ScanRange]) -> None:
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)


@dataclass(frozen=True)
class RangeReading:
    """What a worker needs to read ranges as rows. Nothing else is sent to it."""

    store: StoreRef
    columns: tuple[str, ...]
    fail_on_data_loss: bool

    def rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task as Arrow batches with Spark's column names."""
        if not isinstance(partition, RangesPartition):
            return  # Spark's own task, which it adds if there are no partitions
        read = read_range if self.fail_on_data_loss else read_what_is_left
        for each in partition.ranges:
            batches = read(self.store, each, reader_columns(self.columns))
            yield from renamed(batches, self.columns)


class NeveReader(DataSourceReader):  # type: ignore[misc]
    """Reads topics as a batch."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._reading = RangeReading(options.store, columns, options.fail_on_data_loss)
        self._bounds = options.bounds

    def partitions(self) -> list[InputPartition]:
        options, bounds = self._options, self._bounds
        plans = plan_batch(planning_bucket(options.store), options, bounds)
        ranges = plan_tasks(
            plans,
            max_bytes_per_task=options.max_bytes_per_partition,
            min_tasks=options.min_partitions,
            from_timestamp=bounds.from_timestamp,
            to_timestamp=bounds.to_timestamp,
        )
        return spark_partitions(ranges, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reading.rows(partition)


class FilterTakingReader(NeveReader):
    """A reader that uses the query's filters, for the option `pushFilters`.

    Spark up to 4.3 stores the read that was narrowed by one query's filters with the DataFrame, and
    reuses it for the next query over the same DataFrame, which then misses rows. So filters are
    used only on request. This is a separate class because a session without filter pushdown rejects
    any reader that has `pushFilters`.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Narrow the read by the filters. Returns all of them: Spark applies them again."""
        self._bounds = narrowed(self._options.bounds, filters)
        return filters


def spark_partitions(ranges: Sequence[ScanRange], options: ReadOptions) -> list[InputPartition]:
    """Group ranges into Spark's tasks. Spark needs at least one, even if it is empty."""
    pack_bytes = min(PACK_BYTES, options.max_bytes_per_partition)
    packed = pack_tasks(ranges, pack_bytes=pack_bytes, min_tasks=options.min_partitions)
    return [RangesPartition(each) for each in packed] or [RangesPartition(())]


def planning_bucket(store: StoreRef) -> Bucket:
    """Return the bucket for planning, which stays open in this process."""
    settings = tuple(sorted({**dict(store.settings), **PLANNING}.items()))
    return bucket_of(StoreRef(store.url, store.layout, settings))
