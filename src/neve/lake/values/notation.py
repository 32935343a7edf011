"""Columns in a short notation: `{id: long, price: decimal(10,2), tags: [string]}`.

Braces enclose the fields of a struct, brackets the element of a list, and `map(long)` is a map from
strings to longs. The notation can be text, or mappings and lists that YAML or JSON parsed. Inside
braces and brackets YAML splits an unquoted `decimal(10,2)` at the comma; the parts are joined here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pyarrow as pa

from neve.errors import InvalidError
from neve.lake.values.types import (
    DECIMAL_PRECISION_MAX,
    TIMESTAMP,
    list_of,
    map_of,
    shown,
    struct_of,
)

TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
}
_KNOWN = ", ".join([*TYPES, "decimal(p,s)", "map(type)", "[type]", "{name: type}"])
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)", re.ASCII)
_TOKEN = re.compile(
    r"\s*(?:(decimal\([^)]*\))|(map\s*\()|([{}\[\],:)])|\"((?:[^\"\\]|\\.)*)\"|([^\s{}\[\],:()\"]+))"
)


def columns_of(fields: Mapping[str, object]) -> pa.Schema:
    """Return the schema for a mapping of names to types, as parsed from YAML or JSON."""
    return pa.schema(list(_struct(fields, ())))


def parse_columns(text: str) -> pa.Schema:
    """Return the schema for the notation as text."""
    found = _Reader(text).whole()
    if not isinstance(found, Mapping):
        raise InvalidError(f"the columns {text!r} must stand in braces: {{name: type}}")
    return columns_of(found)


def _type(notation: object, path: tuple[str, ...]) -> pa.DataType:
    if isinstance(notation, Mapping):
        if set(notation) == {"map()"}:
            return map_of(_type(notation["map()"], (*path, "{}")))
        return _struct(notation, path)
    if isinstance(notation, str):
        return _named_type(notation.strip(), path)
    if isinstance(notation, Sequence):
        elements = rejoined(notation)
        if len(elements) == 1:
            return list_of(_type(elements[0], (*path, "[]")))
    raise InvalidError(f"{shown(path)}: {notation!r} is not a type; valid types: {_KNOWN}")


def _struct(fields: Mapping[str, object], path: tuple[str, ...]) -> pa.StructType:
    if not fields:
        raise InvalidError(f"{shown(path)} has no fields: name at least one")
    whole: list[tuple[str, object]] = []
    for name, each in fields.items():
        if each is None and whole and _is_cut(whole[-1][1]):
            # YAML reads the rest of a type, such as `2)`, as a key without a value.
            whole[-1] = (whole[-1][0], f"{whole[-1][1]},{name}")
        else:
            whole.append((str(name), each))
    return struct_of([(name, _type(each, (*path, name))) for name, each in whole])


def rejoined(elements: Sequence[object]) -> list[object]:
    """Join elements of a list that YAML split at a comma in parentheses, as in `decimal(10,2)`."""
    whole: list[object] = []
    for each in elements:
        if isinstance(each, str) and whole and _is_cut(whole[-1]):
            whole[-1] = f"{whole[-1]},{each}"
        else:
            whole.append(each)
    return whole


def _is_cut(text: object) -> bool:
    return isinstance(text, str) and text.count("(") > text.count(")")


def _named_type(text: str, path: tuple[str, ...]) -> pa.DataType:
    if text in TYPES:
        return TYPES[text]
    decimal = _DECIMAL.fullmatch(text)
    if decimal is not None:
        return _decimal(int(decimal[1]), int(decimal[2]), path)
    if _is_cut(text):
        # Of two types with the same rest YAML keeps only one rest.
        raise InvalidError(
            f"{shown(path)}: {text!r} is only a part of a type, because YAML splits text at commas "
            'inside braces: put the type in quotes, such as "decimal(10,2)"'
        )
    if text.startswith(("{", "[", "map")):
        return _type(_Reader(text).whole(), path)
    raise InvalidError(f"{shown(path)}: {text!r} is not a type; valid types: {_KNOWN}")


def _decimal(precision: int, scale: int, path: tuple[str, ...]) -> pa.DataType:
    if not 1 <= precision <= DECIMAL_PRECISION_MAX or scale > precision:
        raise InvalidError(
            f"{shown(path)}: decimal({precision},{scale}) must have 1 to "
            f"{DECIMAL_PRECISION_MAX} digits, and no more behind the point than in all"
        )
    return pa.decimal128(precision, scale)


class _Reader:
    """Parses text to mappings, one-element lists and type names; `map(x)` to `{"map()": x}`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split()
        self._place = 0

    def whole(self) -> object:
        found = self._read()
        if self._place < len(self._tokens):
            raise self._error(self._tokens[self._place])
        return found

    def _split(self) -> list[str]:
        tokens, place = [], 0
        while self._text[place:].strip():
            found = _TOKEN.match(self._text, place)
            if found is None:
                raise self._error(self._text[place:].strip()[:20])
            tokens.append(found[0].strip())
            place = found.end()
        return tokens

    def _read(self) -> object:
        word = self._next()
        if word == "{":
            return self._fields()
        if word == "[":
            element = self._read()
            self._expect("]")
            return [element]
        if word.startswith("map") and word.endswith("("):
            value = self._read()
            self._expect(")")
            return {"map()": value}
        if word in "}],:)":
            raise self._error(word)
        return word.strip('"')

    def _fields(self) -> dict[str, object]:
        fields: dict[str, object] = {}
        while True:
            name = self._next().strip('"')
            self._expect(":")
            if name in fields:
                raise InvalidError(f"the columns {self._text!r} have {name} twice")
            fields[name] = self._read()
            if self._next_of(",", "}") == "}":
                return fields

    def _next(self) -> str:
        if self._place == len(self._tokens):
            raise InvalidError(f"the columns {self._text!r} end too early")
        self._place += 1
        return self._tokens[self._place - 1]

    def _next_of(self, *allowed: str) -> str:
        token = self._next()
        if token not in allowed:
            raise self._error(token)
        return token

    def _expect(self, token: str) -> None:
        self._next_of(token)

    def _error(self, token: str) -> InvalidError:
        return InvalidError(f"the columns {self._text!r} cannot be read at {token!r}")
