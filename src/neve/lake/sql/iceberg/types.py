"""Which Arrow types an Iceberg table's columns have in a query.

Spark wants plain strings and bytes and microseconds. It has no UUID and no time of day: both are
text. Fixed-length bytes are bytes.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyiceberg.schema import Schema


def arrow_schema(schema: Schema) -> pa.Schema:
    """The columns of a table as a query has them."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return pa.schema([_field(field) for field in schema_to_pyarrow(schema)])


def _field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, plain(field.type), field.nullable)


def plain(kind: pa.DataType) -> pa.DataType:
    """The type that Spark has for an Arrow type."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.string() if kind.extension_name == "arrow.uuid" else plain(kind.storage_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_time(kind):
        return pa.string()
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_map(kind):
        return pa.map_(plain(kind.key_type), _field(kind.item_field))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_field(kind.value_field))
    if pa.types.is_struct(kind):
        return pa.struct([_field(kind.field(at)) for at in range(kind.num_fields)])
    return kind


def converted(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A column as it came from a file, in the type that a query has."""
    if isinstance(column.type, pa.BaseExtensionType):
        if column.type.extension_name == "arrow.uuid":
            return _texts_of(column.storage)
        column = column.storage
    if pa.types.is_fixed_size_binary(column.type) and pa.types.is_string(wanted):
        return _texts_of(column)
    return column if column.type == wanted else column.cast(wanted, safe=False)


def _texts_of(column: pa.Array) -> pa.Array:
    texts = [None if data is None else str(uuid.UUID(bytes=data)) for data in column.to_pylist()]
    return pa.array(texts, pa.string())
