"""Splits batches by the partitions of an Iceberg table.

Partition values are computed by column: times by arithmetic, everything else by Iceberg's own
function, once per distinct value. pyiceberg's transforms of whole columns need another compiled
package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TimeTransform,
    Transform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import IcebergType

MICROS_PER_HOUR = 3_600_000_000
MICROS_PER_DAY = 24 * MICROS_PER_HOUR

PartitionValues = tuple[Any, ...]


class PartitionSplitter:
    """Splits batches by partition; rows keep their order."""

    def __init__(self, spec: PartitionSpec, schema: Schema) -> None:
        self._columns = [_Column(field, schema) for field in spec.fields]

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[PartitionValues, pa.RecordBatch]]:
        """Yield the rows of each partition, in the order of first appearance."""
        if not self._columns or batch.num_rows == 0:
            yield (), batch
            return
        only = [column.only_value(batch) for column in self._columns]
        if None not in only:
            yield tuple(only), batch
            return
        coded = [column.values(batch).dictionary_encode("encode") for column in self._columns]
        codes = np.zeros(batch.num_rows, dtype=np.int64)
        for each in coded:
            codes = codes * len(each.dictionary) + each.indices.to_numpy()
        firsts = np.unique(codes, return_index=True)[1]
        for first in np.sort(firsts):
            values = tuple(each.dictionary[int(each.indices[int(first)].as_py())] for each in coded)
            rows = batch
            if len(firsts) > 1:
                rows = batch.filter(pa.array(codes == codes[first]))
            yield tuple(value.as_py() for value in values), rows


class _Column:
    def __init__(self, field: PartitionField, schema: Schema) -> None:
        source = schema.find_field(field.source_id)
        self._path = _path_to(schema, field.source_id)
        self._transform = _vectorised(field.transform, source.field_type)
        self._keeps_order = isinstance(field.transform, TimeTransform)

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        return self._transform(self._source(batch))

    def only_value(self, batch: pa.RecordBatch) -> Any:
        """Return the value that all rows share, from their minimum and maximum; None if unknown.

        Rows are nearly ordered by time, and most batches lie in one day.
        """
        if not self._keeps_order:
            return None
        column = self._source(batch)
        if column.null_count:
            return None
        extremes = pc.min_max(column)
        both = pa.array([extremes["min"], extremes["max"]], column.type)
        least, most = self._transform(both).to_pylist()
        return least if least == most else None

    def _source(self, batch: pa.RecordBatch) -> pa.Array:
        column = batch.column(self._path[0])
        return pc.struct_field(column, self._path[1:]) if len(self._path) > 1 else column


def _path_to(schema: Schema, field_id: int) -> list[int]:
    """Return the positions from the top to a field; names may contain dots."""
    fields: Any = schema.fields
    path: list[int] = []
    while True:
        for position, field in enumerate(fields):
            inner = getattr(field.field_type, "fields", ())
            if field.field_id == field_id:
                return [*path, position]
            if field_id in {each.field_id for each in _all_below(inner)}:
                path.append(position)
                fields = inner
                break
        else:
            raise ValueError(f"no field {field_id} that rows can be partitioned by")


def _all_below(fields: Any) -> Iterator[Any]:
    for field in fields:
        yield field
        yield from _all_below(getattr(field.field_type, "fields", ()))


def _vectorised(
    transform: Transform[Any, Any], kind: IcebergType
) -> Callable[[pa.Array], pa.Array]:
    if isinstance(transform, VoidTransform):
        return lambda column: pa.nulls(len(column), pa.int32())
    if isinstance(transform, IdentityTransform):
        return _plain
    if isinstance(transform, DayTransform):
        return _days
    if isinstance(transform, HourTransform):
        return lambda column: _floored(column.cast(pa.int64()), MICROS_PER_HOUR)
    if isinstance(transform, YearTransform):
        return lambda column: pc.subtract(pc.year(column), 1970).cast(pa.int32())
    if isinstance(transform, MonthTransform):
        return _months
    single = transform.transform(kind)
    return lambda column: _by_distinct_value(column, single)


def _plain(column: pa.Array) -> pa.Array:
    """Convert dates and times to the numbers in manifests."""
    if pa.types.is_timestamp(column.type) or pa.types.is_time64(column.type):
        return column.cast(pa.int64())
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return column


def _days(column: pa.Array) -> pa.Array:
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return _floored(column.cast(pa.int64()), MICROS_PER_DAY)


def _months(column: pa.Array) -> pa.Array:
    years = pc.multiply(pc.subtract(pc.year(column), 1970), 12)
    return pc.add(years, pc.subtract(pc.month(column), 1)).cast(pa.int32())


def _floored(numbers: pa.Array, divisor: int) -> pa.Array:
    """Divide and round down; Arrow rounds towards zero."""
    filled = pc.fill_null(numbers, 0).to_numpy()
    quotients = (filled // divisor).astype(np.int32)
    return pa.array(quotients, mask=numbers.is_null().to_numpy(zero_copy_only=False))


def _by_distinct_value(column: pa.Array, single: Callable[[Any], Any]) -> pa.Array:
    coded = _plain(column).dictionary_encode("encode")
    results = pa.array([single(value) for value in coded.dictionary.to_pylist()])
    return results.take(coded.indices)
