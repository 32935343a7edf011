"""Rewrites a catalogue query from PostgreSQL's SQL to SQLite's.

Works on sqlglot's tree, from the leaves up. Tables get their names in SQLite. Casts to and from
object names become functions, arrays become JSON, patterns and operators become function calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

from neve.lake.pgwire.catalog.declared import find_table
from neve.lake.pgwire.sqlstate import UNDEFINED_TABLE, SqlError

_BARE_WORDS = ("user", "current_role", "session_user", "current_user", "current_catalog")


def rewrite(tree: exp.Expr, constants: Mapping[str, Any]) -> exp.Expr:
    """Rewrite a tree. `constants` are results of the session's functions, and its settings."""
    aliases = _series_aliases(tree)
    names = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    tree = transformed(tree, lambda node: _table(node, names))
    tree = transformed(tree, lambda node: _constant(node, constants))
    return transformed(tree, lambda node: _node(node, aliases))


def transformed(tree: exp.Expr, change: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """Apply `change` to every node in place, children first."""
    for node in reversed(list(tree.dfs())):
        new = change(node)
        if new is node:
            continue
        if node is tree:
            tree = new
        else:
            node.replace(new)
    return tree


def lowered(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Identifier) and not node.args.get("quoted"):
        node.set("this", node.name.lower())
    return node


# --- tables


def _series_aliases(tree: exp.Expr) -> dict[str, set[str]]:
    """Return the aliases of functions used as tables, with the names of their column."""
    found: dict[str, set[str]] = {}
    for node in tree.find_all(exp.Table, exp.Unnest):
        is_function = isinstance(node, exp.Unnest) or isinstance(node.this, exp.Func)
        alias = node.args.get("alias")
        if is_function and alias is not None and not isinstance(node.this, exp.Anonymous):
            columns = {column.name.lower() for column in alias.args.get("columns") or ()}
            found[alias.name.lower()] = columns | {alias.name.lower()}
    return found


def table_name(node: exp.Table) -> str:
    """Return the name of a table, or of a function used as a table."""
    return str(node.this.name if isinstance(node.this, exp.Anonymous) else node.name).lower()


def _table(node: exp.Expr, common: set[str]) -> exp.Expr:
    if isinstance(node, exp.Unnest):
        return _json_table(node.expressions[0], node.alias)
    if not isinstance(node, exp.Table):
        return node
    if isinstance(node.this, exp.ExplodingGenerateSeries | exp.GenerateSeries):
        ends = [node.this.args["start"], node.this.args["end"]]
        return _json_table(exp.Anonymous(this="neve_series", expressions=ends), node.alias)
    if isinstance(node.this, exp.Explode):
        return _json_table(node.this.this, node.alias)
    name = table_name(node)
    if not node.db and name in common:
        return node
    table = find_table(node.db, name)
    if table is None:
        shown = f"{node.db}.{name}" if node.db else name
        raise SqlError(
            UNDEFINED_TABLE,
            f'relation "{shown}" is not part of the catalogue',
            hint="The catalogue cannot be joined with topics and tables.",
        )
    alias = exp.TableAlias(this=exp.to_identifier(node.alias or name, quoted=True))
    joins = node.args.get("joins")
    return exp.Table(this=exp.to_identifier(table.key, quoted=True), alias=alias, joins=joins)


def _json_table(array: exp.Expr, alias: str) -> exp.Expr:
    call = exp.Anonymous(this="json_each", expressions=[array])
    named = exp.TableAlias(this=exp.to_identifier(alias or "series", quoted=True))
    return exp.Table(this=call, alias=named)


# --- functions of the session


def _constant(node: exp.Expr, constants: Mapping[str, Any]) -> exp.Expr:
    name = _function_name(node)
    if name in constants:
        return _literal(constants[name])
    if isinstance(node, exp.Column) and not node.table and node.name in _BARE_WORDS:
        return _literal(constants[node.name])
    if name in ("current_setting", "set_config") and isinstance(node, exp.Anonymous):
        given = node.expressions[0] if node.expressions else None
        if isinstance(given, exp.Literal):
            changed = node.expressions[1] if name == "set_config" else None
            if isinstance(changed, exp.Literal):
                return exp.Literal.string(changed.name)
            return _literal(constants.get(f"setting {given.name.lower()}"))
    if isinstance(node, exp.CurrentSchemas) or name == "current_schemas":
        return exp.Literal.string('["pg_catalog", "public"]')
    return node


def _function_name(node: exp.Expr) -> str:
    if isinstance(node, exp.Anonymous):
        return str(node.name).lower()
    return _TYPED_NAMES.get(type(node), "")


_TYPED_NAMES: dict[type[exp.Expr], str] = {
    exp.CurrentUser: "current_user",
    exp.SessionUser: "session_user",
    exp.CurrentSchema: "current_schema",
    exp.CurrentDatabase: "current_database",
    exp.CurrentCatalog: "current_catalog",
    exp.CurrentVersion: "version",
}


def _literal(value: Any) -> exp.Expr:
    if value is None:
        return exp.Null()
    if isinstance(value, int):
        return exp.Literal.number(value)
    return exp.Literal.string(str(value))


# --- all other nodes


def _node(node: exp.Expr, aliases: Mapping[str, set[str]]) -> exp.Expr:
    if isinstance(node, exp.Column):
        return _column(node, aliases)
    handler = _HANDLERS.get(type(node))
    return node if handler is None else handler(node)


def _column(node: exp.Column, aliases: Mapping[str, set[str]]) -> exp.Expr:
    node.set("db", None)
    node.set("catalog", None)
    if node.name == "tableoid":
        return exp.Literal.number(0)
    columns = aliases.get(node.table or node.name)
    if columns is not None and node.name in columns:
        value = exp.column("value", table=exp.to_identifier(node.table or node.name, quoted=True))
        is_projected = isinstance(node.parent, exp.Select) and node.arg_key == "expressions"
        return exp.alias_(value, node.name) if is_projected else value
    return node


def _call(name: str, *arguments: Any) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _renamed(node: exp.Anonymous) -> exp.Expr:
    other = _OTHER_NAMES.get(str(node.name).lower())
    if other is not None:
        node.set("this", other)
    return node


_OTHER_NAMES = {
    "json_build_object": "json_object",
    "jsonb_build_object": "json_object",
    "json_agg": "json_group_array",
    "jsonb_agg": "json_group_array",
}


def _dot(node: exp.Dot) -> exp.Expr:
    """Rewrite `pg_catalog.f(x)` to `f(x)`, and a field of a composite value to NULL."""
    return node.expression if node.this.name.lower() in _SCHEMAS else exp.Null()


_SCHEMAS = ("pg_catalog", "information_schema", "public")


def _comparison(node: exp.Binary) -> exp.Expr:
    right = node.expression
    sign = "=" if isinstance(node, exp.EQ) else "<>"
    if isinstance(right, exp.Any):
        return _quantified("neve_any", node, sign, right.this)
    if isinstance(right, exp.Anonymous) and right.name.lower() == "all":
        return _quantified("neve_all", node, sign, right.expressions[0])
    return node


def _quantified(name: str, node: exp.Binary, sign: str, array: exp.Expr) -> exp.Expr:
    inside = array.unnest()
    if isinstance(inside, exp.Query):
        positive = exp.In(this=node.this, query=exp.Subquery(this=inside))
        return positive if name == "neve_any" else exp.Not(this=positive)
    return _call(name, node.this, exp.Literal.string(sign), inside)


def _operator(node: exp.Expr) -> exp.Expr:
    sign = str(node.args["operator"]).rsplit(".", 1)[-1].strip("() ")
    left, right = node.this, node.expression
    if sign in ("~", "~*", "!~", "!~*"):
        found = _call("neve_matches", left, right, exp.Literal.number(int(sign.endswith("*"))))
        return exp.Not(this=found) if sign.startswith("!") else found
    kind = {"=": exp.EQ, "<>": exp.NEQ, "~~": exp.Like, "<": exp.LT, ">": exp.GT}.get(sign)
    if kind is None:
        raise SqlError("42883", f"the operator {sign} is not supported in the catalogue")
    compared: exp.Expr = kind(this=left, expression=right)
    return compared


def _regexp(ignore_case: int) -> Callable[[Any], exp.Expr]:
    def change(node: Any) -> exp.Expr:
        number = exp.Literal.number(ignore_case)
        return _call("neve_matches", node.this, node.expression, number)

    return change


def _like(node: exp.Expr) -> exp.Expr:
    """Add PostgreSQL's default escape, the backslash; SQLite has no default escape."""
    if isinstance(node.parent, exp.Escape):
        return node
    plain = node.copy()
    return exp.Escape(this=plain, expression=exp.Literal.string("\\"))


def _array(node: exp.Array) -> exp.Expr:
    first = node.expressions[0] if node.expressions else None
    if isinstance(first, exp.Query):
        column = exp.to_identifier("item")
        inner = exp.Subquery(this=first, alias=exp.TableAlias(this=exp.to_identifier("list")))
        named = first.selects[0] if first.selects else None
        if named is not None and not isinstance(first, exp.SetOperation):
            first.set("expressions", [exp.alias_(named.unalias(), "item")])
        grouped = _call("json_group_array", exp.Column(this=column))
        return exp.Subquery(this=exp.Select(expressions=[grouped]).from_(inner))
    return _call("json_array", *node.expressions)


def _array_agg(node: exp.ArrayAgg) -> exp.Expr:
    inside = node.this
    while isinstance(inside, exp.Order | exp.Distinct):
        inside = inside.this if isinstance(inside, exp.Order) else inside.expressions[0]
    return _call("json_group_array", inside)


def _group_concat(node: exp.GroupConcat) -> exp.Expr:
    if isinstance(node.this, exp.Order):
        node.set("this", node.this.this)
    return node


def _cast(node: exp.Cast) -> exp.Expr:
    name = cast_name(node)
    inner = node.this
    is_given = isinstance(inner, exp.Literal | exp.Parameter | exp.Placeholder | exp.Var) or (
        isinstance(inner, exp.Cast) and isinstance(inner.this, exp.Parameter | exp.Var)
    )
    if name.endswith("[]") or name.startswith("_"):
        return _call("neve_array", inner)
    if name in _OBJECT_CASTS:
        number, shown = _OBJECT_CASTS[name]
        if is_given or not shown:
            return _call(number, inner) if number else inner
        return _call(shown, *([inner, exp.Null()] if shown == "format_type" else [inner]))
    if name in ("bool", "boolean"):
        return _call("neve_bool", inner)
    if name in _INTEGERS:
        return exp.Cast(this=inner, to=exp.DataType(this=exp.DataType.Type.INT))
    if name in _TEXTS:
        return exp.Cast(this=inner, to=exp.DataType(this=exp.DataType.Type.TEXT))
    uncast: exp.Expr = inner
    return uncast


_INTEGERS = ("int", "integer", "smallint", "bigint", "int2", "int4", "int8", "oid", "xid")
_TEXTS = ("text", "varchar", "character varying", "name", "char", "bpchar", "character")
_OBJECT_CASTS = {
    "regclass": ("neve_class", "neve_class_name"),
    "regtype": ("neve_type", "format_type"),
    "regnamespace": ("neve_schema", "neve_schema_name"),
    "regrole": ("", "pg_get_userbyid"),
    "regproc": ("neve_function", ""),
    "regprocedure": ("neve_function", ""),
}
"""Target type of a cast to the functions from name to oid and from oid to name."""


def cast_name(node: exp.Cast) -> str:
    """Return the target type in lower case, without schema and size."""
    text = node.to.sql("postgres").lower()
    text = text.removeprefix("pg_catalog.").strip('"').split("(")[0]
    return text.removeprefix("information_schema.").strip()


def _bracket(node: exp.Bracket) -> exp.Expr:
    return _call("neve_element", node.this.unnest(), node.expressions[0])


def _parameter(node: exp.Parameter) -> exp.Expr:
    return exp.Var(this=f"?{node.name}")


def _nothing(_: exp.Expr) -> exp.Expr:
    return exp.Null()


def _inner(node: exp.Expr) -> exp.Expr:
    inside: exp.Expr = node.this
    return inside


_HANDLERS: dict[type[exp.Expr], Callable[[Any], exp.Expr]] = {
    exp.Dot: _dot,
    exp.Anonymous: _renamed,
    exp.EQ: _comparison,
    exp.NEQ: _comparison,
    exp.Operator: _operator,
    exp.RegexpLike: _regexp(0),
    exp.RegexpILike: _regexp(1),
    exp.Like: _like,
    exp.Array: _array,
    exp.ArrayAgg: _array_agg,
    exp.GroupConcat: _group_concat,
    exp.LogicalAnd: lambda node: exp.Min(this=node.this),
    exp.LogicalOr: lambda node: exp.Max(this=node.this),
    exp.Cast: _cast,
    exp.Bracket: _bracket,
    exp.Parameter: _parameter,
    exp.Explode: _nothing,
    exp.Collate: _inner,
    exp.ByteString: lambda node: exp.Literal.string(node.name),
}
