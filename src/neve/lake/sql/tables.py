"""Iceberg tables as relations: their names, columns and scan plans, with pyiceberg."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neve.errors import InvalidError, UnavailableError, UnsupportedError
from neve.lake.sql.iceberg.filters import Filters, expression_text
from neve.lake.sql.iceberg.plan import TablePlan, plan_table
from neve.lake.sql.iceberg.types import arrow_schema
from neve.lake.sql.literals import Constants
from neve.lake.sql.model import Column, RelationPlan, RelationRead
from neve.settings import StoreSettings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table


def table_names(catalog: Catalog | None) -> list[tuple[str, ...]]:
    """Return all tables of a catalog, with their namespaces."""
    if catalog is None:
        return []
    try:
        return sorted(_names_under(catalog, ()))
    except Exception as error:
        raise UnavailableError(catalog.name, f"the catalog does not answer: {error}") from error


def _names_under(catalog: Catalog, namespace: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for inner in catalog.list_namespaces(namespace):
        found = tuple(inner)
        if found[: len(namespace)] == namespace and len(found) > len(namespace):
            yield from (tuple(name) for name in catalog.list_tables(found))
            yield from _names_under(catalog, found)


def open_catalog(spec: Mapping[str, str], store_url: str, store: StoreSettings) -> Catalog | None:
    """Open the given catalog, or the default one of a bucket if it exists."""
    from neve.lake.tables.catalogs import catalog_file, catalog_of

    if not spec:
        try:
            if not catalog_file(store_url, store).is_file():
                return None
        except InvalidError:
            return None  # a store in memory
    return catalog_of(spec, store_url, store=store)


def load_table(catalog: Catalog | None, parts: tuple[str, ...]) -> Table:
    assert catalog is not None
    try:
        return catalog.load_table(parts)
    except Exception as error:
        raise UnavailableError(".".join(parts), f"the table cannot be opened: {error}") from error


def table_columns(table: Table) -> tuple[Column, ...]:
    """Return the columns with the types of queries."""
    return tuple(
        Column(field.name, field.type, field.nullable) for field in arrow_schema(table.schema())
    )


@dataclass(frozen=True)
class TableQuery:
    """The read of a table for one reference in a query."""

    table: Table
    read: RelationRead
    constants: Constants
    now_ms: int

    def plan(self) -> TablePlan:
        filters = Filters(self.table.schema(), self.constants, self.now_ms)
        condition = filters.expression(self.read.reference.predicate)
        try:
            return plan_table(self.table, self.read.columns, condition)
        except (ValueError, NotImplementedError) as error:
            raise UnsupportedError(f"{self.read.relation} cannot be read: {error}") from error
        except OSError as error:
            where = str(self.read.relation)
            raise UnavailableError(where, f"its metadata cannot be read: {error}") from error

    def explained(self) -> RelationPlan:
        plan = self.plan()
        from pyiceberg.expressions import AlwaysTrue

        notes = [f"snapshot: {plan.snapshot_id}"] if plan.snapshot_id else []
        if plan.delete_files:
            notes.append(f"delete files: {plan.delete_files}")
        condition = plan.read.row_filter
        return RelationPlan(
            str(self.read.relation),
            "table",
            self.read.reference.alias,
            self.read.columns,
            "" if isinstance(condition, AlwaysTrue) else expression_text(condition),
            plan.files_planned,
            plan.files_pruned,
            plan.bytes_planned,
            plan.bytes_pruned,
            tuple(notes),
        )
