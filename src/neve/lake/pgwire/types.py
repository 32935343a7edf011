"""PostgreSQL's types with oids and names, and their mapping from Arrow types."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from neve.lake.pgwire.wire import ColumnDescription


@dataclass(frozen=True)
class PgType:
    """A row of `pg_type`. `array_oid` is 0 for an array, or if there is no array of it."""

    name: str
    oid: int
    size: int
    array_oid: int
    category: str
    sql_name: str
    kind: str = "b"


_ROWS = """
bool 16 1 1000 B boolean
bytea 17 -1 1001 U bytea
char 18 1 1002 Z "char"
name 19 64 1003 S name
int8 20 8 1016 N bigint
int2 21 2 1005 N smallint
int2vector 22 -1 1006 A int2vector
int4 23 4 1007 N integer
regproc 24 4 1008 N regproc
text 25 -1 1009 S text
oid 26 4 1028 N oid
xid 28 4 1011 U xid
oidvector 30 -1 1013 A oidvector
json 114 -1 199 U json
pg_node_tree 194 -1 0 Z pg_node_tree
float4 700 4 1021 N real
float8 701 8 1022 N double_precision
unknown 705 -2 0 X unknown
aclitem 1033 12 1034 U aclitem
bpchar 1042 -1 1014 S character
varchar 1043 -1 1015 S character_varying
date 1082 4 1182 D date
time 1083 8 1183 D time_without_time_zone
timestamp 1114 8 1115 D timestamp_without_time_zone
timestamptz 1184 8 1185 D timestamp_with_time_zone
interval 1186 16 1187 T interval
timetz 1266 12 1270 D time_with_time_zone
numeric 1700 -1 1231 N numeric
regclass 2205 4 2210 N regclass
regtype 2206 4 2211 N regtype
record 2249 -1 2287 P record
void 2278 4 0 P void
uuid 2950 16 2951 U uuid
jsonb 3802 -1 3807 U jsonb
regnamespace 4089 4 4090 N regnamespace
regrole 4096 4 4097 N regrole
"""
_PSEUDO = {"record", "void", "unknown"}


def _declared() -> list[PgType]:
    rows = []
    for line in _ROWS.split("\n"):
        if not line:
            continue
        name, oid, size, array_oid, category, sql_name = line.split()
        kind = "p" if name in _PSEUDO else "b"
        shown = sql_name.replace("_", " ") if "_" not in name else sql_name
        rows.append(PgType(name, int(oid), int(size), int(array_oid), category, shown, kind))
    return rows


SCALARS = _declared()
BY_NAME = {each.name: each for each in SCALARS}
BY_OID = {each.oid: each for each in SCALARS}
ELEMENT_OF = {each.array_oid: each for each in SCALARS if each.array_oid}
"""Oid of an array type to the type of its elements."""

TEXT = BY_NAME["text"]
JSONB = BY_NAME["jsonb"]


def array_of(element: PgType) -> PgType:
    return PgType(
        f"_{element.name}", element.array_oid, -1, 0, "A", f"{element.sql_name}[]", element.kind
    )


def type_of_oid(oid: int) -> PgType | None:
    if oid in BY_OID:
        return BY_OID[oid]
    element = ELEMENT_OF.get(oid)
    return None if element is None else array_of(element)


_CHECKS = [
    (pa.types.is_boolean, "bool"),
    (pa.types.is_int8, "int2"),
    (pa.types.is_int16, "int2"),
    (pa.types.is_uint8, "int2"),
    (pa.types.is_int32, "int4"),
    (pa.types.is_uint16, "int4"),
    (pa.types.is_int64, "int8"),
    (pa.types.is_uint32, "int8"),
    (pa.types.is_uint64, "numeric"),
    (pa.types.is_float16, "float4"),
    (pa.types.is_float32, "float4"),
    (pa.types.is_float64, "float8"),
    (pa.types.is_decimal, "numeric"),
    (pa.types.is_string, "text"),
    (pa.types.is_large_string, "text"),
    (pa.types.is_string_view, "text"),
    (pa.types.is_binary, "bytea"),
    (pa.types.is_large_binary, "bytea"),
    (pa.types.is_binary_view, "bytea"),
    (pa.types.is_fixed_size_binary, "bytea"),
    (pa.types.is_date, "date"),
    (pa.types.is_time, "time"),
    (pa.types.is_duration, "interval"),
    (pa.types.is_null, "text"),
]


def scalar_of(arrow: pa.DataType) -> PgType | None:
    """Return the PostgreSQL type of a scalar Arrow type; None for nested types."""
    if isinstance(arrow, pa.BaseExtensionType):
        return BY_NAME["uuid"] if str(arrow.extension_name) == "arrow.uuid" else None
    if pa.types.is_timestamp(arrow):
        return BY_NAME["timestamptz" if arrow.tz else "timestamp"]
    for check, name in _CHECKS:
        if check(arrow):
            return BY_NAME[name]
    return None


def is_list(arrow: pa.DataType) -> bool:
    kinds = pa.types
    return any(
        is_one(arrow) for is_one in (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)
    )


def pg_type(arrow: pa.DataType) -> PgType:
    """Return the PostgreSQL type of a column. Nested and unknown types become jsonb."""
    if pa.types.is_dictionary(arrow):
        return pg_type(arrow.value_type)
    scalar = scalar_of(arrow)
    if scalar is not None:
        return scalar
    if is_list(arrow):
        element = scalar_of(arrow.value_type)
        if element is not None:
            return array_of(element)
    return JSONB


def modifier_of(arrow: pa.DataType) -> int:
    """Return PostgreSQL's typmod: precision and scale of a decimal, otherwise -1."""
    if pa.types.is_decimal(arrow) and 0 <= arrow.scale <= arrow.precision:
        return int((arrow.precision << 16) | arrow.scale) + 4
    return -1


def column_descriptions(schema: pa.Schema) -> list[ColumnDescription]:
    columns = []
    for field in schema:
        own = _declared_type(field) or pg_type(field.type)
        columns.append(ColumnDescription(field.name, own.oid, own.size, modifier_of(field.type)))
    return columns


DECLARED_TYPE = b"postgres.type"
"""Metadata key of a field with the oid of its PostgreSQL type, such as name or oid."""


def _declared_type(field: pa.Field) -> PgType | None:
    given = (field.metadata or {}).get(DECLARED_TYPE)
    return None if given is None else type_of_oid(int(given))
