"""The batch reader that Spark plans with and sends to its workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from neve.bucket.facade import Bucket
from neve.lake.scan.options import ReadOptions
from neve.lake.scan.selection import plan_batch
from neve.lake.scan.task_planning import PACK_BYTES, pack_tasks, plan_tasks
from neve.lake.scan.tasks import OffsetRange, StoreRef, bucket_of, read_range, read_what_is_left
from neve.lake.spark.source.columns import reader_columns, renamed
from neve.lake.spark.source.filters import narrowed

if TYPE_CHECKING:
    import pyarrow as pa

PLANNING = {"prefetch.window": "1", "prefetch.downloads": "1"}
"""A planner reads at most single records, to find moments: it need not read ahead."""


class RangesPartition(InputPartition):  # type: ignore[misc]
    """What one Spark task reads: one range, or some small ones."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)


@dataclass(frozen=True)
class RangeReading:
    """How ranges become rows: what a worker needs, and no more than that is sent to it."""

    store: StoreRef
    columns: tuple[str, ...]
    fail_on_data_loss: bool

    def rows(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task as Arrow batches under Spark's names."""
        if not isinstance(partition, RangesPartition):
            return  # Spark makes a task of its own where there is none
        read = read_range if self.fail_on_data_loss else read_what_is_left
        for each in partition.ranges:
            batches = read(self.store, each, reader_columns(self.columns))
            yield from renamed(batches, self.columns)


class NeveReader(DataSourceReader):  # type: ignore[misc]
    """Plans in the driver, reads in workers."""

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
    """The same for a read that asked to take the query's filters.

    Spark up to 4.3 keeps what a reader made of one query's filters with the DataFrame, and gives it
    to the next query over the same DataFrame, which then misses rows. So filters are taken only
    where the caller says that there is no next one. It is a class of its own because Spark refuses
    one that takes filters, whether there are any or not, in a session that does not push them down.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Use what is understood to read less. Spark still applies all of them."""
        self._bounds = narrowed(self._options.bounds, filters)
        return filters


def spark_partitions(ranges: Sequence[OffsetRange], options: ReadOptions) -> list[InputPartition]:
    """Ranges as Spark's tasks; one of nothing where there are none, which Spark asks for."""
    pack_bytes = min(PACK_BYTES, options.max_bytes_per_partition)
    packed = pack_tasks(ranges, pack_bytes=pack_bytes, min_tasks=options.min_partitions)
    return [RangesPartition(each) for each in packed] or [RangesPartition(())]


def planning_bucket(store: StoreRef) -> Bucket:
    """The bucket for planning, kept open in this process."""
    settings = tuple(sorted({**dict(store.settings), **PLANNING}.items()))
    return bucket_of(StoreRef(store.url, store.layout, settings))
