"""Rows of the catalogue's tables: types, schemas, relations and columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from neve.lake.pgwire.backend import Relation
from neve.lake.pgwire.catalog.declared import INFORMATION_SCHEMA, PG_CATALOG, TABLES
from neve.lake.pgwire.dialect import DEFAULT_SCHEMA
from neve.lake.pgwire.session_settings import SessionSettings
from neve.lake.pgwire.types import BY_OID, SCALARS, PgType, array_of, modifier_of, pg_type

OWNER_OID = 10
OWNER = "neve"
DATABASE_OID = 5
SCHEMA_OIDS = {PG_CATALOG: 11, DEFAULT_SCHEMA: 2200, INFORMATION_SCHEMA: 13_000}
FIRST_FREE_OID = 16_384
"""Oids of relations and schemas start here; lower ones are PostgreSQL's own."""
_SYSTEM_OIDS = {
    "pg_type": 1247,
    "pg_attribute": 1249,
    "pg_proc": 1255,
    "pg_class": 1259,
    "pg_authid": 1260,
    "pg_database": 1262,
    "pg_constraint": 2606,
    "pg_index": 2610,
    "pg_namespace": 2615,
    "pg_am": 2601,
}
_COLLATED = ("text", "name", "varchar", "bpchar")
_NUMERIC_BITS = {"int2": 16, "int4": 32, "int8": 64, "float4": 24, "float8": 53}
_KEYWORDS = ("analyze", "ilike", "limit", "offset", "returning", "similar", "verbose")

Row = dict[str, Any]


@dataclass(frozen=True)
class ShownColumn:
    name: str
    type: PgType
    modifier: int
    nullable: bool


@dataclass(frozen=True)
class ShownRelation:
    """A relation as the catalogue lists it."""

    oid: int
    schema: str
    name: str
    kind: str
    columns: tuple[ShownColumn, ...]


class Oids:
    """Assigns oids to names. An oid is stable while the server runs."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def of(self, name: str) -> int:
        return self._known.setdefault(name, FIRST_FREE_OID + len(self._known))


def shown_relation(relation: Relation, columns: Iterable[Any], oids: Oids) -> ShownRelation:
    """Split a name at its last dot into schema and table. Topic names may contain dots."""
    schema, _, name = relation.name.rpartition(".")
    if not schema or not name or relation.kind == "topic":
        schema, name = DEFAULT_SCHEMA, relation.name
    shown = tuple(
        ShownColumn(each.name, pg_type(each.type), modifier_of(each.type), bool(each.nullable))
        for each in columns
    )
    kind = "v" if "view" in relation.kind else "r"
    return ShownRelation(oids.of(f"relation {relation.name}"), schema, name, kind, shown)


def system_relations() -> list[ShownRelation]:
    """Return the catalogue's own tables, which the catalogue lists too."""
    found = []
    for number, table in enumerate(TABLES.values()):
        columns = (ShownColumn(name, kind, -1, True) for name, kind in table.columns.items())
        oid = _SYSTEM_OIDS.get(table.name, 12_000 + number)
        kind = "v" if table.schema == INFORMATION_SCHEMA else "r"
        found.append(ShownRelation(oid, table.schema, table.name, kind, tuple(columns)))
    return found


def all_rows(
    relations: Sequence[ShownRelation], database: str, users: Sequence[str], oids: Oids
) -> Iterator[tuple[str, Row]]:
    """Yield all rows as pairs of a table's key and a row. Columns may be missing: they are NULL."""
    schemas = dict(SCHEMA_OIDS)
    for relation in relations:
        schemas.setdefault(relation.schema, oids.of(f"schema {relation.schema}"))
    yield from _fixed_rows(database)
    yield from _role_rows(users, oids)
    for name, oid in schemas.items():
        yield from _schema_rows(name, oid, database)
    for scalar in SCALARS:
        yield from _type_rows(scalar)
    for relation in [*system_relations(), *relations]:
        yield from _relation_rows(relation, schemas[relation.schema], database)


