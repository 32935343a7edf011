"""Changes the types of columns by rewriting all rows, where Iceberg cannot promote them.

A long that becomes a double, or a decimal with a larger scale, is a new column with the old name.
All data files are rewritten with it, and one commit replaces schema and files and carries the
offsets along. If it is killed before that, nothing has changed. Values are converted exactly, or
the rebuild fails. Older snapshots keep the old column.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    SetCurrentSchemaUpdate,
    TableRequirement,
    TableUpdate,
    update_table_metadata,
)
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from neve.errors import InvalidError
from neve.lake.tables.commit_attempt import Attempt, BusyTableError, attempt, propose, refreshed
from neve.lake.tables.commit_outcome import stale_reason
from neve.lake.tables.data_files import write_files
from neve.lake.tables.history import carried_state
from neve.lake.tables.live_files import live_entries
from neve.lake.tables.projection import file_rows
from neve.lake.tables.pyiceberg_private import schema_without_ids
from neve.lake.tables.table_ref import table_ref

Path = tuple[str, ...]
"""Field names from the top; `[]` is a list's element, `{}` a map's value."""


def rebuild(table: Table, types: Mapping[Path, pa.DataType]) -> int:
    """Change the columns at these paths to these types. Returns the number of rewritten rows.

    A concurrent commit makes it fail without a change, and so does a rebuild that takes so long
    that its first files may have been removed as orphans.
    """
    name = ".".join(refreshed(table).name())
    live = list(live_entries(table))
    if any(entry.has_deletes for entry in live):
        raise InvalidError(
            f"table {name} has delete files that Neve did not write; rewrite its data files with "
            "the engine that wrote them"
        )
    changes, wider = _with_types(table, types)
    old = [entry.data_file for entry in live]
    try:
        new = write_files(table_ref(wider), file_rows(table, old))
    except pa.ArrowInvalid as error:
        raise InvalidError(
            f"table {name}: a value cannot be converted exactly ({error}); choose a type that "
            "holds every value, such as decimal(38,2)"
        ) from error
    reason = stale_reason(wider, new)
    if reason:
        raise BusyTableError(f"table {name} was not rebuilt ({reason}): run this again")
    proposal = propose(
        wider,
        carried_state(table),
        add=[file.entry() for file in new],
        remove=old,
        same_rows=True,
    )
    whole = replace(
        proposal,
        updates=(*changes, *proposal.updates),
        requirements=(*proposal.requirements, *_same_schema(table)),
    )
    if attempt(table, whole) is Attempt.REFUSED:
        raise BusyTableError(
            f"table {name} was changed during the rebuild, which did nothing: stop its pipeline "
            "and other writers, and run this again"
        )
    return sum(file.rows for file in new)


def _same_schema(table: Table) -> tuple[TableRequirement, ...]:
    metadata = table.metadata
    return (
        AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}),
        AssertLastAssignedFieldId.model_validate(
            {"last-assigned-field-id": metadata.last_column_id}
        ),
    )


def _with_types(
    table: Table, types: Mapping[Path, pa.DataType]
) -> tuple[tuple[TableUpdate, ...], Table]:
    """Return the updates of the schema, and the table's metadata after them."""
    ids = itertools.count(table.metadata.last_column_id + 1)
    schema = table.schema()
    fields = _retyped_fields(schema.fields, (), types, ids)
    number = max(each.schema_id for each in table.metadata.schemas) + 1
    changed = Schema(*fields, schema_id=number, identifier_field_ids=schema.identifier_field_ids)
    _check_unused(table, set(schema.field_ids) - set(changed.field_ids))
    updates = (
        AddSchemaUpdate(schema=changed),
        SetCurrentSchemaUpdate.model_validate({"schema-id": -1}),
    )
    metadata = update_table_metadata(table.metadata, updates)
    after = Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)
    return updates, after


def _check_unused(table: Table, gone: set[int]) -> None:
    """Raise InvalidError for columns of partitions and sort orders, which need the old id."""
    metadata = table.metadata
    sources = {field.source_id for spec in metadata.partition_specs for field in spec.fields}
    sources |= {field.source_id for order in metadata.sort_orders for field in order.fields}
    used = sorted(str(table.schema().find_column_name(each)) for each in gone & sources)
    if used:
        raise InvalidError(
            f"table {'.'.join(table.name())} is partitioned or sorted by {', '.join(used)}, which "
            "cannot get another type: fill another table, and name it in the pipeline's file"
        )


def _retyped_fields(
    fields: Sequence[NestedField],
    path: Path,
    types: Mapping[Path, pa.DataType],
    ids: Iterator[int],
) -> list[NestedField]:
    found = []
    for each in fields:
        here = (*path, each.name)
        kind = _retyped(each.field_type, here, types, ids)
        number = next(ids) if here in types else each.field_id
        found.append(NestedField(number, each.name, kind, each.required, each.doc))
    return found


def _retyped(
    kind: IcebergType, path: Path, types: Mapping[Path, pa.DataType], ids: Iterator[int]
) -> IcebergType:
    if path in types:
        return _iceberg(types[path])
    if isinstance(kind, StructType):
        return StructType(*_retyped_fields(kind.fields, path, types, ids))
    if isinstance(kind, ListType):
        inside = (*path, "[]")
        element = _retyped(kind.element_type, inside, types, ids)
        number = next(ids) if inside in types else kind.element_id
        return ListType(number, element, kind.element_required)
    if isinstance(kind, MapType):
        inside = (*path, "{}")
        value = _retyped(kind.value_type, inside, types, ids)
        number = next(ids) if inside in types else kind.value_id
        return MapType(kind.key_id, kind.key_type, number, value, kind.value_required)
    return kind


def _iceberg(arrow: pa.DataType) -> IcebergType:
    columns = schema_without_ids(pa.schema([pa.field("column", arrow)]))
    return columns.fields[0].field_type
