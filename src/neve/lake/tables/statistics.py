"""Which statistics of a file go into manifests: bounds also for fields inside structs.

pyiceberg leaves these without bounds, and `_kafka.offset` and `_kafka.timestamp` are what readers
prune by. Inside lists and maps a bound would say nothing of a row, so there are none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

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


def statistics_plan(
    schema: Schema, properties: Mapping[str, str]
) -> dict[int, StatisticsCollector]:
    """What to collect for each column of a file, by field id."""
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
