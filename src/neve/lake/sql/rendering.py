"""Formats rows as text: lines of JSON or CSV, or cells of a table.

Bytes are shown as text if they are UTF-8, otherwise as base64: in JSON as an object with the field
`base64`, elsewhere with the prefix `base64:`. Times are ISO 8601; timestamps are in UTC.
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa

from neve.lake.sql.out_of_range_times import out_of_range_as_text

Convert: TypeAlias = Callable[[Any], Any]
_encoder = msgspec.json.Encoder(decimal_format="number")


def unique_names(names: Sequence[str]) -> list[str]:
    """Make names unique: the second `key` of a join is `key_2`."""
    found: list[str] = []
    for name in names:
        candidate, number = name, 1
        while candidate in found:
            number += 1
            candidate = f"{name}_{number}"
        found.append(candidate)
    return found


def json_lines(batch: pa.RecordBatch) -> bytes:
    """Format each row as a line with a JSON object."""
    names = unique_names(batch.schema.names)
    columns = [_converted(column, _json_of) for column in batch.columns]
    rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
    return b"".join(_encoder.encode(row) + b"\n" for row in rows)


def csv_header(schema: pa.Schema) -> bytes:
    return _csv([schema.names])


def csv_lines(batch: pa.RecordBatch) -> bytes:
    """Format each row as a line of CSV; null is an empty field."""
    return _csv(cells(batch, null=""))


def cells(batch: pa.RecordBatch, *, null: str = "NULL") -> list[list[str]]:
    """Return the rows as lists of texts."""
    columns = [
        [null if value is None else text(value) for value in _converted(column, _nested)]
        for column in batch.columns
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def _nested(column: pa.Array) -> Convert | None:
    """Return the conversion for a nested column's values; None if they need none."""
    return _json_convert(column.type) if pa.types.is_nested(column.type) else None


def text(value: object) -> str:
    """Format a value that is not null, for tables and CSV."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        shown = _bytes(value)
        return shown if isinstance(shown, str) else f"base64:{shown['base64']}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dict | list | tuple):
        return _encoder.encode(value).decode()
    return str(value)


def _csv(rows: Sequence[Sequence[str]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue().encode()


def _converted(column: pa.Array, convert_of: Callable[[pa.Array], Convert | None]) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        column = out_of_range_as_text(column)
        values = column.to_pylist()
    convert = convert_of(column)
    if convert is None:
        return values
    return [None if value is None else convert(value) for value in values]


def _json_of(column: pa.Array) -> Convert | None:
    return _json_convert(column.type)


def _json_convert(kind: pa.DataType) -> Convert | None:
    """Return the conversion of a type's values for JSON; None if they need none."""
    if pa.types.is_binary(kind):
        return _bytes
    if pa.types.is_map(kind):
        return _map(_json_convert(kind.item_type))
    if pa.types.is_list(kind):
        inner = _json_convert(kind.value_type)
        return None if inner is None else lambda values: [_or_none(inner, v) for v in values]
    if pa.types.is_struct(kind):
        fields = {field.name: _json_convert(field.type) for field in kind}
        if all(convert is None for convert in fields.values()):
            return None
        return lambda row: {name: _or_none(fields.get(name) or _same, v) for name, v in row.items()}
    return None


def _map(inner: Convert | None) -> Convert:
    convert = inner or _same
    return lambda pairs: {text(key): _or_none(convert, value) for key, value in pairs}


def _or_none(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


def _bytes(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
