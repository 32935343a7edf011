"""Converts an Avro schema to columns, and to the schemas for the two decoders.

Both decoders get the schema without logical types, so that they return the same plain numbers and
bytes; `avro_columns.py` then converts those to dates, times and decimals. The names of records,
enums and fixed types are replaced by generated ones, which is safe because encoded values contain
no names. Every supported type takes at least one byte, so the size of a value limits how many
elements it can claim to have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from neve.errors import InvalidError
from neve.lake.values.evolution import Path
from neve.lake.values.types import (
    DECIMAL_PRECISION_MAX,
    LOCAL_TIMESTAMP,
    TIME,
    TIMESTAMP,
    list_of,
    map_of,
    shown,
)

PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): TIME,
    ("long", "time-micros"): TIME,
    ("long", "timestamp-millis"): TIMESTAMP,
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "local-timestamp-millis"): LOCAL_TIMESTAMP,
    ("long", "local-timestamp-micros"): LOCAL_TIMESTAMP,
}
_PROMOTED = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}


@dataclass(frozen=True)
class AvroColumns:
    """The columns of an Avro schema, and the schemas for the decoders.

    `columns` is the type of the resulting rows, `stored` the type of the decoders' records, and
    `logical` has the logical types by path. `judged` is the schema for fastavro. `fast` is the one
    for pyruhvro, or None if pyruhvro cannot read the values. It has strings in place of bytes,
    which Avro encodes in the same way.
    """

    columns: pa.StructType
    stored: pa.StructType
    logical: dict[Path, str]
    judged: Any
    fast: str | None


def avro_columns(schema: Any, referenced: Mapping[str, Any] | None = None) -> AvroColumns:
    """Convert a parsed schema. Raises InvalidError for a field that no column can hold.

    `referenced` has the parsed schemas of types that are defined elsewhere, by full name.
    """
    reader = _Reader()
    for name, each in (referenced or {}).items():
        reader.add(name, each)
    found = reader.read(schema, (), "")
    if not pa.types.is_struct(found.column):
        raise InvalidError("an Avro schema of values must be a record: its fields are the columns")
    fast = None if reader.judge_only else json.dumps(_for_pyruhvro(found.schema))
    return AvroColumns(found.column, found.stored, reader.logical, found.schema, fast)


@dataclass(frozen=True)
class _Found:
    column: pa.DataType
    stored: pa.DataType
    schema: Any


@dataclass
class _Reader:
    logical: dict[Path, str] = field(default_factory=dict)
    judge_only: bool = False
    _named: dict[str, tuple[Any, str]] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _count: int = 0

    def add(self, full: str, schema: Any) -> None:
        """Add a named type that is defined outside of any namespace."""
        self._named[full] = (schema, "")

    def read(self, schema: Any, path: Path, namespace: str) -> _Found:
        if isinstance(schema, list):
            return self._union(schema, path, namespace)
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return _Found(PRIMITIVES[schema], PRIMITIVES[schema], schema)
            return self._reference(schema, path, namespace)
        if not isinstance(schema, Mapping) or "type" not in schema:
            raise InvalidError(f"{shown(path)}: {schema!r} is not an Avro type")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.read(kind, path, namespace)
        complex_kinds = {
            "record": self._record,
            "error": self._record,
            "enum": self._enum,
            "fixed": self._fixed,
            "array": self._array,
            "map": self._map,
        }
        if kind in complex_kinds:
            return complex_kinds[kind](schema, path, namespace)
        return self._logical(schema, kind, path, namespace)

    def _reference(self, name: str, path: Path, namespace: str) -> _Found:
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        known = full if full in self._named else name
        if known in self._open:
            raise InvalidError(f"{shown(path)}: {known} holds itself, which no column can")
        if known not in self._named:
            raise InvalidError(f"{shown(path)}: {name!r} is not an Avro type")
        schema, inside = self._named[known]
        return self.read(schema, path, inside)

    def _name(self, schema: Mapping[str, Any], namespace: str) -> tuple[str, str]:
        """Return the full name and the namespace inside; register the type for references to it."""
        name = str(schema.get("name", ""))
        inside = name.rpartition(".")[0] or str(schema.get("namespace", namespace))
        full = name if "." in name or not inside else f"{inside}.{name}"
        self._named[full] = (schema, namespace)
        return full, inside

    def _new_name(self) -> str:
        self._count += 1
        return f"n{self._count}"

    def _record(self, schema: Mapping[str, Any], path: Path, namespace: str) -> _Found:
        full, inside = self._name(schema, namespace)
        if full in self._open:
            raise InvalidError(f"{shown(path)}: {full} holds itself, which no column can")
        if not schema.get("fields"):
            raise InvalidError(f"{shown(path)}: the record {full} has no fields")
        self._open.append(full)
        fields = [
            (each["name"], self.read(each["type"], (*path, each["name"]), inside))
            for each in schema["fields"]
        ]
        self._open.pop()
        plain = [{"name": name, "type": found.schema} for name, found in fields]
        return _Found(
            pa.struct([pa.field(name, found.column) for name, found in fields]),
            pa.struct([pa.field(name, found.stored) for name, found in fields]),
            {"type": "record", "name": self._new_name(), "fields": plain},
        )

    def _enum(self, schema: Mapping[str, Any], _path: Path, namespace: str) -> _Found:
        self._name(schema, namespace)
        plain = {"type": "enum", "name": self._new_name(), "symbols": list(schema["symbols"])}
        return _Found(pa.string(), pa.string(), plain)

    def _fixed(self, schema: Mapping[str, Any], path: Path, namespace: str) -> _Found:
        self._name(schema, namespace)
        self.judge_only = True
        size = int(schema["size"])
        if size < 1:
            raise InvalidError(f"{shown(path)}: a fixed of {size} bytes holds nothing")
        plain = {"type": "fixed", "name": self._new_name(), "size": size}
        stored = pa.binary(size)
        if schema.get("logicalType") == "decimal":
            return _Found(self._decimal(schema, path), stored, plain)
        return _Found(stored, stored, plain)

    def _array(self, schema: Mapping[str, Any], path: Path, namespace: str) -> _Found:
        found = self.read(schema["items"], (*path, "[]"), namespace)
        plain = {"type": "array", "items": found.schema}
        return _Found(list_of(found.column), list_of(found.stored), plain)

    def _map(self, schema: Mapping[str, Any], path: Path, namespace: str) -> _Found:
        found = self.read(schema["values"], (*path, "{}"), namespace)
        plain = {"type": "map", "values": found.schema}
        return _Found(map_of(found.column), map_of(found.stored), plain)

    def _logical(self, schema: Mapping[str, Any], kind: str, path: Path, namespace: str) -> _Found:
        found = self.read(kind, path, namespace)
        name = schema.get("logicalType")
        if kind == "bytes" and name == "decimal":
            return _Found(self._decimal(schema, path), found.stored, found.schema)
        column = _LOGICAL.get((kind, str(name)))
        if column is None:  # Avro: ignore unknown logical types
            return found
        self.logical[path] = str(name)
        return _Found(column, found.stored, found.schema)

    def _decimal(self, schema: Mapping[str, Any], path: Path) -> pa.DataType:
        precision, scale = int(schema.get("precision", 0)), int(schema.get("scale", 0))
        if not 1 <= precision <= DECIMAL_PRECISION_MAX or not 0 <= scale <= precision:
            raise InvalidError(
                f"{shown(path)}: decimal({precision},{scale}) is more than a column can hold"
            )
        self.logical[path] = "decimal"
        return pa.decimal128(precision, scale)

    def _union(self, branches: list[Any], path: Path, namespace: str) -> _Found:
        others = [each for each in branches if not _is_null(each)]
        promoted = _PROMOTED.get(frozenset(map(str, others)))
        if promoted is not None and len(others) == 2:
            self.judge_only = True
            return _Found(PRIMITIVES[promoted], PRIMITIVES[promoted], list(branches))
        if len(others) != 1:
            raise InvalidError(
                f"{shown(path)} is a union of {len(others)} types beside null: a column has one"
            )
        found = self.read(others[0], path, namespace)
        plain = ["null" if _is_null(each) else found.schema for each in branches]
        # A union of a single type is encoded with a branch index; pyruhvro reads it as a union.
        self.judge_only = self.judge_only or len(branches) == 1
        return _Found(found.column, found.stored, plain)


def _is_null(schema: Any) -> bool:
    return bool(schema == "null" or (isinstance(schema, Mapping) and schema.get("type") == "null"))


def _for_pyruhvro(schema: Any) -> Any:
    """Return the schema with strings in place of bytes; both have the same encoding."""
    if isinstance(schema, list):
        return [_for_pyruhvro(each) for each in schema]
    if not isinstance(schema, dict):
        return "string" if schema == "bytes" else schema
    inner = {key: _for_pyruhvro(schema[key]) for key in ("items", "values") if key in schema}
    if "fields" in schema:
        fields = schema["fields"]
        inner["fields"] = [{**each, "type": _for_pyruhvro(each["type"])} for each in fields]
    return {**schema, **inner}
