"""The reference decoder of Avro values, one at a time.

fastavro reads the values. It accepts some invalid ones (a negative index counts from the end, any
byte is a boolean, trailing bytes are ignored), so a value is accepted immediately only if writing
the record again gives the same bytes. Otherwise `_check` walks over the value and decides, because
arrays, maps and numbers have more than one valid encoding.
"""

from __future__ import annotations

import io
from typing import Any

import fastavro

from neve.lake.values.evolution import Path
from neve.lake.values.json_reference import BadValueError
from neve.lake.values.types import shown

_VARINT_BYTES_MAX = 10


class ReferenceAvroDecoder:
    """Decodes values of one schema, which is in the form of `AvroColumns.judged`."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._parsed = fastavro.parse_schema(schema)

    def record(self, value: bytes) -> Any:
        """Return the record, without logical types. Raises BadValueError with the reason."""
        source = io.BytesIO(value)
        try:
            record = fastavro.schemaless_reader(source, self._parsed, None)
            again = io.BytesIO()
            fastavro.schemaless_writer(again, self._parsed, record)
            if again.getvalue() == value:
                return record
        except Exception:  # fastavro raises any exception; `_check` gives a reason
            self._check(value)
            raise BadValueError("the value does not follow its schema") from None
        self._check(value)
        return record

    def _check(self, value: bytes) -> None:
        walk = _Walk(value)
        walk.over(self._schema, ())
        if walk.place != len(value):
            raise BadValueError(f"{len(value) - walk.place} bytes are left over behind the record")


class _Walk:
    """Checks a value against its schema, without building a record."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self.place = 0

    def over(self, schema: Any, path: Path) -> None:
        if isinstance(schema, list):
            self.over(schema[self._index(len(schema), "a union's branch", path)], path)
        elif isinstance(schema, str):
            self._primitive(schema, path)
        elif schema["type"] == "record":
            for each in schema["fields"]:
                self.over(each["type"], (*path, each["name"]))
        elif schema["type"] == "enum":
            self._index(len(schema["symbols"]), "a symbol", path)
        elif schema["type"] == "fixed":
            self._skip(schema["size"], path)
        elif schema["type"] == "array":
            self._blocks(schema["items"], path, named=False)
        else:
            self._blocks(schema["values"], path, named=True)

    def _primitive(self, kind: str, path: Path) -> None:
        if kind == "boolean":
            if self._skip(1, path) not in (b"\0", b"\1"):
                raise BadValueError(f"{shown(path)}: a boolean is 0 or 1")
        elif kind in ("int", "long"):
            bits = 31 if kind == "int" else 63
            if not -(2**bits) <= self._number(path) < 2**bits:
                raise BadValueError(f"{shown(path)}: a number past what {kind} holds")
        elif kind in ("float", "double"):
            self._skip(4 if kind == "float" else 8, path)
        elif kind != "null":
            self._text(path, checked=kind == "string")

    def _text(self, path: Path, *, checked: bool) -> bytes:
        found = self._skip(self._number(path), path)
        try:
            found.decode() if checked else None
        except UnicodeDecodeError:
            raise BadValueError(f"{shown(path)}: not UTF-8") from None
        return found

    def _blocks(self, item: Any, path: Path, *, named: bool) -> None:
        names: set[bytes] = set()
        while (count := self._number(path)) != 0:
            if count < 0:
                self._number(path)
            for _ in range(abs(count)):
                if named:
                    name = self._text((*path, "key"), checked=True)
                    if name in names:
                        raise BadValueError(f"{shown(path)}: the key {name!r} stands twice")
                    names.add(name)
                self.over(item, (*path, "{}" if named else "[]"))

    def _index(self, count: int, what: str, path: Path) -> int:
        index = self._number(path)
        if not 0 <= index < count:
            raise BadValueError(f"{shown(path)}: {what} is {index} of {count}")
        return index

    def _number(self, path: Path) -> int:
        bits = 0
        for shift in range(_VARINT_BYTES_MAX):
            byte = self._skip(1, path)[0]
            bits |= (byte & 0x7F) << (7 * shift)
            if byte < 0x80:
                return (bits >> 1) ^ -(bits & 1)
        raise BadValueError(f"{shown(path)}: a number of more than {_VARINT_BYTES_MAX} bytes")

    def _skip(self, count: int, path: Path) -> bytes:
        if count < 0:
            raise BadValueError(f"{shown(path)}: a length of {count}")
        if count > len(self._value) - self.place:
            raise BadValueError(f"{shown(path)}: the value ends too early")
        self.place += count
        return self._value[self.place - count : self.place]
