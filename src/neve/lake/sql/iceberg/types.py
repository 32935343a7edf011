"""Maps the types of Iceberg columns to the Arrow types of a query.

Spark needs plain strings, bytes and microseconds. It lacks UUID and time of day: both become text.
Fixed-length bytes become bytes.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyiceberg.schema import Schema


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the columns of a table with the types of queries."""
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return pa.schema([_field(field) for field in schema_to_pyarrow(schema)])


def _field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, plain(field.type), field.nullable)


def plain(kind: pa.DataType) -> pa.DataType:
    """Return Spark's type for an Arrow type."""
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
    """Convert a column of a file to the type of queries."""
    if isinstance(column.type, pa.BaseExtensionType):
        if column.type.extension_name == "arrow.uuid":
            return _texts_of(column.storage)
        column = column.storage
    if pa.types.is_fixed_size_binary(column.type) and pa.types.is_string(wanted):
        return _texts_of(column)
    if pa.types.is_nested(wanted) and _holds_texts_of_bytes(column.type, wanted):
        return _rebuilt(column, wanted)
    return column if column.type == wanted else column.cast(wanted, safe=False)


def _holds_texts_of_bytes(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Return True if the type has UUIDs at any depth, whose bytes a cast would treat as text."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    if not pa.types.is_nested(wanted):
        return bool(pa.types.is_fixed_size_binary(kind) and pa.types.is_string(wanted))
    if pa.types.is_struct(wanted):
        inner = [(kind.field(field.name).type, field.type) for field in wanted]
    elif pa.types.is_map(wanted):
        inner = [(kind.key_type, wanted.key_type), (kind.item_type, wanted.item_type)]
    else:
        inner = [(kind.value_type, wanted.value_type)]
    return any(_holds_texts_of_bytes(one, other) for one, other in inner)


def _rebuilt(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    gone = column.is_null()
    if pa.types.is_struct(wanted):
        parts = [converted(column.field(field.name), field.type) for field in wanted]
        return pa.StructArray.from_arrays(parts, fields=list(wanted), mask=gone)
    column = pa.concat_arrays([column, column.slice(0, 0)])  # copy, without a slice's offset
    first, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
    offsets = pc.subtract(column.offsets, pa.scalar(first, column.offsets.type)).cast(pa.int32())
    if pa.types.is_map(wanted):
        keys = converted(column.keys.slice(first, end - first), wanted.key_type)
        items = converted(column.items.slice(first, end - first), wanted.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=wanted, mask=gone)
    values = converted(column.values.slice(first, end - first), wanted.value_type)
    return pa.ListArray.from_arrays(offsets, values, type=wanted, mask=gone)


def _texts_of(column: pa.Array) -> pa.Array:
    texts = [None if data is None else str(uuid.UUID(bytes=data)) for data in column.to_pylist()]
    return pa.array(texts, pa.string())
