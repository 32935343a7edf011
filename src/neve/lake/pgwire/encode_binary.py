"""Encodes columns in PostgreSQL's binary format: big-endian, with times relative to 2000."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.lake.pgwire.encode_text import elements, json_text, text_of
from neve.lake.pgwire.types import is_list, scalar_of

EPOCH_DAYS = 10_957
"""Days from 1970 to 2000-01-01, PostgreSQL's epoch."""
EPOCH_US = EPOCH_DAYS * 86_400_000_000
_NUMERIC_NEGATIVE = 0x4000
_NUMERIC_NAN = struct.pack(">hhHh", 0, 0, 0xC000, 0)


def binary_of(arrow: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    """Return the function that encodes an array of this type as a binary array."""
    if pa.types.is_dictionary(arrow):
        inner = binary_of(arrow.value_type)
        return lambda array: inner(array.cast(arrow.value_type))
    scalar = scalar_of(arrow)
    if scalar is not None:
        return _SCALARS.get(scalar.name, text_of(arrow))
    if is_list(arrow):
        element = scalar_of(arrow.value_type)
        if element is not None:
            return lambda array: _array(array, binary_of(arrow.value_type), element.oid)
    return lambda array: pc.binary_join_element_wise(b"\x01", json_text(array), b"")


def _numbers(array: pa.Array, kind: str) -> pa.Array:
    """Encode numbers in a fixed-width format such as `>i4`."""
    values = pc.fill_null(array, 0).to_numpy(zero_copy_only=False).astype(kind)
    width = values.dtype.itemsize
    offsets = np.arange(0, (len(array) + 1) * width, width, dtype=np.int32)
    data = pa.py_buffer(np.ascontiguousarray(values).view(np.uint8))
    flat = pa.Array.from_buffers(pa.binary(), len(array), [None, pa.py_buffer(offsets), data])
    if array.null_count == 0:
        return flat
    return pc.if_else(array.is_valid(), flat, pa.scalar(None, pa.binary()))


def _of(kind: str) -> Callable[[pa.Array], pa.Array]:
    return lambda array: _numbers(array, kind)


def _bool(array: pa.Array) -> pa.Array:
    return pc.if_else(array, pa.scalar(b"\x01"), pa.scalar(b"\x00"))


def _timestamp(array: pa.Array) -> pa.Array:
    counted = array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(pa.int64())
    return _numbers(pc.subtract(counted, EPOCH_US), ">i8")


def _date(array: pa.Array) -> pa.Array:
    days = array.cast(pa.date32(), safe=False).cast(pa.int32())
    return _numbers(pc.subtract(days, pa.scalar(EPOCH_DAYS, pa.int32())), ">i4")


def _time(array: pa.Array) -> pa.Array:
    return _numbers(array.cast(pa.time64("us"), safe=False).cast(pa.int64()), ">i8")


def _interval(array: pa.Array) -> pa.Array:
    counted = array.cast(pa.duration("us"), safe=False).cast(pa.int64())
    days_and_months = pa.scalar(bytes(8))
    return pc.binary_join_element_wise(_numbers(counted, ">i8"), days_and_months, b"")


def _uuid(array: pa.Array) -> pa.Array:
    return array.storage.cast(pa.binary())


def _bytes(array: pa.Array) -> pa.Array:
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _numeric(array: pa.Array) -> pa.Array:
    scale = array.type.scale if pa.types.is_decimal(array.type) else 0
    values = [
        None if value is None else numeric_bytes(Decimal(value), max(0, scale))
        for value in array.to_pylist()
    ]
    return pa.array(values, pa.binary())


def numeric_bytes(value: Decimal, scale: int) -> bytes:
    """Encode a numeric: its base-10,000 digits, the weight of the first digit, sign and scale."""
    if not value.is_finite():
        return _NUMERIC_NAN
    # abs() would round to the precision of the decimal context.
    whole, _, fraction = format(value.copy_abs(), "f").partition(".")
    whole = whole.lstrip("0")
    whole = whole.rjust(-(-len(whole) // 4) * 4, "0")
    fraction = fraction.ljust(-(-len(fraction) // 4) * 4, "0")
    text = whole + fraction
    digits = [int(text[at : at + 4]) for at in range(0, len(text), 4)]
    weight = len(whole) // 4 - 1
    while digits and digits[0] == 0:
        digits.pop(0)
        weight -= 1
    while digits and digits[-1] == 0:
        digits.pop()
    sign = _NUMERIC_NEGATIVE if value < 0 else 0
    header = struct.pack(">hhHH", len(digits), weight if digits else 0, sign, scale)
    return header + struct.pack(f">{len(digits)}h", *digits)


def _array(array: pa.Array, encode: Callable[[pa.Array], pa.Array], element_oid: int) -> pa.Array:
    def packed(values: list[bytes | None] | None) -> bytes | None:
        if values is None:
            return None
        has_null = int(any(value is None for value in values))
        if not values:
            return struct.pack(">iiI", 0, 0, element_oid)
        parts = [struct.pack(">iiIii", 1, has_null, element_oid, len(values), 1)]
        for value in values:
            parts.append(b"\xff\xff\xff\xff" if value is None else struct.pack(">i", len(value)))
            parts.append(value or b"")
        return b"".join(parts)

    return pa.array([packed(values) for values in elements(array, encode)], pa.binary())


_SCALARS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "bool": _bool,
    "int2": _of(">i2"),
    "int4": _of(">i4"),
    "int8": _of(">i8"),
    "float4": _of(">f4"),
    "float8": _of(">f8"),
    "numeric": _numeric,
    "text": _bytes,
    "bytea": _bytes,
    "timestamp": _timestamp,
    "timestamptz": _timestamp,
    "time": _time,
    "date": _date,
    "interval": _interval,
    "uuid": _uuid,
}
