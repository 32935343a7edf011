"""Evaluates constants of a query before Spark runs it.

If a value is uncertain the result is None, and the caller then reads more. Text is parsed as a
timestamp only when a timestamp column is compared with it: `moment_of` parses Spark's notation, in
the session's time zone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TypeAlias
from zoneinfo import ZoneInfo

from sqlglot import exp


@dataclass(frozen=True)
class FromNow:
    """Spark's current time plus this shift. Spark reads its clock later than this process."""

    shift: timedelta


Value: TypeAlias = int | Decimal | str | datetime | date | FromNow

_WHOLE = re.compile(r"[+-]?\d{1,18}")
_MOMENT = re.compile(
    r"(\d{4}-\d{2}-\d{2})"
    r"(?:[ T](\d{2}:\d{2})(?::(\d{2})(?:\.(\d{1,6}))?)?(Z|[+-]\d{2}(?::\d{2})?)?)?"
)
_INTEGERS = {exp.DataType.Type.INT: 2**31, exp.DataType.Type.BIGINT: 2**63}
"""Bounds of integer types: beyond them a cast fails or wraps, depending on Spark's settings."""
_TIMESTAMPS = {
    exp.DataType.Type.TIMESTAMP,
    exp.DataType.Type.TIMESTAMPTZ,
    exp.DataType.Type.TIMESTAMPLTZ,
    exp.DataType.Type.TIMESTAMPNTZ,
}
_UNITS = {"SECOND": "seconds", "MINUTE": "minutes", "HOUR": "hours", "DAY": "days", "WEEK": "weeks"}
_SOON = timedelta(minutes=1)
_LENGTH_MAX = timedelta(days=365 * 300)
"""Longer intervals are not evaluated: they soon exceed the range of dates."""
_DIGITS_MAX = 40
"""The maximum number of digits; Spark's decimals have 38."""
_CLOCK_CHANGE = timedelta(hours=2)
"""Tolerance for daylight saving time: a day of the session's zone may have 23 or 25 hours."""


@dataclass(frozen=True)
class Constants:
    """Evaluates constants with the session's time zone and the values of parameters."""

    zone: ZoneInfo | None = None
    parameters: Mapping[str, object] | None = None

    def value(self, node: exp.Expr) -> Value | None:
        """Return the constant value of an expression, or None."""
        if isinstance(node, exp.Paren):
            return self.value(node.this)
        if isinstance(node, exp.Literal):
            return node.this if node.is_string else _number(node.this)
        if isinstance(node, exp.Neg):
            inner = self.value(node.this)
            return -inner if isinstance(inner, int | Decimal) else None
        if isinstance(node, exp.Cast):
            return self._cast(node)
        if isinstance(node, exp.Placeholder):
            return _given((self.parameters or {}).get(str(node.this)))
        return _current(node)

    def _cast(self, node: exp.Cast) -> Value | None:
        inner, wanted = self.value(node.this), node.to.this
        if isinstance(inner, int) and wanted in _INTEGERS:
            return inner if abs(inner) < _INTEGERS[wanted] else None
        if isinstance(inner, str) and wanted in _TIMESTAMPS:
            without_zone = wanted == exp.DataType.Type.TIMESTAMPNTZ
            # Spark then ignores the zone in the text, and uses the session's.
            return None if without_zone and _names_zone(inner) else self.moment_of(inner)
        if isinstance(inner, str) and wanted == exp.DataType.Type.DATE:
            return day_of(inner)
        return None

    def moment_of(self, value: Value) -> datetime | None:
        """Return the timestamp that a timestamp column is compared with."""
        if isinstance(value, datetime):
            return value if value.tzinfo is not None else None
        if isinstance(value, date):
            return self._in_zone(datetime.combine(value, time()))
        return self._parsed(value) if isinstance(value, str) else None

    def _parsed(self, text: str) -> datetime | None:
        found = _MOMENT.fullmatch(text.strip())
        if found is None:
            return None
        day, clock, seconds, fraction, zone = found.groups()
        micros = (fraction or "").ljust(6, "0")
        try:
            moment = datetime.fromisoformat(f"{day}T{clock or '00:00'}:{seconds or '00'}.{micros}")
            if zone is None:
                return self._in_zone(moment)
            return datetime.fromisoformat(moment.isoformat() + zone).astimezone(UTC)
        except (ValueError, OverflowError):
            return None

    def _in_zone(self, moment: datetime) -> datetime | None:
        if self.zone is None:
            return None
        try:
            return moment.replace(tzinfo=self.zone).astimezone(UTC)
        except OverflowError:
            return None


def _names_zone(text: str) -> bool:
    found = _MOMENT.fullmatch(text.strip())
    return found is None or found[5] is not None


def whole_of(value: Value) -> int | Decimal | None:
    """Return the number that an integer column is compared with."""
    if isinstance(value, str):
        return int(value) if _WHOLE.fullmatch(value.strip()) else None
    return value if isinstance(value, int | Decimal) else None


def day_of(value: Value) -> date | None:
    """Return the date that a date column is compared with."""
    if isinstance(value, str):
        try:
            return date.fromisoformat(value) if re.fullmatch(r"\d{4}-\d{2}-\d{2}", value) else None
        except ValueError:
            return None
    return value if isinstance(value, date) and not isinstance(value, datetime) else None


def _number(text: str) -> int | Decimal | None:
    if text.isdecimal():
        return int(text)
    return Decimal(text) if re.fullmatch(r"\d*\.\d+|\d+\.", text) else None


def _given(value: object) -> Value | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, Decimal) and not (value.is_finite() and _is_short(value)):
        return None  # comparing it with an integer could compute a billion digits
    return value if isinstance(value, int | Decimal | str | date) else None


def _is_short(value: Decimal) -> bool:
    return int(value.as_tuple().exponent) >= -_DIGITS_MAX and value.adjusted() <= _DIGITS_MAX


def _current(node: exp.Expr) -> FromNow | None:
    if isinstance(node, exp.CurrentTimestamp) or (
        isinstance(node, exp.Anonymous) and node.name.lower() == "now" and not node.expressions
    ):
        return FromNow(-_SOON)
    if isinstance(node, exp.Sub | exp.Add):
        moment, length = _current(node.this), _length(node.expression)
        if moment is not None and length is not None:
            shift = -length if isinstance(node, exp.Sub) else length
            slack = _CLOCK_CHANGE if length >= timedelta(days=1) else timedelta()
            return FromNow(moment.shift + shift - slack)
    return None


def _length(node: exp.Expr) -> timedelta | None:
    if not isinstance(node, exp.Interval) or not isinstance(node.args.get("unit"), exp.Var):
        return None
    unit = _UNITS.get(node.args["unit"].name.upper().removesuffix("S"))
    count = node.this
    if unit is None or not isinstance(count, exp.Literal) or not count.this.isdecimal():
        return None
    try:
        length = timedelta(**{unit: int(count.this)})
    except (OverflowError, ValueError):
        return None
    return length if length <= _LENGTH_MAX else None
