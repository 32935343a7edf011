"""Creates tables, or loads existing ones.

Two pipelines may do this at once: the second one gets the first one's table. An existing table is
not changed: only `apply_evolution` changes its schema, and only its owner its partitioning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table

from neve.errors import InvalidError
from neve.lake.tables.columns import (
    DEAD_LETTER_SCHEMA,
    KAFKA_COLUMN,
    KAFKA_STRUCT,
    table_columns,
)
from neve.lake.tables.data_files import TARGET_BYTES
from neve.lake.tables.history import birth_property
from neve.lake.tables.partitioning import DEFAULT_PARTITIONING, partition_spec
from neve.lake.tables.pyiceberg_private import schema_without_ids
from neve.lake.tables.schema_evolution import apply_evolution

DEAD_LETTERS_SUFFIX = "_dead_letters"

# Old metadata versions are useless, and every commit adds one.
NEW_TABLE_PROPERTIES: Mapping[str, str] = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.target-file-size-bytes": str(TARGET_BYTES),
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}

# Bounds must not be truncated: they decide whether the table has passed all letters of a file.
DEAD_LETTER_PROPERTIES: Mapping[str, str] = {"write.metadata.metrics.column.topic_id": "full"}


def open_table(
    catalog: Catalog,
    name: str,
    schema: pa.Schema,
    partition_by: Iterable[str] = DEFAULT_PARTITIONING,
    *,
    properties: Mapping[str, str] | None = None,
) -> Table:
    """Open or create the table of a topic whose values have this schema; adds `_kafka`."""
    return _open(catalog, name, table_columns(schema), tuple(partition_by), properties or {})


def open_dead_letters(catalog: Catalog, table_name: str) -> Table:
    """Open or create the table of a topic's dead letters."""
    name = f"{table_name}{DEAD_LETTERS_SUFFIX}"
    return _open(catalog, name, DEAD_LETTER_SCHEMA, (), DEAD_LETTER_PROPERTIES)


@dataclass(frozen=True)
class _Addition:
    """A change that only adds fields."""

    add: tuple[pa.Field, ...]
    widen: tuple[()] = ()


def complete_origin(table: Table) -> None:
    """Add the fields of `_kafka` that an older table lacks; older rows have null in them."""
    if KAFKA_COLUMN in {field.name for field in table.schema().fields}:
        apply_evolution(table, _Addition((pa.field(KAFKA_COLUMN, KAFKA_STRUCT),)))


def _open(
    catalog: Catalog,
    name: str,
    columns: pa.Schema,
    partition_by: tuple[str, ...],
    properties: Mapping[str, str],
) -> Table:
    namespace = name.rpartition(".")[0]
    if not namespace:
        raise InvalidError(f"table {name!r} has no namespace: write namespace.table")
    try:
        return _usable(catalog.load_table(name))
    except NoSuchTableError:
        pass
    try:
        catalog.create_namespace_if_not_exists(namespace)
    except NamespaceAlreadyExistsError:
        pass
    except Exception:
        # Another pipeline may have created it, which not every catalog reports as such.
        if not catalog.namespace_exists(namespace):
            raise
    schema = iceberg_schema(columns)
    try:
        return catalog.create_table(
            name,
            schema,
            partition_spec=partition_spec(partition_by, schema),
            properties={**NEW_TABLE_PROPERTIES, **birth_property(), **properties},
        )
    except TableAlreadyExistsError:
        return _usable(catalog.load_table(name))


def _usable(table: Table) -> Table:
    if table.format_version < 2:
        raise InvalidError(
            f"table {'.'.join(table.name())} has Iceberg's format 1, whose snapshots cannot be "
            "ordered; upgrade it to format 2, or name another table"
        )
    return table


def iceberg_schema(columns: pa.Schema) -> Schema:
    """Convert Arrow columns to an Iceberg schema with field ids from 1."""
    return assign_fresh_schema_ids(schema_without_ids(columns))
