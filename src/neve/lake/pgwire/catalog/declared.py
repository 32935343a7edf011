"""The catalogue's tables with their columns and types."""

from __future__ import annotations

from dataclasses import dataclass

from neve.lake.pgwire.catalog import declared_information, declared_pg
from neve.lake.pgwire.types import BY_NAME, PgType, array_of

PG_CATALOG, INFORMATION_SCHEMA = "pg_catalog", "information_schema"


@dataclass(frozen=True)
class CatalogTable:
    """One table. `columns` maps names to types, in order."""

    schema: str
    name: str
    columns: dict[str, PgType]

    @property
    def key(self) -> str:
        """The table's name in SQLite, which has no schemas."""
        return f"{self.schema}.{self.name}"


def _type(name: str) -> PgType:
    if name.startswith("_"):
        return array_of(BY_NAME[name[1:]])
    return BY_NAME[name or "text"]


def _read(schema: str, text: str) -> list[CatalogTable]:
    tables: list[CatalogTable] = []
    for line in text.strip().splitlines():
        if not line.startswith(" "):
            tables.append(CatalogTable(schema, line.strip(), {}))
            continue
        for column in line.split():
            name, _, kind = column.partition(":")
            tables[-1].columns[name] = _type(kind)
    return tables


TABLES: dict[str, CatalogTable] = {
    table.key: table
    for table in (
        *_read(PG_CATALOG, declared_pg.DECLARED),
        *_read(INFORMATION_SCHEMA, declared_information.DECLARED),
    )
}


def find_table(schema: str, name: str) -> CatalogTable | None:
    """Find a table by the name in a query. The default schema is pg_catalog."""
    return TABLES.get(f"{schema or PG_CATALOG}.{name}".lower())
