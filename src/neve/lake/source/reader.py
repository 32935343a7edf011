"""The batch reader that Spark plans with and sends to its workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from neve.lake.source.columns import reader_columns, renamed
from neve.lake.source.filters import narrowed
from neve.lake.source.options import ReadOptions
from neve.lake.source.ranges import pack_tasks, plan_tasks
from neve.lake.source.selection import plan_batch
from neve.lake.source.tasks import OffsetRange, StoreRef, read_range, read_what_is_left

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


class _FilterTaking:
    """`pushFilters`, in a form that works whether or not a session pushes filters down.

    Where push-down is off, its default, Spark refuses a reader that overrides `pushFilters`. It
    finds out by looking at the function behind the method. So the method is a callable that
    shows the base class's function there: with push-down on it is called, with push-down off it
    counts as not overridden, and the read goes on without it.
    """

    def __get__(self, reader: NeveReader | None, owner: type | None = None) -> Any:
        if reader is None:
            return DataSourceReader.pushFilters
        return _BoundFilterTaking(reader.take_filters)


class _BoundFilterTaking:
    __func__ = DataSourceReader.pushFilters

    def __init__(self, take: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self._take = take

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._take(filters)


class NeveReader(DataSourceReader):  # type: ignore[misc]
    """Plans in the driver, reads in workers."""

    pushFilters = _FilterTaking()  # noqa: N815  Spark's name

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._reading = RangeReading(options.store, columns, options.fail_on_data_loss)
        self._bounds = options.bounds

    def take_filters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use what is understood to read less, if asked to. Spark still applies all of them.

        Spark up to 4.3 keeps what a reader made of one query's filters with the DataFrame, and
        gives it to the next query over the same DataFrame, which would miss rows. So filters
        are taken only where the caller says that there is no next one.
        """
        if self._options.push_filters:
            self._bounds = narrowed(self._options.bounds, filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        options, bounds = self._options, self._bounds
        with planning_bucket(options.store) as bucket:
            plans = plan_batch(bucket, options, bounds)
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


def spark_partitions(ranges: Sequence[OffsetRange], options: ReadOptions) -> list[InputPartition]:
    """Ranges as Spark's tasks; one of nothing where there are none, which Spark asks for."""
    packed = pack_tasks(ranges, min_tasks=options.min_partitions)
    return [RangesPartition(each) for each in packed] or [RangesPartition(())]


def planning_bucket(store: StoreRef) -> Any:
    """The bucket for planning, to be closed by the caller."""
    settings = tuple(sorted({**PLANNING, **dict(store.settings)}.items()))
    return StoreRef(store.url, store.layout, settings).open()
