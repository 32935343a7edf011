"""Evolves a table's schema: new optional columns and safe widenings; field ids stay.

Another pipeline may change the schema at the same time. Changes that it made already are skipped
and the rest is retried. If it made a conflicting change, SchemaMovedError is raised.
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
# The names of a list's element and a map's value, in paths and in Iceberg.
_INSIDE = {"[]": "element", "{}": "value"}


class SchemaMovedError(NeveError):
    """The table's schema is no longer the one that the change was made for."""


class Evolution(Protocol):
    """The change that `neve.lake.values` finds; only these two parts are used.

    `add` has whole columns, or structs with only their new fields.
    """

    @property
    def add(self) -> Sequence[pa.Field]: ...

    @property
    def widen(self) -> Sequence[tuple[Path, pa.DataType]]: ...


def apply_evolution(table: Table, evolution: Evolution) -> None:
    """Change the table's schema. Afterwards `table` has the new one.

    Raises SchemaMovedError and BusyTableError.
    """
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
                f"table {'.'.join(table.name())} cannot change like this ({error}); "
                "compare the values with its schema again"
            ) from error
        except Exception:
            # The result is unknown: check the table.
            if any(_missing(table.refresh(), evolution)):
                raise
    raise BusyTableError(f"table {'.'.join(table.name())} is changed too often; try later")


def _apply(table: Table, added: list[pa.Field], widened: list[tuple[Path, IcebergType]]) -> None:
    with table.update_schema() as update:
        if added:
            update.union_by_name(pa.schema([field.with_nullable(True) for field in added]))
        for path, kind in widened:
            update.update_column(path, kind)


def _missing(
    table: Table, evolution: Evolution
) -> tuple[list[pa.Field], list[tuple[Path, IcebergType]]]:
    """Return the part of the change that the table lacks."""
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
    """Return True if a column has all fields of the wanted one, each as wide or wider."""
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
