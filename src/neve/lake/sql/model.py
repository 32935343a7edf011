"""Relations, prepared queries, plans and results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from neve.lake.sql.analysis import RelationReference
from neve.lake.sql.literals import Constants
from neve.lake.sql.names import RelationName
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
    """A topic or table. `name` is the topic's name, or `namespace.table`."""

    name: str
    kind: str
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True)
class RelationRead:
    """What one reference in a query reads of a relation."""

    relation: RelationName
    reference: RelationReference
    columns: tuple[str, ...]
    all_columns: tuple[str, ...]
    ranges: Ranges = EVERYTHING

    @property
    def pruned(self) -> bool:
        return self.columns != self.all_columns


@dataclass(frozen=True)
class Prepared:
    """An analysed query. In `text` only the names of relations must still be replaced for Spark."""

    kind: Kind
    text: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    reads: tuple[RelationRead, ...] = ()
    edits: tuple[Splice, ...] = ()
    constants: Constants = field(default_factory=Constants)
    mode: str = "simple"
    has_paths: bool = False
    """True if the query uses paths into JSON values."""


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
    """What a query reads, and Spark's plan."""

    relations: tuple[RelationPlan, ...]
    spark_plan: str

    def lines(self) -> list[str]:
        """Return readable lines: one paragraph per relation, then Spark's plan."""
        lines: list[str] = []
        for each in self.relations:
            unit = "segments" if each.kind == "topic" else "files"
            name = each.name if each.alias == each.name.lower() else f"{each.name} AS {each.alias}"
            lines.append(f"{each.kind} {name}")
            lines.append(f"  columns: {', '.join(each.columns)}")
            lines.append(f"  rows: {each.selection or 'all'}")
            lines.append(f"  {unit}: {each.planned} planned, {each.pruned} pruned")
            lines.append(f"  bytes: {each.bytes_planned} to read, {each.bytes_pruned} pruned")
            lines += [f"  {note}" for note in each.notes]
        return [*lines, *([""] if lines else []), *self.spark_plan.rstrip().splitlines()]


class Result:
    """A result. The query runs when `batches` is iterated, which works once."""

    def __init__(self, schema: pa.Schema, run: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self.schema = schema
        self._run = run

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches as Spark produces them."""
        return self._run()


def answered(table: pa.Table) -> Result:
    """Return a result with these rows."""
    return Result(table.schema, lambda: iter(table.to_batches()))
