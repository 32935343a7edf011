"""Resolves names in a parsed query: common table expressions, aliases, stars. Pure."""

from __future__ import annotations

from sqlglot import exp


def is_relation(table: exp.Table) -> bool:
    """Return True for the name of a relation, not for a table function or an alias in a hint."""
    return not isinstance(table.parent, exp.JoinHint) and all(
        isinstance(part, exp.Identifier) for part in table.parts
    )


def alias_of(source: exp.Expr) -> str:
    """Return the qualifier of the relation's columns, in lower case."""
    return (source.alias_or_name or "").lower()


def is_cte_reference(table: exp.Table) -> bool:
    """Return True if a name refers to a common table expression that is visible there."""
    if table.args.get("db") is not None:
        return False
    name, node = table.name.lower(), table.parent
    came_from: exp.Expr = table
    while node is not None:
        if isinstance(node, exp.With):
            if _defined_before(node, came_from, name):
                return True
        else:
            within = node.args.get("with_")
            if isinstance(within, exp.With) and within is not came_from and _defines(within, name):
                return True
        came_from, node = node, node.parent
    return False


def _defines(within: exp.With, name: str) -> bool:
    return any(cte.alias.lower() == name for cte in within.expressions)


def _defined_before(within: exp.With, cte: exp.Expr, name: str) -> bool:
    """Return True if `name` is visible inside `cte`: an earlier expression of the WITH, or itself
    if the WITH is recursive.
    """
    for each in within.expressions:
        if each is cte:
            return bool(within.recursive) and each.alias.lower() == name
        if each.alias.lower() == name:
            return True
    return False


def own_select(table: exp.Expr) -> tuple[exp.Select | None, exp.Join | None]:
    """Return the SELECT that has a relation as a source, and the relation's join if it is in one.

    Returns (None, None) for a relation elsewhere.
    """
    parent = table.parent
    if isinstance(parent, exp.From) and isinstance(parent.parent, exp.Select):
        return parent.parent, None
    if isinstance(parent, exp.Join) and isinstance(parent.parent, exp.Select):
        return parent.parent, parent
    return None, None


def needs_all_columns(table: exp.Table) -> bool:
    """Return True if the query may use columns of the relation without naming them."""
    select = table.find_ancestor(exp.Select)
    if select is None or table.alias_column_names or select.find(exp.Pivot) is not None:
        return True
    if any((join.method or "").upper() == "NATURAL" for join in select.find_all(exp.Join)):
        return True
    return any(_star_reaches(star, table, select) for star in _root(table).find_all(exp.Star))


def _root(node: exp.Expr) -> exp.Expr:
    while node.parent is not None:
        node = node.parent
    return node


def _star_reaches(star: exp.Star, table: exp.Table, select: exp.Select) -> bool:
    if type(star.parent) is exp.Count:
        return False
    qualifier = star.parent.table.lower() if isinstance(star.parent, exp.Column) else ""
    if qualifier and qualifier == alias_of(table):
        return True
    # A star qualified by another name or by a struct column does not include this table.
    beside = star.find_ancestor(exp.Select)
    return not qualifier and beside is select and not isinstance(beside.parent, exp.Exists)


def mentions_of(tree: exp.Expr) -> tuple[set[str], set[tuple[str, str]]]:
    """Return lower-case names that may be columns: of any relation, and as (qualifier, name)."""
    anywhere: set[str] = set()
    by_alias: set[tuple[str, str]] = set()
    aliases = {alias_of(source) for source in tree.find_all(exp.Table, exp.Subquery, exp.Lateral)}
    for identifier in tree.find_all(exp.Identifier):
        if isinstance(identifier.parent, exp.Table | exp.TableAlias):
            continue
        column = identifier.parent
        if isinstance(column, exp.Column) and column.args.get("table") is not None:
            qualifier = column.table.lower()
            if identifier is column.this and qualifier in aliases:
                by_alias.add((qualifier, identifier.name.lower()))
                continue
        anywhere.add(identifier.name.lower())
    anywhere |= {variable.name.lower() for variable in tree.find_all(exp.Var)}
    return anywhere, by_alias
