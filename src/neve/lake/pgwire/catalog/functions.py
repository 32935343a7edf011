"""PostgreSQL's functions that catalogue queries use, implemented for SQLite."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from neve.lake.pgwire.catalog.rows import OWNER, OWNER_OID, format_type
from neve.lake.pgwire.types import SCALARS

_SERIES_MAX = 10_000
_PATTERN_CHARACTERS_MAX = 2_000
_CHARACTER_SETS = {6: "UTF8", 0: "SQL_ASCII"}


def values_of(array: Any) -> list[Any] | None:
    """Parse an array, written as JSON or in PostgreSQL's braces."""
    if array is None:
        return None
    text = str(array)
    if text.startswith("["):
        found = json.loads(text)
        return list(found)
    return [item.strip('"') for item in text.strip("{}").split(",") if item]


def to_json(array: Any) -> str | None:
    values = values_of(array)
    return None if values is None else json.dumps(values)


def is_any(value: Any, sign: str, array: Any) -> int | None:
    """Evaluate `value = ANY(array)`, or `<> ANY` for another `sign`, by comparing texts."""
    values = values_of(array)
    if value is None or values is None:
        return None
    texts = [str(each) for each in values]
    return int(str(value) in texts) if sign == "=" else int(any(t != str(value) for t in texts))


def is_all(value: Any, sign: str, array: Any) -> int | None:
    """Evaluate `value <> ALL(array)`, or `= ALL` for another `sign`, by comparing texts."""
    values = values_of(array)
    if value is None or values is None:
        return None
    texts = [str(each) for each in values]
    return (
        int(str(value) not in texts) if sign == "<>" else int(all(t == str(value) for t in texts))
    )


def matches(text: Any, pattern: Any, ignore_case: int) -> int | None:
    """Match with RE2, whose time is linear in the text for every pattern."""
    if text is None or pattern is None:
        return None
    if len(str(pattern)) > _PATTERN_CHARACTERS_MAX:
        raise ValueError(f"a pattern is longer than {_PATTERN_CHARACTERS_MAX} characters")
    found = pc.match_substring_regex(
        pa.scalar(str(text)), pattern=str(pattern), ignore_case=bool(ignore_case)
    )
    return int(found.as_py())


def array_to_string(array: Any, between: Any, null: Any = None) -> str | None:
    values = values_of(array)
    if values is None:
        return None
    shown = [null if each is None else str(each) for each in values]
    return str(between).join(each for each in shown if each is not None)


def series(first: Any, last: Any) -> str:
    if first is None or last is None:
        return "[]"
    return json.dumps(list(range(int(first), min(int(last), int(first) + _SERIES_MAX) + 1)))


def element(array: Any, index: Any) -> Any:
    values = values_of(array)
    if values is None or index is None or not 0 <= int(index) < len(values):
        return None
    return values[int(index)]


def array_length(array: Any, _dimension: Any = 1) -> int | None:
    values = values_of(array)
    return len(values) or None if values is not None else None


def type_oid(name: Any) -> int | None:
    """Return the oid of a type by any of its names; None if it is unknown."""
    if name is None:
        return None
    text = str(name).strip().lower().removeprefix("pg_catalog.").strip('"')
    if text.isdigit():
        return int(text)
    is_array = text.endswith("[]") or text.startswith("_")
    base = text.removesuffix("[]").removeprefix("_")
    base = {"int": "int4"}.get(base, base)
    for scalar in SCALARS:
        if base in (scalar.name, scalar.sql_name):
            return scalar.array_oid if is_array else scalar.oid
    return None


def shown_type(oid: Any, modifier: Any = None) -> str | None:
    if oid is None:
        return None
    return format_type(int(oid), None if modifier is None else int(modifier))


def user_name(oid: Any) -> str | None:
    if oid is None:
        return None
    return OWNER if int(oid) == OWNER_OID else f"unknown (OID={oid})"


