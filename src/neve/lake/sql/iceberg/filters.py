"""Converts a query's conditions to Iceberg's, to plan files and to skip row groups.

Only conditions with the same meaning in both are converted. Floating-point columns are left out,
since Spark orders NaN above every number and Iceberg's bounds ignore it. So are comparisons that
need a cast.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from neve.lake.sql.literals import Constants, FromNow, Value, day_of, whole_of
from neve.lake.sql.predicates import AllOf, AnyOf, Compare, OneOf, Predicate

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1


class Filters:
    """Converts predicates to expressions over one table."""

    def __init__(self, schema: Schema, constants: Constants, now_ms: int) -> None:
        names = [field.name.lower() for field in schema.fields]
        # Names that differ only in case are left out: Spark's settings decide which one is meant.
        self._columns = {
            name: field
            for name, field in zip(names, schema.fields, strict=True)
            if names.count(name) == 1
        }
        self._constants = constants
        self._now = datetime.fromtimestamp(now_ms / 1000, UTC)

    def expression(self, predicate: Predicate | None) -> BooleanExpression | None:
        """Return the condition for Iceberg, or None if no part can be converted."""
        from pyiceberg.expressions import And, Or

        if isinstance(predicate, AllOf):
            parts = [self.expression(part) for part in predicate.parts]
            known = [part for part in parts if part is not None]
            return And(*known) if len(known) > 1 else (known[0] if known else None)
        if isinstance(predicate, AnyOf):
            parts = [self.expression(part) for part in predicate.parts]
            known = [part for part in parts if part is not None]
            if not known or len(known) < len(parts):
                return None
            return Or(*known) if len(known) > 1 else known[0]
        if isinstance(predicate, OneOf):
            each = [Compare(predicate.column, "=", value) for value in predicate.values]
            return self.expression(AnyOf(tuple(each)))
        return self._comparison(predicate) if predicate is not None else None

    def _comparison(self, compare: Compare) -> BooleanExpression | None:
        from pyiceberg import expressions

        kinds: dict[str, Any] = {
            "=": expressions.EqualTo,
            "<": expressions.LessThan,
            "<=": expressions.LessThanOrEqual,
            ">": expressions.GreaterThan,
            ">=": expressions.GreaterThanOrEqual,
        }
        value = self._literal(compare.column, compare.operator, compare.value)
        if value is None:
            return None
        found: BooleanExpression = kinds[compare.operator](
            self._columns[compare.column].name, value
        )
        return found

    def _literal(self, column: str, operator: str, value: Value) -> Any:
        field = self._columns.get(column)
        if field is None:
            return None
        if isinstance(value, FromNow):
            return self._from_now(field.field_type, operator, value.shift)
        return _typed(field.field_type, value, self._constants)

    def _from_now(self, kind: IcebergType, operator: str, shift: timedelta) -> str | None:
        from pyiceberg.types import TimestamptzType

        if not isinstance(kind, TimestamptzType) or operator not in (">", ">="):
            return None
        return (self._now + shift).isoformat(timespec="microseconds")


def _typed(kind: IcebergType, value: Value, constants: Constants) -> Any:
    from pyiceberg import types

    if isinstance(kind, types.IntegerType | types.LongType):
        number = whole_of(value)
        most = INT_MAX if isinstance(kind, types.IntegerType) else LONG_MAX
        return number if isinstance(number, int) and abs(number) <= most else None
    if isinstance(kind, types.StringType):
        return value if isinstance(value, str) else None
    if isinstance(kind, types.DateType):
        day = day_of(value)
        return None if day is None else day.isoformat()
    if isinstance(kind, types.TimestamptzType):
        moment = constants.moment_of(value)
        return None if moment is None else moment.isoformat(timespec="microseconds")
    if isinstance(kind, types.DecimalType):
        return _decimal(kind.precision, kind.scale, value)
    return None


def _decimal(precision: int, scale: int, value: Value) -> Decimal | None:
    if not isinstance(value, int | Decimal):
        return None
    try:
        exact = Decimal(value).quantize(Decimal(1).scaleb(-scale))
    except InvalidOperation:
        return None
    fits = exact == value and len(exact.as_tuple().digits) <= precision
    return exact if fits else None


def expression_text(expression: Any) -> str:
    """Format an expression for EXPLAIN."""
    from pyiceberg.expressions import And, Or

    if isinstance(expression, And | Or):
        word = " and " if isinstance(expression, And) else " or "
        return f"({expression_text(expression.left)}{word}{expression_text(expression.right)})"
    signs = {
        "EqualTo": "=",
        "LessThan": "<",
        "LessThanOrEqual": "<=",
        "GreaterThan": ">",
        "GreaterThanOrEqual": ">=",
    }
    value = expression.literal.value
    sign = signs[type(expression).__name__]
    return f"{expression.term.name} {sign} {value!r}"
