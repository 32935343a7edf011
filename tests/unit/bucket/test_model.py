"""Bounds as callers give them, and how failures are told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from neve.bucket.model import (
    OFFSET_MAX,
    Bounds,
    PartitionName,
    PartitionsFailedError,
    Selection,
    milliseconds,
    raise_failures,
)
from neve.errors import DamagedError, InvalidError, LostRangeError


def test_no_bounds_are_everything() -> None:
    assert Bounds().of(3) == Selection("earliest", OFFSET_MAX, None, None)


def test_one_offset_is_for_all_and_a_mapping_is_by_partition() -> None:
    assert Bounds(5, 9).of(0) == Bounds({0: 5}, {0: 9}).of(0)
    assert Bounds({0: 5}, {0: 9}).of(1) == Selection("earliest", OFFSET_MAX)
    assert Bounds("latest").of(0).from_offset == "latest"


@pytest.mark.parametrize("given", [-1, 1.5, "soon", True, {0: -1}])
def test_what_is_no_offset_is_refused(given: object) -> None:
    with pytest.raises(InvalidError, match="invalid offset"):
        Bounds(given).of(0)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [-1, "latest", False])
def test_what_is_no_end_is_refused(given: object) -> None:
    with pytest.raises(InvalidError, match="invalid offset"):
        Bounds(0, given).of(0)  # type: ignore[arg-type]


def test_moments_are_milliseconds() -> None:
    assert milliseconds(datetime(2026, 1, 1, tzinfo=UTC)) == 1_767_225_600_000
    assert milliseconds(17) == 17
    assert milliseconds(datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)) == 253_402_300_799_999
    assert milliseconds(None) is None
    with pytest.raises(InvalidError, match="no time zone"):
        milliseconds(datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidError, match="invalid time"):
        milliseconds("2026")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("micros", "wanted"), [(1_010_000, 1010), (1_010_001, 1011), (1_010_999, 1011), (-1, 0)]
)
def test_a_moment_between_two_milliseconds_bounds_the_later_one(micros: int, wanted: int) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    selection = Bounds(from_timestamp=moment, to_timestamp=moment).of(0)
    assert (selection.from_timestamp, selection.to_timestamp) == (wanted, wanted)


def test_times_are_from_and_up_to() -> None:
    selection = Selection(from_timestamp=10, to_timestamp=20)
    assert [time for time in (9, 10, 19, 20) if selection.includes(time)] == [10, 19]


def test_one_failure_is_raised_as_it_is_and_several_name_all() -> None:
    raise_failures({})
    one, two = DamagedError("k1", "bad"), LostRangeError("gone")
    names = PartitionName("t", 0), PartitionName("t", 1)
    with pytest.raises(DamagedError) as alone:
        raise_failures({names[0]: one})
    assert alone.value is one
    with pytest.raises(PartitionsFailedError, match=r"t-0: k1 is damaged.*t-1: gone") as both:
        raise_failures({names[0]: one, names[1]: two})
    assert both.value.failures == {names[0]: one, names[1]: two}
