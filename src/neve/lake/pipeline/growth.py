"""A topic's table grows with its values: new fields become columns where that is safe."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table

from neve.errors import InvalidError
from neve.lake.pipeline.config import TopicConfig
from neve.lake.tables import apply_evolution
from neve.lake.tables.columns import KAFKA_COLUMN, without_large_types
from neve.lake.values import evolution

_log = logging.getLogger(__name__)

PASSES_MAX = 5
"""New fields are found while values are read, which are then read again with the wider table."""


def value_schema(table: Table) -> pa.Schema:
    """The columns of a table that come from values."""
    columns = without_large_types(schema_to_pyarrow(table.schema(), {}, False))
    if KAFKA_COLUMN not in columns.names:
        raise InvalidError(
            f"table {'.'.join(table.name())} has no column {KAFKA_COLUMN}: it was not made by a "
            "pipeline; name another table"
        )
    return columns.remove(columns.get_field_index(KAFKA_COLUMN))


def grow(table: Table, config: TopicConfig, wanted: Sequence[pa.Schema]) -> bool:
    """Make room for these fields as far as that is safe; whether the table has changed."""
    before = table.metadata.current_schema_id
    for schema in wanted:
        if KAFKA_COLUMN in schema.names:
            raise InvalidError(
                f"topic {config.topic}: its values have a field {KAFKA_COLUMN}, which is "
                "where a row's origin stands; rename it, or keep values raw"
            )
        change = evolution(value_schema(table), schema)
        for path, reason in change.refused:
            _log.warning("%s: field %s stays as it is: %s", config.table, ".".join(path), reason)
        apply_evolution(table, change)
    return table.metadata.current_schema_id != before
