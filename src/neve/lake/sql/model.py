"""What the engine says about relations and queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from neve.lake.sql.analysis import Place
from neve.lake.sql.literals import Constants
from neve.lake.sql.names import Named
from neve.lake.sql.ranges import EVERYTHING, Ranges
from neve.lake.sql.statements import Kind, Splice


@dataclass(frozen=True)
class Column:
    """One column of a relation."""

    name: str
    type: pa.DataType
    nullable: bool = True


@dataclass(frozen=True)
class Relation:
    """Something to select from. `name` is the topic's, or namespace and table with a dot."""

    name: str
    kind: str
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True)
class Needed:
    """What one place in a query reads of a relation."""

    named: Named
    place: Place
    columns: tuple[str, ...]
    all_columns: tuple[str, ...]
    ranges: Ranges = EVERYTHING

    @property
    def pruned(self) -> bool:
        return self.columns != self.all_columns


@dataclass(frozen=True)
class Prepared:
    """A query that was looked over. `text` is Spark's, but for the names of relations."""

    kind: Kind
    text: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    needed: tuple[Needed, ...] = ()
    edits: tuple[Splice, ...] = ()
    constants: Constants = field(default_factory=Constants)
    mode: str = "simple"
    has_paths: bool = False
    """Whether fields of JSON values were asked for by path."""


@dataclass(frozen=True)
class RelationPlan:
    """What is read of one relation: segments of a topic, or files of a table."""

    name: str
    kind: str
    alias: str
    columns: tuple[str, ...]
    selection: str
    planned: int
    pruned: int
    bytes_planned: int
    bytes_pruned: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explanation:
    """What a query reads, and how Spark goes about it."""

    relations: tuple[RelationPlan, ...]
    spark_plan: str

    def lines(self) -> list[str]:
        """For people, a relation a paragraph, Spark's plan at the end."""
        told: list[str] = []
        for each in self.relations:
            unit = "segments" if each.kind == "topic" else "files"
            name = each.name if each.alias == each.name.lower() else f"{each.name} AS {each.alias}"
            told.append(f"{each.kind} {name}")
            told.append(f"  columns: {', '.join(each.columns)}")
            told.append(f"  rows: {each.selection or 'all'}")
            told.append(f"  {unit}: {each.planned} planned, {each.pruned} pruned")
            told.append(f"  bytes: {each.bytes_planned} to read, {each.bytes_pruned} pruned")
            told += [f"  {note}" for note in each.notes]
        return [*told, *([""] if told else []), *self.spark_plan.rstrip().splitlines()]


class Result:
    """Rows to come. The query runs when `batches` is iterated, once."""

    def __init__(self, schema: pa.Schema, run: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self.schema = schema
        self._run = run

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Batch after batch, as Spark gives them; never all of them in memory."""
        return self._run()


def answered(table: pa.Table) -> Result:
    """A result that is there already."""
    return Result(table.schema, lambda: iter(table.to_batches()))
