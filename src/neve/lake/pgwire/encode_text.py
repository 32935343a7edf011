"""Encodes columns in PostgreSQL's text format, as psql displays them."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.lake.pgwire.types import is_list, scalar_of
from neve.lake.sql.out_of_range_times import is_out_of_range, out_of_range_as_text, texts_of

_SECOND_US = 1_000_000
_MUST_QUOTE = re.compile(rb'[\s{}",\\]')


def text_of(arrow: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    """Return the function that encodes an array of this type as a binary array of text."""
    if pa.types.is_dictionary(arrow):
        inner = text_of(arrow.value_type)
        return lambda array: inner(array.cast(arrow.value_type))
    scalar = scalar_of(arrow)
    if scalar is not None:
        return _SCALARS.get(scalar.name, _plain)
    if is_list(arrow) and scalar_of(arrow.value_type) is not None:
        return lambda array: _array_text(array, text_of(arrow.value_type))
    return json_text


def _plain(array: pa.Array) -> pa.Array:
    return _as_binary(array.cast(pa.string()))


def _as_binary(array: pa.Array) -> pa.Array:
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _bool(array: pa.Array) -> pa.Array:
    return pc.if_else(array, pa.scalar(b"t"), pa.scalar(b"f"))


def _float(array: pa.Array) -> pa.Array:
    text = array.cast(pa.string())
    finite = pc.is_finite(array)
    if pc.all(finite, min_count=0).as_py():
        return _as_binary(text)
    names = pc.if_else(
        pc.is_nan(array), "NaN", pc.if_else(pc.greater(array, 0), "Infinity", "-Infinity")
    )
    return _as_binary(pc.if_else(finite, text, names))


def _numeric(array: pa.Array) -> pa.Array:
    if not pa.types.is_decimal(array.type):
        return _plain(array)
    # Arrow's own cast writes small values with an exponent, unlike PostgreSQL.
    values = [None if v is None else format(v, "f").encode() for v in array.to_pylist()]
    return pa.array(values, pa.binary())


def _bytea(array: pa.Array) -> pa.Array:
    """Encode as hexadecimal: the whole buffer at once, with doubled offsets."""
    array = _as_binary(array)
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int32)
    offsets = offsets[array.offset : array.offset + len(array) + 1]
    first, end = (int(offsets[0]), int(offsets[-1])) if len(array) else (0, 0)
    data = array.buffers()[2]
    digits = b"" if data is None else bytes(memoryview(data)[first:end].hex(), "ascii")
    doubled = np.ascontiguousarray((offsets - first) * 2, dtype=np.int32)
    buffers = [None, pa.py_buffer(doubled), pa.py_buffer(digits)]
    hexadecimal = pa.Array.from_buffers(pa.binary(), len(array), buffers)
    shown = pc.binary_join_element_wise(b"\\x", hexadecimal, b"")
    return pc.if_else(array.is_valid(), shown, pa.scalar(None, pa.binary()))


def _timestamp(array: pa.Array) -> pa.Array:
    """Format as `2026-01-31 12:00:00.5` in UTC, with `+00` if the column has a time zone."""
    if is_out_of_range(array):
        return _as_binary(pa.array(texts_of(array, " ", "+00"), pa.string()))
    zoned = array.type.tz is not None
    counted = _microseconds(array)
    text = _shown_time(counted.cast(pa.timestamp("us")), "%Y-%m-%d %H:%M:%S")
    return pc.binary_join_element_wise(text, b"+00", b"") if zoned else text


def _microseconds(array: pa.Array) -> pa.Array:
    """Return microseconds since 1970 in UTC, as int64."""
    wanted = pa.timestamp("us", array.type.tz)
    return array.cast(wanted, safe=False).cast(pa.int64())


def _shown_time(array: pa.Array, form: str) -> pa.Array:
    """Format times. Arrow writes six decimal places; PostgreSQL drops trailing zeros."""
    text = pc.strftime(array, format=form)
    # Arrow always writes the decimal point, so the zeros of a full second are not trimmed.
    return _as_binary(pc.utf8_rtrim(pc.utf8_rtrim(text, characters="0"), characters="."))


def _time(array: pa.Array) -> pa.Array:
    counted = array.cast(pa.time64("us"), safe=False).cast(pa.int64())
    return _shown_time(counted.cast(pa.timestamp("us")), "%H:%M:%S")


def _date(array: pa.Array) -> pa.Array:
    if is_out_of_range(array):
        return _as_binary(pa.array(texts_of(array, "", ""), pa.string()))
    return _as_binary(array.cast(pa.date32(), safe=False).cast(pa.string()))


def _uuid(array: pa.Array) -> pa.Array:
    def shown(value: Any) -> bytes | None:
        return None if value is None else str(value).encode()

    return pa.array([shown(value) for value in array.to_pylist()], pa.binary())


def _interval(array: pa.Array) -> pa.Array:
    counted = array.cast(pa.duration("us"), safe=False).cast(pa.int64())

    def shown(count: int | None) -> bytes | None:
        if count is None:
            return None
        seconds, micros = divmod(abs(count), _SECOND_US)
        sign = "-" if count < 0 else ""
        fraction = f".{micros:06d}".rstrip("0") if micros else ""
        hours, rest = divmod(seconds, 3600)
        return f"{sign}{hours:02d}:{rest // 60:02d}:{rest % 60:02d}{fraction}".encode()

    return pa.array([shown(count) for count in counted.to_pylist()], pa.binary())


_SCALARS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "bool": _bool,
    "float4": _float,
    "float8": _float,
    "numeric": _numeric,
    "text": _as_binary,
    "bytea": _bytea,
    "timestamp": _timestamp,
    "timestamptz": _timestamp,
    "time": _time,
    "date": _date,
    "uuid": _uuid,
    "interval": _interval,
}


def elements(array: pa.Array, encode: Callable[[pa.Array], pa.Array]) -> list[list[Any] | None]:
    """Return the encoded elements of each list; None for a NULL list."""
    array = array.cast(pa.list_(array.type.value_type))
    offsets = array.offsets.to_pylist()
    first, end = (offsets[0], offsets[-1]) if len(array) else (0, 0)
    flat = encode(array.values.slice(first, end - first)).to_pylist()
    valid = array.is_valid().to_pylist()
    return [
        flat[low - first : high - first] if there else None
        for there, low, high in zip(valid, offsets, offsets[1:], strict=False)
    ]


def _array_text(array: pa.Array, encode: Callable[[pa.Array], pa.Array]) -> pa.Array:
    def shown(values: list[bytes | None] | None) -> bytes | None:
        return None if values is None else b"{" + b",".join(map(_element_text, values)) + b"}"

    return pa.array([shown(values) for values in elements(array, encode)], pa.binary())


def _element_text(value: bytes | None) -> bytes:
    if value is None:
        return b"NULL"
    if not value or _MUST_QUOTE.search(value) or value.upper() == b"NULL":
        return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
    return value


def _json_extra(value: Any) -> Any:
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return str(value)


_JSON = msgspec.json.Encoder(enc_hook=_json_extra, decimal_format="number")


def json_text(array: pa.Array) -> pa.Array:
    """Encode nested values as JSON, with bytes in base64 and times in ISO 8601."""
    try:
        values = array.to_pylist(maps_as_pydicts="lossy")
    except (OverflowError, ValueError):
        values = out_of_range_as_text(array).to_pylist(maps_as_pydicts="lossy")
    except TypeError:  # a map whose keys are structs: encode it as a list of pairs
        values = array.to_pylist()
    encoded = [None if value is None else _JSON.encode(value) for value in values]
    return pa.array(encoded, pa.binary())
