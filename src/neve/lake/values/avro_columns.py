"""Converts the plain types that the Avro decoders return to the types of the columns.

The decoders ignore logical types. This module converts counts of days to dates, counts of milli-
and microseconds to times and timestamps, and big-endian bytes to decimals. A value outside the
range of its column's type raises ArrowInvalid; nothing is rounded or truncated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.lake.values.avro_schema import AvroColumns
from neve.lake.values.evolution import Path
from neve.lake.values.nested_cast import cast_nested
from neve.lake.values.times import MICROSECONDS_MAX, MICROSECONDS_MIN
from neve.lake.values.types import shown

_DAY_MICROSECONDS = 86_400_000_000
_DAY_MIN, _DAY_MAX = (each // _DAY_MICROSECONDS for each in (MICROSECONDS_MIN, MICROSECONDS_MAX))
_YEARS = "outside the years 1 to 9999"
_DECIMAL_BYTES = 16


def with_logical_types(stored: pa.StructArray, columns: AvroColumns) -> pa.StructArray:
    """Convert rows from the decoders to rows of the schema's columns. Raises ArrowInvalid."""

    def leaf(array: pa.Array, target: pa.DataType, path: Path) -> pa.Array:
        name = columns.logical.get(path)
        if name is not None:
            return _logical(array, target, name, path)
        if array.type == target:
            if pa.types.is_string(target):
                array.validate(full=True)
            return array
        if pa.types.is_string(array.type) and pa.types.is_binary(target):
            return _bytes_of(array)
        raise pa.ArrowInvalid(f"{shown(path)} was read as {array.type}, not {target}")

    return cast_nested(stored, columns.columns, leaf)


def _bytes_of(text: pa.StringArray) -> pa.BinaryArray:
    """Return bytes that were decoded as text as a binary array, without a copy."""
    return pa.Array.from_buffers(
        pa.binary(), len(text), text.buffers(), text.null_count, text.offset
    )


def _logical(array: pa.Array, target: pa.DataType, name: str, path: Path) -> pa.Array:
    if name == "decimal":
        raw = _bytes_of(array) if pa.types.is_string(array.type) else array
        return _decimals(raw.cast(pa.binary()), target, path)
    if name == "date":
        _refuse_outside(array, _DAY_MIN, _DAY_MAX, f"{shown(path)}: a date {_YEARS}")
        return array.view(target)
    counts = array.cast(pa.int64())
    if name.endswith("millis"):
        counts = pc.multiply_checked(counts, pa.scalar(1000, pa.int64()))
    if name.startswith("time-"):
        _refuse_outside(counts, 0, _DAY_MICROSECONDS - 1, f"{shown(path)}: a time outside the day")
    else:
        _refuse_outside(
            counts, MICROSECONDS_MIN, MICROSECONDS_MAX, f"{shown(path)}: a timestamp {_YEARS}"
        )
    return counts.view(target)


def _refuse_outside(counts: pa.Array, least: int, most: int, reason: str) -> None:
    found = pc.min_max(counts)
    if found["min"].is_valid and not (
        found["min"].as_py() >= least and found["max"].as_py() <= most
    ):
        raise pa.ArrowInvalid(reason)


def _decimals(raw: pa.BinaryArray, target: pa.Decimal128Type, path: Path) -> pa.Array:
    """Convert big-endian two's complement integers of any length to decimals of the target type."""
    filled = raw.fill_null(b"\0") if raw.null_count else raw
    lengths = pc.binary_length(filled).to_numpy(zero_copy_only=False)
    if len(raw) and (lengths.max() > _DECIMAL_BYTES or lengths.min() < 1):
        return _odd_decimals(raw, target, path)
    data = np.frombuffer(filled.buffers()[2] or b"", np.uint8)
    ends = np.frombuffer(filled.buffers()[1], np.int32)[filled.offset + 1 :][: len(raw)]
    back = np.arange(_DECIMAL_BYTES)
    inside = back < lengths[:, None]
    places = np.where(inside, ends[:, None].astype(np.int64) - 1 - back, 0)
    signs = np.where(data[ends - lengths] >= 128, 255, 0).astype(np.uint8)
    little = np.where(inside, data[places], signs[:, None]).astype(np.uint8)
    wide = pa.Array.from_buffers(
        pa.decimal128(38, target.scale), len(raw), [None, pa.py_buffer(little.tobytes())]
    )
    exact = _within_precision(wide, target, path)
    return pc.if_else(raw.is_null(), pa.scalar(None, target), exact) if raw.null_count else exact


def _within_precision(wide: pa.Array, target: pa.Decimal128Type, path: Path) -> pa.Array:
    try:
        # 128 bits can hold more than 38 digits, which `from_buffers` does not check.
        wide.validate(full=True)
        return wide.cast(target)
    except pa.ArrowInvalid:
        raise pa.ArrowInvalid(f"{shown(path)}: more digits than {target} holds") from None


def _odd_decimals(raw: pa.BinaryArray, target: pa.Decimal128Type, path: Path) -> pa.Array:
    """Convert values one by one if some are empty or longer than Arrow's 16 bytes.

    A longer value is valid if it is only padded. An empty one raises ArrowInvalid.
    """
    from decimal import Context

    context = Context(prec=100)

    def exact(value: Any) -> Any:
        if value is None:
            return None
        if not value:
            raise pa.ArrowInvalid(f"{shown(path)}: a decimal of no bytes")
        number = int.from_bytes(value, "big", signed=True)
        if abs(number) >= 10**target.precision:
            raise pa.ArrowInvalid(f"{shown(path)}: more digits than {target} holds")
        return context.create_decimal(number).scaleb(-target.scale, context)

    return pa.array([exact(value) for value in raw.to_pylist()], target)
