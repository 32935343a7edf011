"""The columns of the source: names and types of Spark's Kafka source, and the reader's for them.

Spark hands over the schema that a caller gave; one with fewer columns means that fewer are read.
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
    """The whole schema, with headers only on request."""
    return StructType(
        [StructField(name, kind) for name, kind in TYPES.items() if headers or name != HEADERS]
    )


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The names of a schema's columns; one that the source has not, or has otherwise, is told."""
    for each in schema.fields:
        if each.name not in TYPES:
            known = ", ".join(TYPES)
            raise InvalidError(f"the source has no column {each.name!r}: use some of {known}")
        if each.dataType != TYPES[each.name] or not each.nullable:
            wanted = TYPES[each.name].simpleString()
            raise InvalidError(
                f"the column {each.name!r} is {wanted} and may be null, not "
                f"{each.dataType.simpleString()}{'' if each.nullable else ' not null'}"
            )
    if not schema.fields:
        raise InvalidError(f"a schema without columns was given: use some of {', '.join(TYPES)}")
    return tuple(each.name for each in schema.fields)


def reader_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """The same columns as `neve.open` calls them."""
    return tuple(_READER_NAMES.get(name, name) for name in columns)


def renamed(batches: Iterator[pa.RecordBatch], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Batches of the reader under Spark's names."""
    for batch in batches:
        yield batch.rename_columns(list(columns))
