"""Converts Spark's filters to bounds for planning.

The bounds keep every row that passes the filters. Spark applies all filters again, so filters that
are not understood here are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from neve.lake.scan.bounds import RowBounds

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def narrowed(bounds: RowBounds, filters: Iterable[Filter]) -> RowBounds:
    """Return the bounds, narrowed by all filters."""
    found = bounds
    for each in filters:
        attribute: tuple[str, ...] = getattr(each, "attribute", ())
        narrow = _NARROWING.get(attribute[0]) if len(attribute) == 1 else None
        if narrow is not None:
            found = narrow(found, each)
    return found


def _topic(found: RowBounds, each: Filter) -> RowBounds:
    test: tuple[str, Any] | None = None
    if isinstance(each, EqualTo | EqualNullSafe | In):
        test = ("in", _values(each))
    elif isinstance(each, StringStartsWith):
        test = ("starts", each.value)
    elif isinstance(each, StringEndsWith):
        test = ("ends", each.value)
    elif isinstance(each, StringContains):
        test = ("contains", each.value)
    return found if test is None else replace(found, topic_tests=(*found.topic_tests, test))


def _partition(found: RowBounds, each: Filter) -> RowBounds:
    if not isinstance(each, EqualTo | EqualNullSafe | In):
        return found
    wanted = frozenset(_values(each))
    both = wanted if found.partitions is None else wanted & found.partitions
    return replace(found, partitions=both)


def _offset(found: RowBounds, each: Filter) -> RowBounds:
    first, end = _range(each, _whole)
    return replace(
        found,
        from_offset=found.from_offset if first is None else max(found.from_offset, first),
        to_offset=found.to_offset if end is None else max(0, min(found.to_offset, end)),
    )


def _timestamp(found: RowBounds, each: Filter) -> RowBounds:
    first, end = _range(each, _microseconds)
    # Records have milliseconds: round up to the first one at or after the microsecond.
    first_ms, end_ms = (None if edge is None else -(-edge // 1000) for edge in (first, end))
    return replace(
        found,
        from_timestamp=_tighter(found.from_timestamp, first_ms, max),
        to_timestamp=_tighter(found.to_timestamp, end_ms, min),
    )


_NARROWING: dict[str, Callable[[RowBounds, Filter], RowBounds]] = {
    "topic": _topic,
    "partition": _partition,
    "offset": _offset,
    "timestamp": _timestamp,
}


def _values(each: Any) -> Sequence[Any]:
    return tuple(each.value) if isinstance(each, In) else (each.value,)


def _range(each: Filter, number: Callable[[Any], int | None]) -> tuple[int | None, int | None]:
    """Return (first, end); end is exclusive, None means no bound."""
    if not isinstance(each, _COMPARING):
        return None, None
    found = [number(value) for value in _values(each)]
    values = [value for value in found if value is not None]
    if not values or len(values) < len(found):
        return None, None
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        return values[0] + isinstance(each, GreaterThan), None
    if isinstance(each, LessThan | LessThanOrEqual):
        return None, values[0] + isinstance(each, LessThanOrEqual)
    return min(values), max(values) + 1


_COMPARING = (
    EqualTo | EqualNullSafe | In | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _microseconds(value: Any) -> int | None:
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - _EPOCH) // _MICROSECOND


def _tighter(old: int | None, new: int | None, choose: Callable[[int, int], int]) -> int | None:
    if old is None or new is None:
        return new if old is None else old
    return choose(old, new)
