"""How columns are written to Parquet files: dictionaries, and statistics for the manifests.

A column gets a dictionary if its values repeat in a sample of the first row group. Where they
rarely do (offsets, keys, bodies), building a dictionary and giving it up costs as much as the rest
of writing, and compresses worse.

Manifests also get bounds for fields inside structs. pyiceberg writes none for them, and readers
prune by `_kafka.offset` and `_kafka.timestamp`. Inside lists and maps a bound would not describe a
row, so there are none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io.pyarrow import (
    MetricModeTypes,
    MetricsMode,
    StatisticsCollector,
    compute_statistics_plan,
    match_metrics_mode,
)
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.types import BinaryType, NestedField, PrimitiveType, StringType, StructType

from neve.lake.values.types import is_list

SLICES = 8
SLICE_ROWS = 512
"""The sample is spread over all rows, because neighbouring rows resemble each other."""

REPEATS_MIN = 4
"""A column gets a dictionary if each value of its sample occurs at least this often on average."""


def dictionary_columns(rows: pa.Table) -> list[str]:
    """Return the paths of the leaf columns in the file whose values repeat."""
    sample = _sample(rows)
    leaves = (
        leaf
        for name, column in zip(sample.schema.names, sample.columns, strict=True)
        for leaf in _leaves(column, name)
    )
    return [path for path, values in leaves if _repeats(values)]


def _sample(rows: pa.Table) -> pa.RecordBatch:
    count = rows.num_rows
    if count > SLICES * SLICE_ROWS:
        step = (count - SLICE_ROWS) // (SLICES - 1)
        rows = pa.concat_tables([rows.slice(step * each, SLICE_ROWS) for each in range(SLICES)])
    return rows.combine_chunks().to_batches()[0]


def _leaves(array: pa.Array, path: str) -> Iterator[tuple[str, pa.Array]]:
    type_ = array.type
    if pa.types.is_struct(type_):
        for place, field in enumerate(type_):
            yield from _leaves(pc.struct_field(array, [place]), f"{path}.{field.name}")
    elif pa.types.is_map(type_):
        yield from _leaves(array.keys, f"{path}.key_value.key")
        yield from _leaves(array.items, f"{path}.key_value.value")
    elif is_list(type_):
        yield from _leaves(array.flatten(), f"{path}.list.element")
    else:
        yield path, array


def _repeats(values: pa.Array) -> bool:
    distinct = pc.count_distinct(values).as_py()
    return bool(distinct * REPEATS_MIN <= len(values) - values.null_count)


def statistics_plan(
    schema: Schema, properties: Mapping[str, str]
) -> dict[int, StatisticsCollector]:
    """Return the statistics to collect for each column of a file, by field id."""
    plan = compute_statistics_plan(schema, dict(properties))
    for field in _inside_structs(schema.fields):
        collector = plan[field.field_id]
        mode = _mode(field, collector.column_name, properties)
        plan[field.field_id] = dataclasses.replace(collector, mode=mode)
    return plan


def _inside_structs(fields: Sequence[NestedField], inside: bool = False) -> Iterator[NestedField]:
    for field in fields:
        if isinstance(field.field_type, StructType):
            yield from _inside_structs(field.field_type.fields, True)
        elif inside and isinstance(field.field_type, PrimitiveType):
            yield field


def _mode(field: NestedField, column: str, properties: Mapping[str, str]) -> MetricsMode:
    named = properties.get(f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{column}")
    default = properties.get(
        TableProperties.DEFAULT_WRITE_METRICS_MODE,
        TableProperties.DEFAULT_WRITE_METRICS_MODE_DEFAULT,
    )
    mode = match_metrics_mode(named or default)
    if mode.type == MetricModeTypes.TRUNCATE and not isinstance(
        field.field_type, StringType | BinaryType
    ):
        return MetricsMode(MetricModeTypes.FULL)
    return mode
