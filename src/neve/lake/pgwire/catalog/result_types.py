"""Infers names and types of the columns of a catalogue query.

SQLite has no boolean and no oid, but clients need these types, so they are inferred from the query.
A type that cannot be inferred is text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from neve.lake.pgwire.catalog.declared import find_table
from neve.lake.pgwire.catalog.rewrite import cast_name, table_name
from neve.lake.pgwire.types import BY_NAME, SCALARS, PgType, array_of

Typed = list[tuple[str, PgType]]
Scope = dict[str, Typed]

_TEXT, _BOOL = BY_NAME["text"], BY_NAME["bool"]
_INT4, _INT8 = BY_NAME["int4"], BY_NAME["int8"]
_UNNAMED = "?column?"
_FUNCTIONS = {
    "pg_backend_pid": _INT4,
    "to_regtype": _INT4,
    "generate_subscripts": _INT4,
    "array_length": _INT4,
    "array_upper": _INT4,
    "pg_char_to_encoding": _INT4,
    "pg_table_size": _INT8,
    "pg_relation_size": _INT8,
    "pg_total_relation_size": _INT8,
    "pg_database_size": _INT8,
    "to_regclass": _TEXT,
}
_BY_SQL_NAME = {each.sql_name: each for each in SCALARS} | {each.name: each for each in SCALARS}
_BY_SQL_NAME |= {"int": _INT4, "regclass": _TEXT, "regtype": _TEXT, "regproc": _TEXT}
_BY_SQL_NAME |= {"regnamespace": _TEXT, "regrole": _TEXT}


def columns_of(query: exp.Expr, outer: Scope | None = None) -> Typed:
    """Return the columns of a SELECT, a set operation or a parenthesised query."""
    if isinstance(query, exp.Subquery | exp.Paren):
        return columns_of(query.this, outer)
    if isinstance(query, exp.SetOperation):
        return columns_of(query.this, outer)
    if not isinstance(query, exp.Select):
        return []
    scope = {**(outer or {}), **_scope(query, outer or {})}
    found: Typed = []
    for projection in query.expressions:
        if projection.is_star:
            found += _expanded(projection, _scope(query, outer or {}))
        else:
            found.append((_name(projection), _type(projection, scope)))
    return found


def _scope(select: exp.Select, outer: Scope) -> Scope:
    common: Scope = dict(outer)
    clause = select.args.get("with_") or select.args.get("with")
    for cte in clause.expressions if clause is not None else ():
        common[f"with {cte.alias}"] = columns_of(cte.this, common)
    found: Scope = {key: value for key, value in common.items() if key.startswith("with ")}
    origin = select.args.get("from_") or select.args.get("from")
    joined = [join.this for join in select.args.get("joins") or ()]
    for source in [*([origin.this] if origin is not None else []), *joined]:
        name = source.alias or source.name
        found[name] = _source(source, common)
        for join in source.args.get("joins") or ():
            found[join.this.alias or join.this.name] = _source(join.this, common)
    return found


def _source(source: exp.Expr, common: Scope) -> Typed:
    if isinstance(source, exp.Subquery):
        return columns_of(source.this, common)
    if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier | exp.Anonymous):
        named = table_name(source)
        if not source.db and f"with {named}" in common:
            return common[f"with {named}"]
        table = find_table(source.db, named)
        return list(table.columns.items()) if table is not None else []
    alias = source.args.get("alias")
    names = [column.name for column in alias.args.get("columns") or ()] if alias else []
    is_series = isinstance(source.this, exp.ExplodingGenerateSeries | exp.GenerateSeries)
    return [(name, _INT4 if is_series else _TEXT) for name in names or [source.alias]]


def _expanded(star: exp.Expr, scope: Scope) -> Typed:
    named = star.args.get("table") if isinstance(star, exp.Column) else None
    if named is not None:
        return scope.get(named.name, [])
    tables = [columns for key, columns in scope.items() if not key.startswith("with ")]
    return [column for columns in tables for column in columns]


def _name(node: exp.Expr) -> str:
    """Return the name that PostgreSQL gives to a column without an alias."""
    if isinstance(node, exp.Alias | exp.Column):
        return node.alias_or_name
    if isinstance(node, exp.Cast | exp.Paren):
        inner = _name(node.this)
        return cast_name(node) if isinstance(node, exp.Cast) and inner == _UNNAMED else inner
    if isinstance(node, exp.Dot):
        return _name(node.expression)
    if isinstance(node, exp.Identifier | exp.Anonymous):
        return str(node.name)
    if isinstance(node, exp.Subquery):
        inside = columns_of(node)
        return inside[0][0] if inside else _UNNAMED
    if isinstance(node, exp.Case):
        return "case"
    if isinstance(node, exp.Func) and not isinstance(node, exp.Connector):
        return _FUNCTION_NAMES.get(type(node), node.sql_name().lower())
    return _UNNAMED


_FUNCTION_NAMES = {exp.CurrentVersion: "version", exp.GroupConcat: "string_agg"}


def _type(node: Any, scope: Scope) -> PgType:
    if isinstance(node, exp.Not | exp.Predicate | exp.Connector | exp.Boolean | exp.Operator):
        return _BOOL
    for kinds, find in _INFERENCE:
        if isinstance(node, kinds):
            return find(node, scope)
    return _TEXT


def _of_this(node: Any, scope: Scope) -> PgType:
    return _type(node.this, scope)


def _of_column(node: exp.Column, scope: Scope) -> PgType:
    tables = [scope.get(node.table, [])] if node.table else list(reversed(scope.values()))
    for columns in tables:
        for name, kind in columns:
            if name == node.name:
                return kind
    return _TEXT


def _of_literal(node: exp.Literal, _: Scope) -> PgType:
    if node.is_string:
        return _TEXT
    if "." in node.name or "e" in node.name.lower():
        return BY_NAME["float8"]
    return _INT4 if abs(int(node.name)) < 2**31 else _INT8


def _of_cast(node: exp.Cast, _: Scope) -> PgType:
    name = cast_name(node)
    if name.endswith("[]"):
        return array_of(_BY_SQL_NAME.get(name.removesuffix("[]"), _TEXT))
    return _BY_SQL_NAME.get(name, _TEXT)


def _of_case(node: exp.Case, scope: Scope) -> PgType:
    branches = [branch.args["true"] for branch in node.args["ifs"]]
    branches += [node.args["default"]] if node.args.get("default") is not None else []
    return _first_known(branches, scope)


def _of_coalesce(node: exp.Coalesce, scope: Scope) -> PgType:
    return _first_known([node.this, *node.expressions], scope)


def _first_known(nodes: list[Any], scope: Scope) -> PgType:
    known = [node for node in nodes if not isinstance(node, exp.Null)]
    return _type(known[0], scope) if known else _TEXT


def _of_query(node: exp.Expr, scope: Scope) -> PgType:
    inside = columns_of(node, scope)
    return inside[0][1] if inside else _TEXT


def _of_array(node: Any, scope: Scope) -> PgType:
    inside = node.this if isinstance(node, exp.ArrayAgg) else (node.expressions or [None])[0]
    if isinstance(inside, exp.Query):
        element = _of_query(inside, scope)
    else:
        element = _type(inside.this if isinstance(inside, exp.Order) else inside, scope)
    return array_of(element if element.array_oid else _TEXT)


def _of_function(node: exp.Anonymous, _: Scope) -> PgType:
    name = str(node.name).lower()
    if name.endswith("_is_visible") or name.startswith("has_") or name == "pg_is_in_recovery":
        return _BOOL
    return _FUNCTIONS.get(name, _TEXT)


def _of_dot(node: exp.Dot, scope: Scope) -> PgType:
    return _type(node.expression, scope)


def _constant(kind: PgType) -> Callable[[Any, Scope], PgType]:
    return lambda _node, _scope: kind


_INFERENCE: list[tuple[Any, Callable[[Any, Scope], PgType]]] = [
    ((exp.Alias, exp.Paren, exp.Min, exp.Max, exp.Nullif, exp.Neg, exp.Window), _of_this),
    (exp.Column, _of_column),
    (exp.Literal, _of_literal),
    (exp.Cast, _of_cast),
    (exp.Case, _of_case),
    (exp.Coalesce, _of_coalesce),
    (exp.Query, _of_query),
    ((exp.Array, exp.ArrayAgg), _of_array),
    ((exp.CurrentSchemas,), _constant(array_of(BY_NAME["name"]))),
    ((exp.Count, exp.RowNumber, exp.Sum), _constant(_INT8)),
    ((exp.LogicalAnd, exp.LogicalOr), _constant(_BOOL)),
    ((exp.Add, exp.Sub, exp.Mul, exp.Length, exp.BitwiseAnd), _constant(_INT4)),
    (exp.Anonymous, _of_function),
    (exp.Dot, _of_dot),
]
