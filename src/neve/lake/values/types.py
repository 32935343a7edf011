"""The Arrow types that a table's column may have: those that Iceberg v2 can hold.

Every schema that this package returns is plain: all fields optional, no large_ types, list elements
named `element`, times in microseconds. `plain_schema` converts a schema from elsewhere to that
form, or raises InvalidError with the field that no table can hold.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from neve.errors import InvalidError

TIMESTAMP = pa.timestamp("us", "UTC")
LOCAL_TIMESTAMP = pa.timestamp("us")
TIME = pa.time64("us")
DECIMAL_PRECISION_MAX = 38

_AS_THEY_ARE = (
    pa.bool_(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    TIME,
)
_NARROWER = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.time32("s"): TIME,
    pa.time32("ms"): TIME,
    pa.date64(): pa.date32(),
}


def list_of(element: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", element))


def map_of(value: pa.DataType) -> pa.DataType:
    return pa.map_(pa.string(), pa.field("value", value))


def struct_of(fields: Sequence[tuple[str, pa.DataType]]) -> pa.StructType:
    return pa.struct([pa.field(name, type_) for name, type_ in fields])


def is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


def shown(path: Sequence[str]) -> str:
    """Return a path for messages: `address.lines[].street`."""
    return ".".join(path).replace(".[]", "[]").replace(".{}", "{}") or "value"


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema in plain form. Raises InvalidError with the field that has none."""
    return pa.schema([_plain_field(field, (field.name,)) for field in schema])


def _plain_field(field: pa.Field, path: tuple[str, ...]) -> pa.Field:
    return pa.field(field.name, plain_type(field.type, path))


def plain_type(type_: pa.DataType, path: tuple[str, ...] = ()) -> pa.DataType:
    if type_ in _AS_THEY_ARE or pa.types.is_fixed_size_binary(type_):
        return type_
    if type_ in _NARROWER:
        return _NARROWER[type_]
    if pa.types.is_timestamp(type_):
        return _plain_timestamp(type_, path)
    if pa.types.is_decimal128(type_) and type_.scale >= 0:
        return type_
    if pa.types.is_struct(type_) and type_.num_fields:
        return pa.struct([_plain_field(field, (*path, field.name)) for field in type_])
    if is_list(type_):
        return list_of(plain_type(type_.value_type, (*path, "[]")))
    if pa.types.is_map(type_):
        key = plain_type(type_.key_type, (*path, "key"))
        return pa.map_(key, pa.field("value", plain_type(type_.item_type, (*path, "{}"))))
    if isinstance(type_, pa.BaseExtensionType):
        return plain_type(type_.storage_type, path)
    raise InvalidError(f"{shown(path)} is {type_}, which no Iceberg column can hold")


def _plain_timestamp(type_: pa.TimestampType, path: tuple[str, ...]) -> pa.DataType:
    if type_.tz is None:
        return LOCAL_TIMESTAMP
    if type_.tz in ("UTC", "Etc/UTC", "+00:00", "Z"):
        return TIMESTAMP
    raise InvalidError(f"{shown(path)} has the time zone {type_.tz}: Iceberg keeps UTC")
