"""Extracts predicates over the columns of one relation from a query's conditions.

A predicate is a necessary condition: rows for which it is not true cannot change the result. If a
part of an AND has no predicate, it is left out; if a part of an OR has none, the OR has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from sqlglot import exp

from neve.lake.sql.literals import Constants, Value


@dataclass(frozen=True)
class Compare:
    """A comparison of a column with a constant; never true for null."""

    column: str
    operator: str
    value: Value


@dataclass(frozen=True)
class OneOf:
    column: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class AllOf:
    parts: tuple[Predicate, ...]


@dataclass(frozen=True)
class AnyOf:
    parts: tuple[Predicate, ...]


Predicate: TypeAlias = Compare | OneOf | AllOf | AnyOf
Resolve: TypeAlias = Callable[[exp.Column], str | None]
"""Maps a column reference to the relation's column; None if it is uncertain."""

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NullSafeEQ: "=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def all_of(parts: Iterable[Predicate | None]) -> Predicate | None:
    """Combine the known predicates with AND."""
    known = tuple(part for part in parts if part is not None)
    if len(known) <= 1:
        return known[0] if known else None
    return AllOf(known)


class Extraction:
    """Extracts predicates for one relation."""

    def __init__(self, resolve: Resolve, constants: Constants) -> None:
        self._resolve = resolve
        self._constants = constants

    def read(self, node: exp.Expr | None) -> Predicate | None:
        """Return the predicate of a condition; None if it has none."""
        if isinstance(node, exp.Paren):
            return self.read(node.this)
        if isinstance(node, exp.And):
            return all_of(self.read(part) for part in node.flatten())
        if isinstance(node, exp.Or):
            return self._any([self.read(part) for part in node.flatten()])
        if isinstance(node, exp.Not):
            return self._negation(node.this)
        if isinstance(node, exp.Between):
            return self._between(node)
        if isinstance(node, exp.In):
            return self._in(node)
        return self._comparison(node)

    def _any(self, parts: list[Predicate | None]) -> Predicate | None:
        known = tuple(part for part in parts if part is not None)
        return AnyOf(known) if len(known) == len(parts) else None

    def _negation(self, node: exp.Expr) -> Predicate | None:
        inner = node.this if isinstance(node, exp.Paren) else node
        found = self._comparison(inner)
        if not isinstance(found, Compare) or found.operator not in _NEGATED:
            return None
        return Compare(found.column, _NEGATED[found.operator], found.value)

    def _comparison(self, node: exp.Expr | None) -> Predicate | None:
        operator = _OPERATORS.get(type(node)) if node is not None else None
        if operator is None or node is None:
            return None
        if (found := self._pair(node.this, operator, node.expression)) is not None:
            return found
        return self._pair(node.expression, _MIRRORED[operator], node.this)

    def _pair(self, left: exp.Expr, operator: str, right: exp.Expr) -> Predicate | None:
        column, value = self._column(left), self._constants.value(right)
        return None if column is None or value is None else Compare(column, operator, value)

    def _between(self, node: exp.Between) -> Predicate | None:
        if node.args.get("symmetric"):
            return None
        low = self._pair(node.this, ">=", node.args["low"])
        return all_of([low, self._pair(node.this, "<=", node.args["high"])])

    def _in(self, node: exp.In) -> Predicate | None:
        column = self._column(node.this)
        values = [self._constants.value(each) for each in node.expressions]
        if column is None or not values or any(node.args.get(name) for name in _OTHER_SETS):
            return None
        known = tuple(value for value in values if value is not None)
        return OneOf(column, known) if len(known) == len(values) else None

    def _column(self, node: exp.Expr) -> str | None:
        node = node.this if isinstance(node, exp.Paren) else node
        return self._resolve(node) if isinstance(node, exp.Column) else None


_OTHER_SETS = ("query", "unnest", "field")
