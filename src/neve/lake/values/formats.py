"""Parses and checks the `value:` part of a pipeline.

    {format: raw}                          one column, the bytes
    {format: string}                       one column, the text
    {format: json}                         columns inferred from the first values
    {format: json, schema: …}              columns in the short notation or as a JSON Schema
    {format: avro, schema: …}              columns of an Avro schema
    {format: avro, registry: https://…}    each value names its schema in a registry

A schema is given inline or as the path of a file. Errors name the invalid option.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from neve.errors import InvalidError
from neve.lake.values.format_contract import ValueFormat
from neve.lake.values.json_schema import columns_of_json_schema, is_json_schema
from neve.lake.values.notation import columns_of, parse_columns
from neve.lake.values.plain import RawFormat, StringFormat
from neve.lake.values.types import plain_schema

_KEYS = {
    "raw": frozenset[str](),
    "string": frozenset[str](),
    "json": frozenset(("schema",)),
    "avro": frozenset(("schema", "registry")),
}
SCHEMA_BYTES_MAX = 8 * 1024 * 1024


def value_format(spec: Mapping[str, object], *, folder: Path | None = None) -> ValueFormat:
    """Return the format that a pipeline's `value:` specifies. Raises InvalidError.

    Relative paths in it start at `folder`.
    """
    name = spec.get("format")
    if not isinstance(name, str) or name not in _KEYS:
        raise InvalidError(f"value.format: {name!r} is none of {', '.join(_KEYS)}")
    unknown = sorted(str(key) for key in set(spec) - {"format"} - _KEYS[name])
    if unknown:
        raise InvalidError(f"value.{unknown[0]}: not an option of format {name}")
    if name == "raw":
        return RawFormat()
    if name == "string":
        return StringFormat()
    return _json(spec, folder) if name == "json" else _avro(spec, folder)


def _json(spec: Mapping[str, object], folder: Path | None) -> ValueFormat:
    from neve.lake.values.json_format import JsonFormat

    given = spec.get("schema")
    if given is None:
        return JsonFormat()
    columns = _columns(given, folder)
    # Raises for columns that JSON cannot fill here, not in the workers.
    JsonFormat(columns).decode(pa.array([], pa.binary()), columns)
    return JsonFormat(columns)


def _columns(given: object, folder: Path | None) -> pa.Schema:
    if isinstance(given, pa.Schema):
        return plain_schema(given)
    if isinstance(given, str):
        text = _text(given, folder)
        try:
            given = json.loads(text)
        except ValueError:
            return parse_columns(text)
    if not isinstance(given, Mapping):
        raise InvalidError(f"value.schema: {given!r} must be columns or the path of a file")
    return columns_of_json_schema(given) if is_json_schema(given) else columns_of(given)


def _avro(spec: Mapping[str, object], folder: Path | None) -> ValueFormat:
    from neve.lake.values.avro_format import AvroFormat, RegistryAvroFormat
    from neve.lake.values.registry import RegistryRef

    given, registry = spec.get("schema"), spec.get("registry")
    if (given is None) == (registry is None):
        raise InvalidError("value: format avro takes either a schema or a registry's URL")
    if registry is not None:
        return RegistryAvroFormat(RegistryRef.parse(registry))
    text = _text(given, folder) if isinstance(given, str) else json.dumps(given)
    try:
        found = AvroFormat(text)
        found.schema()
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidError(f"value.schema: no Avro schema: {error}") from None
    return found


def _text(given: str, folder: Path | None) -> str:
    """Return the text of a schema that is given inline or as the path of a file."""
    if given.lstrip().startswith(("{", "[")):
        return given
    path = (folder or Path()) / given
    try:
        if path.stat().st_size > SCHEMA_BYTES_MAX:
            raise InvalidError(f"value.schema: {path} has more than {SCHEMA_BYTES_MAX} bytes")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError(f"value.schema: {path} cannot be read: {error}") from None
