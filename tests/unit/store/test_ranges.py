"""Ranges that lie near each other are read together."""

from __future__ import annotations

import pytest

from neve.settings import MIB
from neve.store.memory import MemoryStore
from neve.store.meter import Meter
from neve.store.ranges import merged


@pytest.mark.parametrize(
    ("ranges", "stretches"),
    [
        ([], []),
        ([(5, 5)], []),
        ([(0, 10)], [(0, 10)]),
        ([(20, 30), (0, 10)], [(0, 30)]),
        ([(0, 100), (10, 20)], [(0, 100)]),
        ([(0, 10), (10 + MIB, 20 + MIB)], [(0, 20 + MIB)]),
        ([(0, 10), (11 + MIB, 20 + MIB)], [(0, 10), (11 + MIB, 20 + MIB)]),
    ],
)
def test_merging(ranges: list[tuple[int, int]], stretches: list[tuple[int, int]]) -> None:
    assert merged(ranges) == stretches


async def test_one_request_a_stretch() -> None:
    meter = Meter(MemoryStore())
    await meter.put("k", bytes(5 * MIB))
    await meter.get_ranges("k", [(0, 10), (100, 200), (4 * MIB, 4 * MIB + 1)])
    assert meter.calls("get_range") == 2
