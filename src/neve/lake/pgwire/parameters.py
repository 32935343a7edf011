"""Decodes parameter values from text or binary format to Python values."""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

from neve.lake.pgwire.encode_binary import EPOCH_DAYS, EPOCH_US
from neve.lake.pgwire.sqlstate import (
    FEATURE_NOT_SUPPORTED,
    INVALID_BINARY,
    INVALID_TEXT,
    SqlError,
)
from neve.lake.pgwire.types import ELEMENT_OF, type_of_oid
from neve.lake.pgwire.wire import BINARY

_TRUE = ("t", "true", "y", "yes", "on", "1")
_FALSE = ("f", "false", "n", "no", "off", "0")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIMENSIONS_MAX = 1
_SPACES = " \t\n\r\v\f"
_INTEGER = re.compile(r"\s*[+-]?[0-9]{1,20}\s*")


def decode(value: bytes | None, oid: int, form: int) -> Any:
    """Decode one parameter. An open (0) or unknown type is decoded as text."""
    if value is None:
        return None
    try:
        if oid in ELEMENT_OF:
            element = ELEMENT_OF[oid].oid
            return _binary_array(value) if form == BINARY else _text_array(value.decode(), element)
        if form == BINARY:
            return _binary(value, oid)
        return _text(value.decode(), oid)
    except (ValueError, ArithmeticError, struct.error, IndexError) as error:
        named = type_of_oid(oid)
        code = INVALID_BINARY if form == BINARY else INVALID_TEXT
        shown = value[:40].decode(errors="replace")
        kind = named.sql_name if named else "text"
        raise SqlError(code, f'invalid input for type {kind}: "{shown}"') from error


def placeholder(oid: int) -> Any:
    """Return a value of a type, to analyse a query before its values are bound; None for text."""
    if oid in ELEMENT_OF:
        return [_PLACEHOLDERS.get(ELEMENT_OF[oid].name, "")]  # an empty list would have no type
    return _PLACEHOLDERS.get(_name_of(oid))


_PLACEHOLDERS: dict[str, Any] = {
    "bool": False,
    "int2": 0,
    "int4": 0,
    "int8": 0,
    "float4": 0.0,
    "float8": 0.0,
    "numeric": Decimal(0),
    "bytea": b"",
    "date": date(1970, 1, 1),
    "time": time(),
    "timestamp": datetime(1970, 1, 1),  # noqa: DTZ001 (the type has no zone)
    "timestamptz": _EPOCH,
}


def _name_of(oid: int) -> str:
    known = type_of_oid(oid)
    return "text" if known is None else known.name


def _text(value: str, oid: int) -> Any:
    return _FROM_TEXT.get(_name_of(oid), str)(value)


def _binary(value: bytes, oid: int) -> Any:
    name = _name_of(oid)
    if name in _FORMATS:
        (number,) = struct.unpack(_FORMATS[name], value)
        return number
    return _FROM_BINARY.get(name, bytes.decode)(value)