def _fixed_rows(database: str) -> Iterator[tuple[str, Row]]:
    yield (
        "pg_catalog.pg_database",
        {"oid": DATABASE_OID, "datname": database, "datdba": OWNER_OID, "encoding": 6}
        | {"datlocprovider": "c", "datistemplate": False, "datallowconn": True}
        | {"datconnlimit": -1, "dattablespace": 1663, "datcollate": "C", "datctype": "C"},
    )
    yield "pg_catalog.pg_am", {"oid": 2, "amname": "heap", "amhandler": "", "amtype": "t"}
    yield "pg_catalog.pg_tablespace", {"oid": 1663, "spcname": "pg_default", "spcowner": OWNER_OID}
    yield "pg_catalog.pg_collation", {"oid": 100, "collname": "default", "collnamespace": 11}
    yield "information_schema.information_schema_catalog_name", {"catalog_name": database}
    for name, value in SessionSettings(OWNER).all().items():
        setting = {"name": name, "setting": value, "context": "user", "vartype": "string"}
        yield "pg_catalog.pg_settings", setting | {"boot_val": value, "reset_val": value}
    for word in _KEYWORDS:
        yield "pg_catalog.pg_get_keywords", {"word": word, "catcode": "U", "catdesc": "unreserved"}


def _role_rows(users: Sequence[str], oids: Oids) -> Iterator[tuple[str, Row]]:
    for user in [OWNER, *(each for each in users if each != OWNER)]:
        oid = OWNER_OID if user == OWNER else oids.of(f"role {user}")
        role = {"oid": oid, "rolname": user, "rolsuper": False, "rolinherit": True}
        role |= {"rolcreaterole": False, "rolcreatedb": False, "rolcanlogin": user in users}
        role |= {"rolreplication": False, "rolconnlimit": -1, "rolbypassrls": False}
        yield "pg_catalog.pg_roles", role
        yield "pg_catalog.pg_authid", role
        yield "pg_catalog.pg_user", {"usename": user, "usesysid": oid, "usecreatedb": False}


def _schema_rows(name: str, oid: int, database: str) -> Iterator[tuple[str, Row]]:
    yield "pg_catalog.pg_namespace", {"oid": oid, "nspname": name, "nspowner": OWNER_OID}
    schema = {"catalog_name": database, "schema_name": name, "schema_owner": OWNER}
    yield "information_schema.schemata", schema


def _type_rows(scalar: PgType) -> Iterator[tuple[str, Row]]:
    yield "pg_catalog.pg_type", _type_row(scalar, 0, f"{scalar.name}in")
    if scalar.array_oid:
        yield "pg_catalog.pg_type", _type_row(array_of(scalar), scalar.oid, "array_in")


def _type_row(shown: PgType, element: int, reads: str) -> Row:
    by_value = shown.size in (1, 2, 4, 8)
    row = {"oid": shown.oid, "typname": shown.name, "typnamespace": 11, "typowner": OWNER_OID}
    row |= {"typlen": shown.size, "typbyval": by_value, "typtype": shown.kind}
    row |= {"typcategory": shown.category, "typispreferred": False, "typisdefined": True}
    row |= {"typdelim": ",", "typrelid": 0, "typelem": element, "typarray": shown.array_oid}
    row |= {"typinput": reads, "typalign": "i", "typstorage": "p" if by_value else "x"}
    row |= {"typnotnull": False, "typbasetype": 0, "typtypmod": -1, "typndims": 0}
    return row | {"typcollation": 100 if shown.name in _COLLATED else 0, "typsubscript": "-"}


def _relation_rows(
    relation: ShownRelation, schema_oid: int, database: str
) -> Iterator[tuple[str, Row]]:
    yield "pg_catalog.pg_class", _class_row(relation, schema_oid)
    is_view = relation.kind == "v"
    kind = "VIEW" if is_view else "BASE TABLE"
    named = {"table_catalog": database, "table_schema": relation.schema}
    named |= {"table_name": relation.name}
    insertable = {"table_type": kind, "is_insertable_into": "NO", "is_typed": "NO"}
    yield "information_schema.tables", named | insertable
    if is_view:
        yield "information_schema.views", named | {"is_updatable": "NO"}
        view = {"schemaname": relation.schema, "viewname": relation.name, "viewowner": OWNER}
        yield "pg_catalog.pg_views", view
    else:
        table: Row = {
            "schemaname": relation.schema,
            "tablename": relation.name,
            "tableowner": OWNER,
        }
        table |= {"hasindexes": False, "hasrules": False, "hastriggers": False}
        yield "pg_catalog.pg_tables", table | {"rowsecurity": False}
    for number, column in enumerate(relation.columns, 1):
        yield "pg_catalog.pg_attribute", _attribute_row(relation, number, column)
        yield "information_schema.columns", named | _column_row(database, number, column)


