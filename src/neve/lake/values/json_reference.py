"""The reference decoder of JSON values, one at a time. It defines the format.

The kernel and the fast path may return a row only if this decoder would return the same one; all
other values come here. A value is good if it is one JSON object (or `null`, a row of nulls) in
UTF-8, no object in it has a name twice, it is nested at most `DEPTH_MAX` deep, and every field of
the schema is missing, null or a value of its type. Floating-point numbers are rounded to their type
and timestamps truncated to microseconds; all other values must fit exactly.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import msgspec
import pyarrow as pa

from neve.errors import UnsupportedError
from neve.lake.values.format_contract import no_column_for
from neve.lake.values.json_shape import INT64_MAX, INT64_MIN, Shape, kind_of
from neve.lake.values.times import (
    date_of_text,
    microseconds_of_milliseconds,
    microseconds_of_text,
)
from neve.lake.values.types import TIMESTAMP, is_list, shown

DEPTH_MAX = 100
"""Levels of nested objects and arrays; deeper documents break later readers."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SHOWN_CHARACTERS_MAX = 60
_DECIMAL_TEXT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,6})?", re.ASCII)
_EXACT = Context(prec=200)


class BadValueError(Exception):
    """A value cannot be a row; the message is the reason. Never leaves this package."""


Steps = tuple[tuple[str, str], ...]
"""The path of a place: (kind, name) steps from the top, as `Shape.see_at` takes them."""
Convert = Callable[[Any, list[tuple[Steps, object]]], object]


class ReferenceJsonDecoder:
    """Decodes values for one schema; collects the unknown fields of good rows in `unknown`.

    With `strict`, an unknown field makes a value bad, unless it has only null, `{}` or `[]`.
    """

    def __init__(self, schema: pa.Schema, *, strict: bool = False) -> None:
        self.unknown = Shape()
        self._strict = strict
        self._exact = any(map(_has_decimals, schema.types))
        self._convert = _converter(pa.struct(list(schema)), ())

    def row(self, value: bytes) -> object:
        """Return the row in the form that `pa.array` takes. Raises BadValueError."""
        document = parse(value, exact=self._exact)
        if document is None:
            return None
        if not isinstance(document, dict):
            raise BadValueError(f"an object is expected, not {_named(document)}")
        found: list[tuple[Steps, object]] = []
        row = self._convert(document, found)
        if self._strict:
            _refuse_unknown(found)
        for steps, unknown in found:
            self.unknown.see_at(steps, unknown)
        return row


def _refuse_unknown(found: list[tuple[Steps, object]]) -> None:
    shape = Shape()
    for steps, value in found:
        shape.see_at(steps, value)
    type_ = shape.type()
    if type_ is not None:  # a field with only null, {} or [] needs no column
        raise BadValueError(no_column_for([each.name for each in type_]))


# --- one document


def parse(value: bytes, *, exact: bool = False) -> object:
    """Parse a document; with `exact`, fractions become Decimal. Raises BadValueError."""
    text = value.removeprefix(BYTE_ORDER_MARK)
    if not text:
        raise BadValueError("an empty value is not JSON")
    try:
        document = (_EXACT_DECODER if exact else _DECODER).decode(text)
    except UnicodeDecodeError as error:
        raise BadValueError(f"not UTF-8: {error.reason}") from None
    except msgspec.MsgspecError as error:
        raise BadValueError(str(error)) from None
    except RecursionError:
        raise _too_deep() from None
    # A repeated name is missing in the document, but its colon is in the text. So if the text has
    # only the colons of the document's names and strings, no name is repeated. An escaped colon is
    # in the document's strings but not in the text, and could hide one.
    if text.count(b":") != _colons(document, 1) or b"\\u00" in text:
        _refuse_names_twice(text)
    return document


def _finite(text: str) -> Decimal:
    if not math.isfinite(float(text)):
        raise ValueError(f"the number {_cut(text)} is out of range")
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent that Decimal does not support
        if _ZERO.match(text):
            return Decimal(0)
        return Decimal("-1e-9999" if text.startswith("-") else "1e-9999")  # nearly 0, never exact


_ZERO = re.compile(r"-?0(\.0+)?[eE]")
_DECODER = msgspec.json.Decoder()
_EXACT_DECODER = msgspec.json.Decoder(float_hook=_finite)


def _colons(document: object, depth: int) -> int:
    """Return the number of names in a document plus the number of colons in its string values.

    Raises BadValueError if the document is nested too deep.
    """
    if isinstance(document, str):
        return document.count(":")
    if not isinstance(document, (dict, list)):
        return 0
    if depth > DEPTH_MAX:
        raise _too_deep()
    count = len(document) if isinstance(document, dict) else 0
    for each in document.values() if isinstance(document, dict) else document:
        if isinstance(each, str):
            count += each.count(":")
        elif isinstance(each, (dict, list)):
            count += _colons(each, depth + 1)
    return count


def _too_deep() -> BadValueError:
    return BadValueError(f"nested deeper than {DEPTH_MAX}")