def truth(value: Any) -> int | None:
    """Parse a boolean. Returns 1 or 0; None for NULL."""
    if value is None:
        return None
    return int(str(value).strip().lower() in ("1", "t", "true", "y", "yes", "on"))


def _null(*_: Any) -> None:
    return None


def _yes(*_: Any) -> int:
    return 1


def _encoding(number: Any) -> str:
    return _CHARACTER_SETS.get(int(number), "") if number is not None else ""


FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "neve_any": (3, is_any),
    "neve_all": (3, is_all),
    "neve_matches": (3, matches),
    "neve_array": (1, to_json),
    "neve_series": (2, series),
    "neve_element": (2, element),
    "neve_type": (1, type_oid),
    "neve_bool": (1, truth),
    "array_to_string": (-1, array_to_string),
    "array_upper": (2, array_length),
    "array_length": (2, array_length),
    "cardinality": (1, array_length),
    "format_type": (2, shown_type),
    "to_regtype": (1, type_oid),
    "pg_get_userbyid": (1, user_name),
    "pg_encoding_to_char": (1, _encoding),
    "pg_char_to_encoding": (1, lambda name: 6 if str(name).upper() == "UTF8" else -1),
    "pg_size_pretty": (1, lambda size: None if size is None else f"{size} bytes"),
    "quote_ident": (1, lambda name: name),
    "pg_get_partkeydef": (1, _null),
}
_RETURN_NULL = (
    *("obj_description", "col_description", "shobj_description", "pg_get_expr", "pg_get_viewdef"),
    *("pg_get_constraintdef", "pg_get_indexdef", "pg_get_triggerdef", "pg_get_serial_sequence"),
    *("pg_get_function_arguments", "pg_get_function_result", "pg_get_functiondef"),
    *("pg_get_statisticsobjdef_columns", "pg_get_function_identity_arguments"),
    *("pg_tablespace_location", "pg_get_ruledef", "pg_relation_filenode", "txid_current"),
    *("pg_table_size", "pg_total_relation_size", "pg_relation_size", "pg_database_size"),
    *("inet_server_addr", "inet_server_port", "inet_client_addr", "pg_is_other_temp_schema"),
    *("generate_subscripts", "neve_nothing", "pg_stat_get_numscans", "age", "pg_tablespace_size"),
    *("_pg_expandarray", "pg_my_temp_schema", "acldefault", "aclexplode", "pg_options_to_table"),
)
_RETURN_TRUE = (
    *("pg_type_is_visible", "pg_function_is_visible"),
    *("pg_operator_is_visible", "pg_collation_is_visible", "pg_opclass_is_visible"),
    *("pg_opfamily_is_visible", "has_table_privilege", "has_schema_privilege"),
    *("has_database_privilege", "has_column_privilege", "has_any_column_privilege", "pg_has_role"),
    *("has_function_privilege", "has_tablespace_privilege"),
)
FUNCTIONS |= dict.fromkeys(_RETURN_NULL, (-1, _null))
FUNCTIONS |= dict.fromkeys(_RETURN_TRUE, (-1, _yes))
FUNCTIONS["pg_relation_is_publishable"] = (1, lambda _: 0)
FUNCTIONS["pg_is_in_recovery"] = (0, lambda: 0)
FUNCTIONS["neve_function"] = (1, lambda name: str(name).removeprefix("pg_catalog."))


def register(
    connection: sqlite3.Connection,
    of_snapshot: dict[str, Callable[[Any], Any]],
    of_session: dict[str, Callable[..., Any]],
) -> None:
    """Register all functions, including those that depend on the snapshot or the session."""
    for name, (count, function) in FUNCTIONS.items():
        connection.create_function(name, count, function, deterministic=True)
    for name, function in of_snapshot.items():
        connection.create_function(name, 1, function, deterministic=True)
    for name, function in of_session.items():
        connection.create_function(name, -1, function, deterministic=True)