def _class_row(relation: ShownRelation, schema_oid: int) -> Row:
    zeros = ("reltype", "reloftype", "reltablespace", "relpages", "relallvisible", "relchecks")
    no = ["relhasindex", "relisshared", "relhasrules", "relhastriggers", "relhassubclass"]
    no += ["relrowsecurity", "relforcerowsecurity", "relispartition"]
    row: Row = dict.fromkeys(zeros, 0) | dict.fromkeys(no, False)
    row |= {"oid": relation.oid, "relname": relation.name, "relnamespace": schema_oid}
    row |= {"relowner": OWNER_OID, "relam": 0 if relation.kind == "v" else 2}
    row |= {"relfilenode": relation.oid, "reltuples": -1.0, "reltoastrelid": 0}
    row |= {"relpersistence": "p", "relkind": relation.kind, "relnatts": len(relation.columns)}
    row |= {"relacl": f'["=r/{OWNER}"]'}  # PUBLIC may read, no role may write
    return row | {"relispopulated": True, "relreplident": "d", "relrewrite": 0}


def _attribute_row(relation: ShownRelation, number: int, column: ShownColumn) -> Row:
    shown = column.type
    no = ("atthasdef", "atthasmissing", "attisdropped")
    row: Row = dict.fromkeys(no, False)
    row |= dict.fromkeys(("attidentity", "attgenerated"), "")
    row |= {"attrelid": relation.oid, "attname": column.name, "atttypid": shown.oid}
    row |= {"attstattarget": -1, "attlen": shown.size, "attnum": number, "attinhcount": 0}
    row |= {"attndims": int(shown.category == "A"), "attcacheoff": -1, "attcompression": ""}
    row |= {"atttypmod": column.modifier, "attbyval": shown.size in (1, 2, 4, 8)}
    row |= {"attalign": "i", "attstorage": "p" if shown.size > 0 else "x", "attislocal": True}
    row |= {"attnotnull": not column.nullable}
    return row | {"attcollation": 100 if shown.name in _COLLATED else 0}


def _column_row(database: str, number: int, column: ShownColumn) -> Row:
    shown = column.type
    is_array = shown.category == "A"
    row: Row = {"column_name": column.name, "ordinal_position": number}
    row |= {"is_nullable": "YES" if column.nullable else "NO", "udt_name": shown.name}
    row |= {"data_type": "ARRAY" if is_array else shown.sql_name, "udt_schema": PG_CATALOG}
    row |= {"udt_catalog": database, "dtd_identifier": str(number), "is_generated": "NEVER"}
    row |= dict.fromkeys(("is_self_referencing", "is_identity", "is_updatable"), "NO")
    if shown.name in _NUMERIC_BITS:
        scale = None if shown.name.startswith("float") else 0
        row |= {"numeric_precision": _NUMERIC_BITS[shown.name], "numeric_precision_radix": 2}
        row |= {"numeric_scale": scale}
    if shown.name == "numeric" and column.modifier > 0:
        row |= {"numeric_precision": (column.modifier - 4) >> 16, "numeric_precision_radix": 10}
        row |= {"numeric_scale": (column.modifier - 4) & 0xFFFF}
    if shown.category == "D":
        row |= {"datetime_precision": 0 if shown.name == "date" else 6}
    return row


def format_type(oid: int, modifier: int | None) -> str:
    """Format a type as in SQL: `numeric(10,2)`, `text[]`."""
    if oid in BY_OID:
        shown = BY_OID[oid]
        if shown.name == "numeric" and modifier is not None and modifier > 0:
            return f"numeric({(modifier - 4) >> 16},{(modifier - 4) & 0xFFFF})"
        if shown.name in ("varchar", "bpchar") and modifier is not None and modifier > 4:
            return f"{shown.sql_name}({modifier - 4})"
        return shown.sql_name
    for scalar in SCALARS:
        if scalar.array_oid == oid and oid:
            return f"{scalar.sql_name}[]"
    return "-" if oid == 0 else "???"


def arrow_of(shown: PgType) -> pa.DataType:
    """Return the Arrow type for values of a catalogue column."""
    if shown.category == "A" and shown.name.startswith("_"):
        return pa.list_(pa.int64() if shown.name in ("_oid", "_int2", "_int4") else pa.string())
    return _ARROW.get(shown.name, pa.string())


_ARROW = {
    "bool": pa.bool_(),
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "oid": pa.int32(),
    "xid": pa.int32(),
    "float4": pa.float32(),
    "float8": pa.float64(),
}
