"""Finds the condition that rows of a relation must meet to affect a query's result.

The WHERE of the relation's SELECT and the ON of its own join exclude rows. No condition that is
used is true for null, so they are also valid with outer joins: an excluded row could only be
replaced by nulls, which the same condition excludes. Conditions on a sub-query, or on a common
table expression that is used once, apply to the relation inside if the inner SELECT returns the
column unchanged and has no aggregate, limit or window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from sqlglot import exp

from neve.lake.sql.literals import Constants
from neve.lake.sql.predicates import Extraction, Predicate, all_of
from neve.lake.sql.scopes import alias_of, own_select

Mapped: TypeAlias = Callable[[exp.Column], str | None]
Renamed: TypeAlias = Callable[[str], str | None]
"""Maps a column name of a source to the relation's column; None if there is none."""

_BINDING_KINDS = frozenset({"", "INNER", "SEMI", "ANTI"})
_DEPTH_MAX = 16
_KEEPS_EVERY_ROW = frozenset({"from_", "joins", "expressions", "where", "with_", "kind", "hint"})
"""Parts that a SELECT may have if conditions on its result are to apply to its input rows."""


def necessary(table: exp.Table, constants: Constants) -> Predicate | None:
    """Return the condition that rows of this relation must meet; None if all are needed."""
    if table.alias_column_names or table.args.get("joins") or table.args.get("pivots"):
        return None
    found: list[Predicate | None] = []
    source: exp.Expr | None = table
    renamed: Renamed | None = str.lower
    for _ in range(_DEPTH_MAX):
        if source is None or renamed is None:
            break
        select, join = own_select(source)
        if select is None or select.find(exp.Pivot, exp.TableSample) is not None:
            break
        resolve = _resolution(source, select, renamed)
        if resolve is None:
            break
        extraction = Extraction(resolve, constants)
        found += _beside(select, join, extraction)
        if join is not None and _kind(join) in ("SEMI", "ANTI"):
            break  # its columns are not part of the result
        source, renamed = _outer(select), _passed_on(select, resolve)
    return all_of(found)


def _kind(join: exp.Join) -> str:
    return (join.args.get("kind") or "").upper()


def _beside(
    select: exp.Select, join: exp.Join | None, extraction: Extraction
) -> list[Predicate | None]:
    found: list[Predicate | None] = []
    where = select.args.get("where")
    if where is not None and (join is None or _kind(join) not in ("SEMI", "ANTI")):
        found.append(extraction.read(where.this))
    side = (join.args.get("side") or "").upper() if join is not None else ""
    if join is not None and _kind(join) in _BINDING_KINDS and side in ("", "LEFT"):
        found.append(extraction.read(join.args.get("on")))
    return found


def _resolution(source: exp.Expr, select: exp.Select, renamed: Renamed) -> Mapped | None:
    """Return the mapping from columns in a SELECT to columns of the relation in this source.

    Returns None if the source's alias is not unique.
    """
    joins = select.args.get("joins") or []
    sources = [select.args["from_"].this, *(join.this for join in joins)]
    alias = alias_of(source)
    if sum(alias_of(each) == alias for each in sources) != 1:
        return None
    alone = len(sources) == 1 and not select.args.get("laterals")

    def resolve(column: exp.Column) -> str | None:
        if column.args.get("db") is not None or isinstance(column.this, exp.Star):
            return None
        mine = column.table.lower() == alias if column.table else alone
        return renamed(column.name) if mine else None

    return resolve


def _passed_on(select: exp.Select, resolve: Mapped) -> Renamed | None:
    """Return the mapping from a SELECT's result columns to the relation's columns.

    Returns None if conditions on the result do not apply to the SELECT's input rows.
    """
    given = {name for name, value in select.args.items() if value}
    if not given <= _KEEPS_EVERY_ROW or select.args.get("kind"):
        return None
    if any(node for each in select.expressions for node in each.find_all(*_NOT_BY_ROW)):
        return None
    stars = [each for each in select.expressions if isinstance(each, exp.Star)]
    plain_star = bool(stars) and not any(value for each in stars for value in each.args.values())
    named: dict[str, exp.Expr] = {}
    for each in select.expressions:
        if not isinstance(each, exp.Star):
            named[each.alias_or_name.lower()] = each.unalias()

    def renamed(name: str) -> str | None:
        expression = named.get(name.lower())
        if isinstance(expression, exp.Column):
            return resolve(expression)
        if expression is None and plain_star:
            return resolve(exp.column(name))
        return None

    return renamed


_NOT_BY_ROW = (exp.AggFunc, exp.Window, exp.UDTF, exp.Explode, exp.Anonymous, exp.Query)
"""Expressions that are not computed from one row, or may not be: unknown functions."""


def _outer(select: exp.Select) -> exp.Expr | None:
    """Return the only source with a SELECT's result: its sub-query, or the reference to its CTE.

    Returns None if there is not exactly one, or if it renames the columns.
    """
    parent = select.parent
    if isinstance(parent, exp.Subquery):
        plain = not parent.alias_column_names and not parent.args.get("joins")
        return parent if plain and not parent.args.get("pivots") else None
    if isinstance(parent, exp.CTE) and not parent.alias_column_names:
        return _only_reference(parent)
    return None


def _only_reference(cte: exp.CTE) -> exp.Expr | None:
    root: exp.Expr = cte
    while root.parent is not None:
        root = root.parent
    name = cte.alias.lower()
    same_name = [each for each in root.find_all(exp.CTE) if each.alias.lower() == name]
    references = [each for each in root.find_all(exp.Table) if each.name.lower() == name]
    if len(same_name) != 1 or len(references) != 1:
        return None
    return None if references[0].alias_column_names else references[0]
