"""The columns of the source: those of Spark's Kafka source, and their names in `neve.open`.

Spark passes the schema that the caller gave; only its columns are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from neve.errors import InvalidError

if TYPE_CHECKING:
    import pyarrow as pa

HEADERS = "headers"
TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}
_READER_NAMES = {"timestampType": "timestamp_type"}


def spark_schema(*, headers: bool) -> StructType:
    """Return the whole schema, with headers only on request."""
    return StructType(
        [StructField(name, kind) for name, kind in TYPES.items() if headers or name != HEADERS]
    )


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Return the column names of a schema. Raises InvalidError for an unknown name or type."""
    for each in schema.fields:
        if each.name not in TYPES:
            known = ", ".join(TYPES)
            raise InvalidError(f"column {each.name!r} does not exist; valid columns: {known}")
        if each.dataType != TYPES[each.name] or not each.nullable:
            wanted = TYPES[each.name].simpleString()
            raise InvalidError(
                f"the column {each.name!r} must be {wanted} and nullable, not "
                f"{each.dataType.simpleString()}{'' if each.nullable else ' not null'}"
            )
    if not schema.fields:
        raise InvalidError(f"the schema is empty; valid columns: {', '.join(TYPES)}")
    return tuple(each.name for each in schema.fields)


def reader_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the names that `neve.open` has for these columns."""
    return tuple(_READER_NAMES.get(name, name) for name in columns)


def renamed(batches: Iterator[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Rename the columns of batches to Spark's names."""
    for batch in batches:
        yield batch.rename_columns(list(columns))
