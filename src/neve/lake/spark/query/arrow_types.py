"""Converts a query's columns to Arrow types: variants to JSON, others without one to text."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def with_arrow_types(frame: DataFrame) -> tuple[DataFrame, pa.Schema]:
    """Return the converted rows and their schema. Names may repeat, as in a join of two topics."""
    from pyspark.sql import functions
    from pyspark.sql.types import VariantType

    names = [field.name for field in frame.schema.fields]
    kinds = [_arrow_type(field.dataType) for field in frame.schema.fields]
    if any(kind is None for kind in kinds):
        unique = [f"c{at}" for at in range(len(names))]
        frame = frame.toDF(*unique)
        columns = []
        for at, field in enumerate(frame.schema.fields):
            column = functions.col(unique[at])
            if kinds[at] is None:
                variant = isinstance(field.dataType, VariantType)
                column = functions.to_json(column) if variant else column.cast("string")
            columns.append(column.alias(unique[at]))
        frame = frame.select(*columns)
    fields = [
        pa.field(name, kind or pa.string(), field.nullable)
        for name, kind, field in zip(names, kinds, frame.schema.fields, strict=True)
    ]
    return frame, pa.schema(fields)


def _arrow_type(kind: Any) -> pa.DataType | None:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import CalendarIntervalType, VariantType, YearMonthIntervalType

    if _holds(kind, (VariantType, CalendarIntervalType, YearMonthIntervalType)):
        return None
    try:
        return to_arrow_type(kind, **_in_utc())
    except (PySparkException, TypeError):
        return None


@functools.cache
def _in_utc() -> dict[str, str]:
    """Return the arguments of `to_arrow_type` for UTC, which is the default in PySpark 4.1."""
    from pyspark.sql.pandas.types import to_arrow_type

    known = inspect.signature(to_arrow_type).parameters
    return {"timezone": "UTC"} if "timezone" in known else {}


def _holds(kind: Any, unknown: tuple[type, ...]) -> bool:
    if isinstance(kind, unknown):
        return True
    inner = [getattr(kind, name, None) for name in ("elementType", "keyType", "valueType")]
    fields = [field.dataType for field in getattr(kind, "fields", [])]
    return any(_holds(each, unknown) for each in [*inner, *fields] if each is not None)
