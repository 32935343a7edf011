"""Adds columns to a topic's table for new fields of its values, where that is safe.

No value may block the pipeline: a field that cannot become a column is left out here, and values
with it become dead letters.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import index_by_name, sanitize_column_names
from pyiceberg.table import Table

from neve.errors import InvalidError
from neve.lake.pipeline.config import PipelineTopic
from neve.lake.tables import apply_evolution
from neve.lake.tables.columns import KAFKA_COLUMN, table_columns, without_large_types
from neve.lake.tables.table_creation import iceberg_schema
from neve.lake.values import Evolution, evolution, evolved
from neve.lake.values.json_shape import BIG_INTEGER

_log = logging.getLogger(__name__)

_WIDER = (
    (pa.int32(), pa.int64()),
    (pa.float32(), pa.float64()),
    (pa.int64(), BIG_INTEGER),
    (pa.int64(), pa.float64()),
    (BIG_INTEGER, pa.float64()),
)

FIELDS_MAX = 2000
"""Fields of a table, nested ones included. Bounds them if field names are data, such as ids."""
_NO_PLACE = (
    "no column can have its name, another column's differs from it only in case, or the table has "
    f"its {FIELDS_MAX} fields"
)
PASSES_MAX = 5
"""Passes over a batch: new fields found in one pass widen the table for the next."""


def value_schema(table: Table) -> pa.Schema:
    """Return the columns of a table that come from values."""
    columns = without_large_types(schema_to_pyarrow(table.schema(), {}, False))
    if KAFKA_COLUMN not in columns.names:
        raise InvalidError(
            f"table {'.'.join(table.name())} has no column {KAFKA_COLUMN}: it was not made by a "
            "pipeline; name another table"
        )
    return columns.remove(columns.get_field_index(KAFKA_COLUMN))


def grow(table: Table, config: PipelineTopic, wanted: Sequence[pa.Schema]) -> bool:
    """Add columns for these fields where that is safe. Returns True if the table changed."""
    before = table.metadata.current_schema_id
    if wanted:
        change = room_for(value_schema(table), united(wanted))
        rewritable = dict(change.rewrite)
        for path, reason in change.refused:
            hint = "; neve lake rebuild changes it" if path in rewritable else ""
            named = ".".join(path)
            _log.warning("%s: field %s is not changed: %s%s", config.table, named, reason, hint)
        apply_evolution(table, change)
    return table.metadata.current_schema_id != before


def room_for(schema: pa.Schema, wanted: pa.Schema) -> Evolution:
    """Return the possible change of the schema; fields that cannot be columns are refused."""
    change = evolution(schema, wanted)
    named = _first_fields(
        schema, _nameable(change.add, [*schema, pa.field(KAFKA_COLUMN, pa.null())])
    )
    add = _standing(schema, replace(change, add=[]), named)
    kept = {each.name for each in add}
    refused = [((each.name,), _NO_PLACE) for each in change.add if each.name not in kept]
    return replace(change, add=add, refused=[*change.refused, *refused])


def _first_fields(schema: pa.Schema, more: list[pa.Field]) -> list[pa.Field]:
    """Return the first of the new fields, so that the table has at most FIELDS_MAX."""
    count = sum(map(_size, schema))
    sizes = itertools.accumulate(map(_size, more), initial=count)
    return [each for each, size in zip(more, list(sizes)[1:], strict=True) if size <= FIELDS_MAX]


def _size(each: pa.Field) -> int:
    """Return the number of fields: this one and all inside it."""
    inside = range(each.type.num_fields)
    return 1 + sum(_size(each.type.field(number)) for number in inside)


def _standing(schema: pa.Schema, change: Evolution, more: list[pa.Field]) -> list[pa.Field]:
    """Return the added fields that are valid together with the schema.

    Bisects the new fields, because there may be many and few are invalid.
    """
    added = [*change.add, *more]
    if not more or _can_stand(evolved(schema, replace(change, add=added))):
        return added
    if len(more) == 1:
        return change.add
    middle = len(more) // 2
    first = _standing(schema, change, more[:middle])
    return _standing(schema, replace(change, add=first), more[middle:])


def columns_for(wanted: pa.Schema) -> pa.Schema:
    """Return the fields that a new table can have."""
    return evolved(pa.schema([]), room_for(pa.schema([]), wanted))


def _nameable(more: Iterable[pa.Field], there: Iterable[pa.Field]) -> list[pa.Field]:
    """Drop fields with an empty name, or one that differs from another only in case.

    For Spark and most other engines such names are equal, and a query for either is ambiguous. The
    field that is already `there` keeps its column, otherwise the first one gets it. This applies to
    nested fields too.
    """
    types = {each.name: each.type for each in there}
    taken = {name.lower() for name in types}
    kept = []
    for each in more:
        if not each.name or (each.name not in types and each.name.lower() in taken):
            continue
        taken.add(each.name.lower())
        type_ = _nameable_type(each.type, types.get(each.name, pa.null()))
        if type_ is not None:
            kept.append(pa.field(each.name, type_))
    return kept


def _nameable_type(type_: pa.DataType, there: pa.DataType) -> pa.DataType | None:
    """Drop the same fields inside a type. Returns None if no field is left."""
    if pa.types.is_struct(type_):
        fields = _nameable(type_, there if pa.types.is_struct(there) else [])
        return pa.struct(fields) if fields else None
    if pa.types.is_list(type_):
        known = there.value_type if pa.types.is_list(there) else pa.null()
        inner = _nameable_type(type_.value_type, known)
        return None if inner is None else pa.list_(pa.field("element", inner))
    if pa.types.is_map(type_):
        known = there.item_type if pa.types.is_map(there) else pa.null()
        inner = _nameable_type(type_.item_type, known)
        return None if inner is None else pa.map_(type_.key_type, pa.field("value", inner))
    return type_


def _can_stand(schema: pa.Schema) -> bool:
    """Return True if a table, and its files with their escaped names, can have these columns.

    Iceberg joins names with dots, so `a.b` can be a field of `a` or a column, not both.
    """
    try:
        columns = iceberg_schema(table_columns(schema))
        index_by_name(columns)
        index_by_name(sanitize_column_names(columns))
    except (ValueError, InvalidError):
        return False
    return True


def united(wanted: Sequence[pa.Schema]) -> pa.Schema:
    """Combine the schemas of several tasks into one, as if one task had seen all values."""
    found = pa.struct([])
    for schema in wanted:
        found = _united(found, pa.struct(list(schema)))
    return pa.schema(list(found))


def _united(first: pa.DataType, then: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(first) and pa.types.is_struct(then):
        known = {each.name: each.type for each in first}
        for each in then:
            before = known.get(each.name)
            known[each.name] = each.type if before is None else _united(before, each.type)
        return pa.struct([pa.field(name, type_) for name, type_ in known.items()])
    if pa.types.is_list(first) and pa.types.is_list(then):
        return pa.list_(pa.field("element", _united(first.value_type, then.value_type)))
    if pa.types.is_map(first) and pa.types.is_map(then):
        return pa.map_(first.key_type, pa.field("value", _united(first.item_type, then.item_type)))
    # As in inference: numbers are widened, of other types the first one is used.
    return then if (first, then) in _WIDER else first