def _bool(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered in _TRUE or lowered in _FALSE:
        return lowered in _TRUE
    raise ValueError(value)


def _integer(first: int, end: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        number = int(value) if _INTEGER.fullmatch(value) else None
        if number is None or not first <= number < end:
            raise ValueError(value)
        return number

    return read


def _decimal(value: str) -> Decimal:
    try:
        return Decimal(value.strip())
    except InvalidOperation as error:
        raise ValueError(value) from error


def _bytea(value: str) -> bytes:
    if value.startswith("\\x"):
        return bytes.fromhex(value[2:])
    out, at = bytearray(), 0
    raw = value.encode()
    while at < len(raw):
        if raw[at] != 0x5C:
            out.append(raw[at])
            at += 1
        elif raw[at + 1] == 0x5C:
            out.append(0x5C)
            at += 2
        else:
            out.append(int(raw[at + 1 : at + 4], 8))
            at += 4
    return bytes(out)


def _timestamptz(value: str) -> datetime:
    moment = datetime.fromisoformat(value.strip())
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _timestamp(value: str) -> datetime:
    """Parse and drop the time zone, as PostgreSQL does."""
    return datetime.fromisoformat(value.strip()).replace(tzinfo=None)


_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "bool": _bool,
    "int2": _integer(-(2**15), 2**15),
    "int4": _integer(-(2**31), 2**31),
    "int8": _integer(-(2**63), 2**63),
    "oid": _integer(0, 2**32),
    "float4": float,
    "float8": float,
    "numeric": _decimal,
    "bytea": _bytea,
    "uuid": lambda value: str(uuid.UUID(value)),
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
}


def _moment(value: bytes) -> datetime:
    (count,) = struct.unpack(">q", value)
    return _EPOCH + timedelta(microseconds=count + EPOCH_US)


def _time_of_day(value: bytes) -> time:
    (count,) = struct.unpack(">q", value)
    return (_EPOCH + timedelta(microseconds=count)).time()


def _day(value: bytes) -> date:
    (count,) = struct.unpack(">i", value)
    return date(1970, 1, 1) + timedelta(days=count + EPOCH_DAYS)


def _numeric(value: bytes) -> Decimal:
    count, weight, sign, scale = struct.unpack_from(">hhHH", value)
    if sign == 0xC000:
        return Decimal("NaN")
    if sign not in (0, 0x4000) or len(value) != 8 + 2 * count:
        raise ValueError("not a numeric")
    digits = struct.unpack_from(f">{count}h", value, 8)
    if any(not 0 <= digit < 10_000 for digit in digits):
        raise ValueError("not a numeric")
    text = "".join(f"{digit:04d}" for digit in digits)
    point = 4 * (weight + 1)
    whole = text[:point].ljust(point, "0") if point > 0 else ""
    fraction = text[point:] if point > 0 else "0" * -point + text
    shown = f"{'-' if sign else ''}{whole or '0'}.{fraction[:scale].ljust(scale, '0')}"
    return Decimal(shown)  # exact; arithmetic would round


def _json(value: bytes) -> str:
    return (value[1:] if value[:1] == b"\x01" else value).decode()


_FORMATS = {
    "bool": ">?",
    "int2": ">h",
    "int4": ">i",
    "int8": ">q",
    "oid": ">I",
    "float4": ">f",
    "float8": ">d",
}
_FROM_BINARY: dict[str, Callable[[bytes], Any]] = {
    "numeric": _numeric,
    "bytea": bytes,
    "date": _day,
    "time": _time_of_day,
    "timestamp": lambda value: _moment(value).replace(tzinfo=None),
    "timestamptz": _moment,
    "uuid": lambda value: str(uuid.UUID(bytes=value)),
    "jsonb": _json,
}


def _nested() -> SqlError:
    return SqlError(
        FEATURE_NOT_SUPPORTED, "parameters cannot be arrays of arrays: pass a one-dimensional array"
    )


def _binary_array(value: bytes) -> list[Any]:
    dimensions, _, element = struct.unpack_from(">iiI", value)
    if dimensions == 0:
        return []
    if dimensions > _DIMENSIONS_MAX:
        raise _nested()
    (count, _lower) = struct.unpack_from(">ii", value, 12)
    found: list[Any] = []
    at = 20
    for _ in range(count):
        (size,) = struct.unpack_from(">i", value, at)
        at += 4
        if size < 0:
            found.append(None)
            continue
        if at + size > len(value):
            raise ValueError("array value is truncated")
        found.append(_binary(value[at : at + size], element))
        at += size
    return found


def _text_array(text: str, element: int) -> list[Any]:
    """Decode a one-dimensional array such as `{1,2,NULL,"a b"}`."""
    if not (text.startswith("{") and text.endswith("}")):
        raise ValueError(text)
    inside, found, at = text[1:-1], [], 0
    while at < len(inside):
        if inside[at] == "{":
            raise _nested()
        item, quoted, at = _array_item(inside, at)
        is_null = not quoted and item.upper() == "NULL"
        found.append(None if is_null else _text(item, element))
    return found


def _array_item(inside: str, at: int) -> tuple[str, bool, int]:
    """Return the item at `at`, whether it is quoted, and the start of the next item."""
    if inside[at] != '"':
        end = inside.find(",", at)
        end = len(inside) if end < 0 else end
        return inside[at:end].strip(_SPACES), False, end + 1
    parts: list[str] = []
    at += 1
    while inside[at] != '"':
        at += inside[at] == "\\"
        parts.append(inside[at])
        at += 1
    return "".join(parts), True, at + 2
