"""Converts SQLite's rows to an Arrow table with the inferred types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from neve.lake.pgwire.catalog.functions import values_of
from neve.lake.pgwire.catalog.rows import arrow_of
from neve.lake.pgwire.types import BY_NAME, DECLARED_TYPE, PgType

_TEXT = BY_NAME["text"]


def arrow_table(
    columns: Sequence[tuple[str, PgType]], names: Sequence[str], rows: Sequence[tuple[Any, ...]]
) -> pa.Table:
    """Convert rows to a table. A column whose values do not fit its type becomes text."""
    if len(columns) != len(names):
        columns = [(name, _TEXT) for name in names]
    fields, arrays = [], []
    for at, (name, inferred) in enumerate(columns):
        shown, array = _fitting([row[at] for row in rows], inferred)
        arrays.append(array)
        fields.append(pa.field(name, array.type, metadata={DECLARED_TYPE: str(shown.oid)}))
    return pa.table(arrays, schema=pa.schema(fields))


def _fitting(values: list[Any], inferred: PgType) -> tuple[PgType, pa.Array]:
    try:
        return inferred, _array(values, inferred)
    except (ValueError, TypeError, OverflowError, pa.ArrowException):
        return _TEXT, _array(values, _TEXT)


def _array(values: list[Any], shown: PgType) -> pa.Array:
    kind = arrow_of(shown)
    if pa.types.is_list(kind):
        is_number = pa.types.is_integer(kind.value_type)
        return pa.array([_elements(value, is_number) for value in values], kind)
    return pa.array([_value(value, kind) for value in values], kind)


def _elements(value: Any, is_number: bool) -> list[Any] | None:
    found = values_of(value)
    if found is None:
        return None
    convert = int if is_number else str
    return [None if each is None else convert(each) for each in found]


def _value(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_boolean(kind):
        return bool(int(value))
    if pa.types.is_integer(kind):
        return int(value)
    if pa.types.is_floating(kind):
        return float(value)
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
