"""Dealing partitions out to tasks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from neve.bucket.maintain.jobs import Unit
from neve.lake.spark.jobs import assign_units


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60), st.integers(1, 20))
def test_every_unit_is_in_one_hand_and_hands_are_even(sizes: list[int], tasks: int) -> None:
    units = [Unit("t", at, size) for at, size in enumerate(sizes)]
    hands = assign_units(units, tasks)
    assert sorted(unit.partition for hand in hands for unit in hand) == list(range(len(units)))
    assert len(hands) == min(tasks, len(units))
    held = [sum(unit.bytes for unit in hand) for hand in hands]
    assert max(held) - min(held) <= max(sizes)


def test_without_sizes_they_are_dealt_by_number() -> None:
    hands = assign_units([Unit("t", at) for at in range(10)], 3)
    assert sorted(len(hand) for hand in hands) == [3, 3, 4]
