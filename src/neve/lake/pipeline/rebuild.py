"""Rewrites tables whose number types differ from the pipeline's file.

This is needed if a column was inferred or declared as an integer, and later values have fractions.
Rows are read from the table, not from the topic, which may no longer have all of them. The rebuild
streams rows in this process, without Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from neve.errors import InvalidError
from neve.lake.pipeline.config import PipelineConfig, PipelineTopic, chosen_topics
from neve.lake.pipeline.runner import pipeline_catalog
from neve.lake.pipeline.schema_growth import grow, value_schema
from neve.lake.tables.table_rebuild import rebuild
from neve.lake.values import evolution, value_format
from neve.lake.values.types import shown


@dataclass(frozen=True)
class RebuildReport:
    """One table: its new types by column, and the number of rewritten rows."""

    topic: str
    table: str
    types: dict[str, str]
    rows: int = 0


def rebuild_tables(
    config: PipelineConfig,
    *,
    topic: str | None = None,
    dry_run: bool = False,
    folder: Path | None = None,
) -> list[RebuildReport]:
    """Rewrite the table of one topic, or of all topics, if the file has other types.

    A dry run only reports the types.
    """
    topics = chosen_topics(config, topic)
    with pipeline_catalog(config) as catalog:
        return [_rebuilt(catalog, each, folder, dry_run=dry_run) for each in topics]


def _rebuilt(
    catalog: Catalog, config: PipelineTopic, folder: Path | None, *, dry_run: bool
) -> RebuildReport:
    given = value_format(config.value, folder=folder).schema()
    try:
        table = catalog.load_table(config.table)
    except NoSuchTableError:
        return RebuildReport(config.topic, config.table, {})
    types = {} if given is None else _types(value_schema(table), given, config.table)
    shown_types = {shown(path): str(kind) for path, kind in types.items()}
    if dry_run or not types:
        return RebuildReport(config.topic, config.table, shown_types)
    rows = rebuild(table, types)
    assert given is not None
    grow(table, config, [given])
    return RebuildReport(config.topic, config.table, shown_types, rows)


def _types(there: pa.Schema, given: pa.Schema, table: str) -> dict[tuple[str, ...], pa.DataType]:
    """Return the types to change. Raises InvalidError for any other difference."""
    change = evolution(there, given)
    types = dict(change.rewrite)
    others = [reason for path, reason in change.refused if path not in types]
    if others:
        raise InvalidError(
            f"table {table}: {'; '.join(others)}: integers can be rebuilt as double, integers and "
            "decimals as a decimal with room for all of their digits (a long needs 19 before the "
            "point: decimal(38,2)); for anything else, fill another table: name it in the "
            "pipeline's file"
        )
    return types
