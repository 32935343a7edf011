"""Derives columns from the types in a JSON Schema.

The schema describes columns; values are not validated against it. `required`, `enum`, `pattern`,
bounds and lengths restrict values without changing their type, and are ignored. Other keywords may
change the type in ways that a column cannot express, and raise InvalidError.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from neve.errors import InvalidError
from neve.lake.values.types import TIMESTAMP, list_of, map_of, shown, struct_of

_FOLLOWED = frozenset(
    ("type", "properties", "items", "additionalProperties", "format", "anyOf", "oneOf", "$ref")
)
_ANNOTATIONS = frozenset(
    ("$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "title", "description")
) | frozenset(("default", "examples", "example", "deprecated", "readOnly", "writeOnly"))
_CONSTRAINTS = (
    frozenset(("required", "enum", "const", "pattern", "minLength", "maxLength", "propertyNames"))
    | frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
    | frozenset(("minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties"))
)
_SIMPLE = {"boolean": pa.bool_(), "integer": pa.int64(), "number": pa.float64()}
_FORMATS: dict[tuple[str, object], pa.DataType] = {
    ("string", "date-time"): TIMESTAMP,
    ("string", "date"): pa.date32(),
    ("integer", "int32"): pa.int32(),
    ("number", "float"): pa.float32(),
}
_REFERENCES_MAX = 50
"""Nested references that are followed. More mean that the schema refers to itself."""


def is_json_schema(schema: Mapping[str, object]) -> bool:
    """Return False for columns in the short notation, which has no type named `object`."""
    return schema.get("type") == "object" or any(
        isinstance(schema.get(key), str) for key in ("$schema", "$ref")
    )


def columns_of_json_schema(schema: Mapping[str, Any]) -> pa.Schema:
    """Return the columns. Raises InvalidError with the place that cannot be a column, and why."""
    found = _Reader(schema).type(schema, (), 0)
    if not pa.types.is_struct(found):
        raise InvalidError(f"a JSON Schema of columns is an object's with properties, not {found}")
    return pa.schema(list(found))


class _Reader:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def type(self, schema: Any, path: tuple[str, ...], references: int) -> pa.DataType:
        if not isinstance(schema, Mapping):
            raise InvalidError(f"{shown(path)}: {schema!r} says nothing about its type")
        refused = sorted(set(schema) - _FOLLOWED - _ANNOTATIONS - _CONSTRAINTS)
        if refused:
            raise InvalidError(f"{shown(path)}: {refused[0]} is not supported in a JSON Schema")
        if "$ref" in schema:
            if references == _REFERENCES_MAX:
                raise InvalidError(f"{shown(path)}: {schema['$ref']} refers to itself")
            return self.type(self._referred(schema["$ref"], path), path, references + 1)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return self.type(_only_choice(schema[keyword], keyword, path), path, references)
        return self._typed(schema, path, references)

    def _typed(
        self, schema: Mapping[str, Any], path: tuple[str, ...], references: int
    ) -> pa.DataType:
        name = _type_name(schema, path)
        if name == "object":
            return self._object(schema, path, references)
        if name == "array":
            if not isinstance(schema.get("items"), Mapping):
                raise InvalidError(f"{shown(path)}: an array must say what its items are")
            return list_of(self.type(schema["items"], (*path, "[]"), references))
        if name == "string":
            return _FORMATS.get((name, schema.get("format")), pa.string())
        if name not in _SIMPLE:
            raise InvalidError(f"{shown(path)}: {name!r} is not a type of JSON Schema")
        return _FORMATS.get((name, schema.get("format")), _SIMPLE[name])

    def _object(
        self, schema: Mapping[str, Any], path: tuple[str, ...], references: int
    ) -> pa.DataType:
        properties, others = schema.get("properties"), schema.get("additionalProperties")
        if properties and isinstance(others, Mapping):
            raise InvalidError(
                f"{shown(path)} has properties and additionalProperties with a schema: a column is "
                "a struct or a map, not both"
            )
        if properties:
            return struct_of(
                [
                    (name, self.type(each, (*path, name), references))
                    for name, each in properties.items()
                ]
            )
        if isinstance(others, Mapping):
            return map_of(self.type(others, (*path, "{}"), references))
        raise InvalidError(f"{shown(path)}: an object without properties has no columns")

    def _referred(self, reference: str, path: tuple[str, ...]) -> Any:
        found: Any = self._root
        parts = reference.removeprefix("#").strip("/").split("/")
        for part in parts if reference.startswith("#/") else [reference]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                raise InvalidError(f"{shown(path)}: {reference} is not in this JSON Schema")
            found = found[name]
        return found


def _only_choice(choices: Any, keyword: str, path: tuple[str, ...]) -> Any:
    others = [each for each in choices if each != {"type": "null"}]
    if len(others) != 1:
        raise InvalidError(
            f"{shown(path)}: {keyword} of {len(others)} types: a column has one, beside null"
        )
    return others[0]


def _type_name(schema: Mapping[str, Any], path: tuple[str, ...]) -> str:
    name = schema.get("type", "object" if "properties" in schema else None)
    names = [each for each in (name if isinstance(name, list) else [name]) if each != "null"]
    if sorted(names, key=str) == ["integer", "number"]:
        return "number"
    if len(names) != 1 or not isinstance(names[0], str):
        raise InvalidError(f"{shown(path)}: type {name!r}: a column has one type, beside null")
    return names[0]
