"""Lets a table's schema grow: new optional columns and safe widenings, field ids kept.

Another pipeline may change the schema at the same time. What it has already done is left out and
the rest tried again; where it did something else, the caller is told to plan anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, ResolveError, ValidationError
from pyiceberg.schema import promote
from pyiceberg.table import Table
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)

from neve.errors import NeveError
from neve.lake.tables.commit_attempt import ATTEMPTS_MAX, BusyTableError
from neve.lake.tables.pyiceberg_private import schema_without_ids

Path = tuple[str, ...]
# What stands for a list's element and a map's value, there and at Iceberg.
_INSIDE = {"[]": "element", "{}": "value"}


class SchemaMovedError(NeveError):
    """The table's schema has become another than the change was meant for."""


class Evolution(Protocol):
    """What is to change, as `neve.lake.values` finds it; only these two parts are used.

    `add` has whole columns, or structs that hold only the fields that are new in them.
    """

    @property
    def add(self) -> Sequence[pa.Field]: ...

    @property
    def widen(self) -> Sequence[tuple[Path, pa.DataType]]: ...


def apply_evolution(table: Table, evolution: Evolution) -> None:
    """Change the table's schema; afterwards `table` has all of it."""
    for _ in range(ATTEMPTS_MAX):
        added, widened = _missing(table, evolution)
        if not added and not widened:
            return
        try:
            _apply(table, added, widened)
        except CommitFailedException:
            table.refresh()
        except (ValidationError, ResolveError, ValueError) as error:
            raise SchemaMovedError(
                f"table {'.'.join(table.name())} cannot change like this any more ({error}); "
                "compare the values with its schema again"
            ) from error
        except Exception:
            # Unknown whether it was done: the table says.
            if any(_missing(table.refresh(), evolution)):
                raise
    raise BusyTableError(f"table {'.'.join(table.name())} is changed all the time; try later")


def _apply(table: Table, added: list[pa.Field], widened: list[tuple[Path, IcebergType]]) -> None:
    with table.update_schema() as update:
        if added:
            update.union_by_name(pa.schema([field.with_nullable(True) for field in added]))
        for path, kind in widened:
            update.update_column(path, kind)


def _missing(
    table: Table, evolution: Evolution
) -> tuple[list[pa.Field], list[tuple[Path, IcebergType]]]:
    """What the table lacks of the change."""
    whole = table.schema().as_struct()
    added = [
        field
        for field in evolution.add
        if not _holds(whole, StructType(*_columns(pa.schema([field]))))
    ]
    widened = []
    for path, arrow in evolution.widen:
        place = tuple(_INSIDE.get(name, name) for name in path)
        kind = _columns(pa.schema([pa.field("column", arrow)]))[0].field_type
        if not _holds(table.schema().find_type(".".join(place)), kind):
            widened.append((place, kind))
    return added, widened


def _columns(schema: pa.Schema) -> tuple[NestedField, ...]:
    return schema_without_ids(schema).fields


def _holds(there: IcebergType, wanted: IcebergType) -> bool:
    """Whether a column can hold the wanted one: its fields, each as wide or wider."""
    if isinstance(there, StructType) and isinstance(wanted, StructType):
        kinds = {field.name: field.field_type for field in there.fields}
        return all(
            field.name in kinds and _holds(kinds[field.name], field.field_type)
            for field in wanted.fields
        )
    if isinstance(there, ListType) and isinstance(wanted, ListType):
        return _holds(there.element_type, wanted.element_type)
    if isinstance(there, MapType) and isinstance(wanted, MapType):
        return _holds(there.value_type, wanted.value_type)
    if not isinstance(there, PrimitiveType) or not isinstance(wanted, PrimitiveType):
        return False
    try:
        return there == wanted or promote(wanted, there) == there
    except ResolveError:
        return False
