"""Converts a predicate to ranges of offsets, timestamps and partitions of a topic.

The ranges contain every record for which the predicate could be true, and maybe more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce

from neve.lake.sql.literals import Constants, FromNow, Value, whole_of
from neve.lake.sql.predicates import AllOf, AnyOf, Compare, OneOf, Predicate

LOWEST, HIGHEST = -(2**63), 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Span:
    """Integers from `first` to `end` (exclusive)."""

    first: int = LOWEST
    end: int = HIGHEST

    @property
    def empty(self) -> bool:
        return self.first >= self.end

    @property
    def known(self) -> bool:
        return self != Span()

    def both(self, other: Span) -> Span:
        return Span(max(self.first, other.first), min(self.end, other.end))

    def either(self, other: Span) -> Span:
        if self.empty or other.empty:
            return other if self.empty else self
        return Span(min(self.first, other.first), max(self.end, other.end))


@dataclass(frozen=True)
class Ranges:
    """Ranges of a topic: timestamps in milliseconds, `partitions` of None for all."""

    offsets: Span = Span()
    times_ms: Span = Span()
    partitions: frozenset[int] | None = None

    @property
    def empty(self) -> bool:
        return self.offsets.empty or self.times_ms.empty or self.partitions == frozenset()

    def both(self, other: Ranges) -> Ranges:
        mine, theirs = self.partitions, other.partitions
        partitions = mine & theirs if mine is not None and theirs is not None else mine
        return Ranges(
            self.offsets.both(other.offsets),
            self.times_ms.both(other.times_ms),
            theirs if mine is None else partitions,
        )

    def either(self, other: Ranges) -> Ranges:
        if self.empty or other.empty:
            return other if self.empty else self
        mine, theirs = self.partitions, other.partitions
        return Ranges(
            self.offsets.either(other.offsets),
            self.times_ms.either(other.times_ms),
            None if mine is None or theirs is None else mine | theirs,
        )


EVERYTHING = Ranges()


def ranges_of(predicate: Predicate | None, constants: Constants, now_ms: int) -> Ranges:
    """Return the ranges of a predicate."""
    if predicate is None:
        return EVERYTHING
    if isinstance(predicate, AllOf):
        boxes = [ranges_of(part, constants, now_ms) for part in predicate.parts]
        return reduce(Ranges.both, boxes)
    if isinstance(predicate, AnyOf):
        boxes = [ranges_of(part, constants, now_ms) for part in predicate.parts]
        return reduce(Ranges.either, boxes)
    if isinstance(predicate, OneOf):
        each = [Compare(predicate.column, "=", value) for value in predicate.values]
        return reduce(Ranges.either, [_compared(one, constants, now_ms) for one in each])
    return _compared(predicate, constants, now_ms)


def _compared(compare: Compare, constants: Constants, now_ms: int) -> Ranges:
    if compare.column == "timestamp":
        return replace(EVERYTHING, times_ms=_times(compare, constants, now_ms))
    if compare.column not in ("offset", "partition"):
        return EVERYTHING
    span = _wholes(compare.operator, compare.value)
    if compare.column == "offset":
        return replace(EVERYTHING, offsets=span)
    if compare.operator == "=" and span.known and span.end - span.first <= 1:
        numbers = frozenset(range(span.first, span.end))
        return replace(EVERYTHING, partitions=numbers)
    return EVERYTHING


def _wholes(operator: str, value: Value) -> Span:
    number = whole_of(value)
    if number is None:
        return Span()
    low, high = math.floor(number), math.ceil(number)
    return _bounded(operator, low, high)


def _times(compare: Compare, constants: Constants, now_ms: int) -> Span:
    value = compare.value
    if isinstance(value, FromNow):
        # Spark reads its clock after this process, so only a lower bound is certain.
        first = now_ms + math.floor(value.shift / timedelta(milliseconds=1))
        return Span(first) if compare.operator in (">", ">=", "=") else Span()
    moment = constants.moment_of(value)
    if moment is None:
        return Span()
    microseconds = (moment - _EPOCH) // timedelta(microseconds=1)
    return _bounded(compare.operator, microseconds // 1000, -(-microseconds // 1000))


def _bounded(operator: str, low: int, high: int) -> Span:
    """Return the span for a bound that may lie between two integers."""
    low, high = (max(LOWEST, min(number, HIGHEST - 1)) for number in (low, high))
    if operator == "=":
        return Span(low, high + 1)
    if operator == ">":
        return Span(low + 1 if low == high else low)
    if operator == ">=":
        return Span(low)
    return Span(LOWEST, high if operator == "<" else high + 1)