def _refuse_names_twice(text: bytes) -> None:
    def once(pairs: list[tuple[str, object]]) -> None:
        names = [name for name, _ in pairs]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise BadValueError(f"the name {_cut(twice)} stands twice in one object")

    json.loads(text, object_pairs_hook=once, parse_int=len)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}…"


def _named(value: object) -> str:
    kind = kind_of(value)
    if kind in ("object", "array"):
        return f"an {kind}"
    return _cut(msgspec.json.encode(value).decode() if kind == "string" else str(value))


# --- one field


def _has_decimals(type_: pa.DataType) -> bool:
    inner = [type_.field(place).type for place in range(type_.num_fields)]
    return bool(pa.types.is_decimal(type_) or any(map(_has_decimals, inner)))


def _converter(type_: pa.DataType, steps: Steps) -> Convert:
    if pa.types.is_struct(type_):
        return _struct(type_, steps)
    if is_list(type_):
        return _list(type_, steps)
    if pa.types.is_map(type_):
        return _map(type_, steps)
    exact = _leaf(type_, steps)

    def leaf(value: Any, _found: object) -> object:
        if value is None:
            return None
        converted = exact(value)
        if converted is None:
            raise BadValueError(
                f"{_shown(steps)}: {_named(value)} is not of type {_type_name(type_)}"
            )
        return converted

    return leaf


def _shown(steps: Steps) -> str:
    return shown([{"array": "[]", "map": "{}"}.get(kind, name) for kind, name in steps])


def _type_name(type_: pa.DataType) -> str:
    names = {pa.int32(): "int", pa.int64(): "long", pa.float32(): "float", TIMESTAMP: "timestamp"}
    return names.get(type_, str(type_).replace("128", "").replace("32[day]", ""))


def _struct(type_: pa.StructType, steps: Steps) -> Convert:
    fields = {each.name: _converter(each.type, (*steps, ("object", each.name))) for each in type_}

    def struct(value: Any, found: list[tuple[Steps, object]]) -> object:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise BadValueError(f"{_shown(steps)}: {_named(value)} is not an object")
        row = {}
        for name, inner in value.items():
            convert = fields.get(name)
            if convert is None:
                found.append(((*steps, ("object", name)), inner))
            else:
                row[name] = convert(inner, found)
        return row

    return struct


def _list(type_: pa.DataType, steps: Steps) -> Convert:
    element = _converter(type_.value_type, (*steps, ("array", "[]")))

    def elements(value: Any, found: list[tuple[Steps, object]]) -> object:
        if value is None:
            return None
        if not isinstance(value, list):
            raise BadValueError(f"{_shown(steps)}: {_named(value)} is not an array")
        return [element(each, found) for each in value]

    return elements


def _map(type_: pa.MapType, steps: Steps) -> Convert:
    convert = _converter(type_.item_type, (*steps, ("map", "{}")))

    def entries(value: Any, found: list[tuple[Steps, object]]) -> object:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise BadValueError(f"{_shown(steps)}: {_named(value)} is not an object")
        return [(name, convert(inner, found)) for name, inner in value.items()]

    return entries


def _leaf(type_: pa.DataType, steps: Steps) -> Callable[[Any], object]:
    """Return a function that converts a value, or returns None if the type cannot hold it."""
    if pa.types.is_decimal(type_):
        return lambda value: _decimal(value, type_.precision, type_.scale)
    leaves: dict[pa.DataType, Callable[[Any], object]] = {
        pa.bool_(): lambda value: value if isinstance(value, bool) else None,
        pa.int32(): lambda value: _integer(value, -(2**31), 2**31 - 1),
        pa.int64(): lambda value: _integer(value, INT64_MIN, INT64_MAX),
        pa.float32(): _float,
        pa.float64(): _double,
        pa.string(): lambda value: value if isinstance(value, str) else None,
        pa.date32(): lambda value: date_of_text(value) if isinstance(value, str) else None,
        TIMESTAMP: _timestamp,
    }
    if type_ not in leaves:
        raise UnsupportedError(f"{_shown(steps)} is {type_}, which JSON values cannot fill")
    return leaves[type_]


def _integer(value: object, least: int, most: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if least <= value <= most else None


def _double(value: object) -> float | None:
    if isinstance(value, float):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _float(value: object) -> float | None:
    """Return a number that single precision can hold, not yet rounded to it, or None."""
    wide = _double(value)
    if wide is None:
        return None
    narrow = pa.scalar(wide).cast(pa.float32()).as_py()
    return wide if math.isfinite(narrow) else None


def _decimal(value: object, precision: int, scale: int) -> Decimal | None:
    if isinstance(value, str) and _DECIMAL_TEXT.fullmatch(value):
        value = Decimal(value)
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return None
    number = Decimal(value)
    if not number:
        return Decimal(0)
    if number.adjusted() >= precision - scale:
        return None
    try:
        exact = number.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    except InvalidOperation:
        return None
    return exact if exact == number else None


def _timestamp(value: object) -> int | None:
    if isinstance(value, str):
        return microseconds_of_text(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return microseconds_of_milliseconds(value)
