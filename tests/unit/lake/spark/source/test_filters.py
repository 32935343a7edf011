"""Filters of a query as bounds: never tighter than the filters themselves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from neve.lake.scan.bounds import RowBounds
from neve.lake.spark.source.filters import narrowed

OFFSET, TIME, PARTITION, TOPIC = ("offset",), ("timestamp",), ("partition",), ("topic",)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def bounds(*filters: Filter) -> RowBounds:
    return narrowed(RowBounds(), filters)


def at(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


@pytest.mark.parametrize(
    ("each", "low", "high"),
    [
        (GreaterThan(OFFSET, 5), 6, None),
        (GreaterThanOrEqual(OFFSET, 5), 5, None),
        (LessThan(OFFSET, 5), None, 5),
        (LessThanOrEqual(OFFSET, 5), None, 6),
        (EqualTo(OFFSET, 5), 5, 6),
        (In(OFFSET, (9, 5)), 5, 10),
        (LessThan(OFFSET, -3), None, 0),
        (GreaterThan(OFFSET, -3), None, None),
    ],
)
def test_offsets(each: Filter, low: int | None, high: int | None) -> None:
    found = bounds(each)
    assert found.from_offset == (low or 0)
    assert found.to_offset == (RowBounds().to_offset if high is None else high)


@pytest.mark.parametrize(
    ("each", "low", "high"),
    [
        (GreaterThan(TIME, at(5000)), 6, None),
        (GreaterThan(TIME, at(5001)), 6, None),
        (GreaterThan(TIME, at(4999)), 5, None),
        (GreaterThanOrEqual(TIME, at(5000)), 5, None),
        (GreaterThanOrEqual(TIME, at(5001)), 6, None),
        (LessThan(TIME, at(5000)), None, 5),
        (LessThan(TIME, at(5001)), None, 6),
        (LessThanOrEqual(TIME, at(5000)), None, 6),
        (LessThanOrEqual(TIME, at(4999)), None, 5),
        (EqualTo(TIME, at(5000)), 5, 6),
    ],
)
def test_milliseconds_that_a_moment_in_microseconds_leaves(
    each: Filter, low: int | None, high: int | None
) -> None:
    found = bounds(each)
    assert (found.from_timestamp, found.to_timestamp) == (low, high)


def test_filters_narrow_together_and_narrow_what_was_given() -> None:
    given = RowBounds(from_offset=10, to_timestamp=100, partitions=frozenset({0, 1}))
    found = narrowed(
        given,
        [
            GreaterThan(OFFSET, 2),
            LessThan(OFFSET, 50),
            LessThan(TIME, at(200_000)),
            In(PARTITION, (1, 2)),
        ],
    )
    assert (found.from_offset, found.to_offset) == (10, 50)
    assert found.to_timestamp == 100
    assert found.partitions == {1}


def test_topics() -> None:
    found = bounds(In(TOPIC, ("orders", "other")), StringStartsWith(TOPIC, "or"))
    assert [found.wants_topic(name) for name in ("orders", "other", "ordersX")] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    "each",
    [
        IsNotNull(OFFSET),
        Not(EqualTo(PARTITION, 1)),
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "offset"), 1),
        LessThan(OFFSET, Decimal("5.5")),
        EqualTo(OFFSET, None),
        In(OFFSET, (1, None)),
        GreaterThan(TIME, datetime(2024, 1, 1)),  # noqa: DTZ001  a moment without a zone
    ],
)
def test_what_is_not_understood_leaves_everything(each: Filter) -> None:
    assert bounds(each) == RowBounds()
