"""The columns of Neve's tables, and the conversion of Arrow rows for a table's files.

A topic's table has the value's fields and one struct, `_kafka`, that identifies the record of each
row. A dead letter has the unchanged record and the reason. All columns are optional, so that other
programs can append rows without them.
"""

from __future__ import annotations

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema, sanitize_column_names

from neve.errors import InvalidError

KAFKA_COLUMN = "_kafka"
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIMESTAMP = pa.timestamp("us", tz="UTC")

KAFKA_STRUCT = pa.struct(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("key", pa.binary()),
        ("headers", HEADERS),
        # Last, because `complete_origin` appends it to the struct of older tables.
        ("topic_id", pa.string()),
    ]
)

DEAD_LETTER_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("reason", pa.string()),
        ("at", TIMESTAMP),
    ]
)


def table_columns(value: pa.Schema) -> pa.Schema:
    """Return the value's fields and `_kafka`. Raises InvalidError if a field has this name."""
    if KAFKA_COLUMN in value.names:
        raise InvalidError(
            f"the value has a field {KAFKA_COLUMN}, which Neve uses for a row's origin; "
            "rename it in the value's schema"
        )
    fields = [field.with_nullable(True) for field in value]
    return pa.schema([*fields, pa.field(KAFKA_COLUMN, KAFKA_STRUCT)])


class FileColumns:
    """Converts batches to the columns, types, names and field ids of a table's files."""

    def __init__(self, schema: Schema, table_name: str) -> None:
        self._table_name = table_name
        self._shape = pa.struct(list(without_large_types(schema_to_pyarrow(schema, {}, False))))
        self.schema = without_large_types(schema_to_pyarrow(sanitize_column_names(schema)))

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with missing columns as null. Raises InvalidError for unknown ones."""
        unknown = sorted(set(batch.schema.names) - {field.name for field in self._shape})
        if unknown:
            raise InvalidError(
                f"table {self._table_name} has no column {', '.join(unknown)}; "
                "let the table evolve before rows are written"
            )
        return pa.RecordBatch.from_struct_array(batch.to_struct_array().cast(self._shape))

    def named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the same buffers with the names and ids of a file."""
        _, content = batch.__arrow_c_array__()
        return pa.RecordBatch._import_from_c_capsule(self.schema.__arrow_c_schema__(), content)


def without_large_types(schema: pa.Schema) -> pa.Schema:
    """Replace large_string and the like, which pyiceberg uses and other readers may reject."""
    return pa.schema([_small_field(field) for field in schema])


def _small_field(field: pa.Field) -> pa.Field:
    return field.with_type(_small(field.type))


def _small(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_large_list(kind) or pa.types.is_list(kind):
        return pa.list_(_small_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_small_field(kind.key_field), _small_field(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([_small_field(field) for field in kind])
    return kind
