"""Memory near its bound: what is free is given back, and no more often than it helps."""

from __future__ import annotations

import sys

import pytest

from neve import runtime
from neve.broker.heap_trimming import (
    CHECK_SECONDS,
    GROWN_BYTES,
    REST_SECONDS,
    give_back_free,
    stay_below,
)
from neve.settings import MIB
from neve.store.aligned_buffers import aligned_buffer
from support.scripted_store import in_simulation

BOUND = 500 * MIB


class Process:
    """One whose memory grows as told, of which some is free."""

    def __init__(self) -> None:
        self.resident_bytes = 100 * MIB
        self.free_bytes = 0
        self.given_back = 0

    def resident(self) -> int:
        return self.resident_bytes

    def give_back(self) -> None:
        self.given_back += 1
        self.resident_bytes -= self.free_bytes
        self.free_bytes = 0

    async def grows_to(self, resident: int, free: int = 0) -> int:
        """How often memory was given back, some looks later."""
        self.resident_bytes, self.free_bytes = resident, free
        await runtime.sleep(REST_SECONDS + 5 * CHECK_SECONDS)
        return self.given_back


@in_simulation
async def test_what_is_free_is_given_back_near_the_bound_and_not_before() -> None:
    process = Process()
    keeper = runtime.spawn(stay_below(BOUND, process.resident, process.give_back))
    assert await process.grows_to(449 * MIB, free=200 * MIB) == 0
    assert await process.grows_to(460 * MIB, free=200 * MIB) == 1
    assert process.resident_bytes == 260 * MIB
    assert await process.grows_to(449 * MIB) == 1
    assert await process.grows_to(451 * MIB, free=100 * MIB) == 2
    keeper.cancel()


@in_simulation
async def test_where_nothing_is_free_it_is_tried_again_only_once_more_is_held() -> None:
    process = Process()
    keeper = runtime.spawn(stay_below(BOUND, process.resident, process.give_back))
    assert await process.grows_to(470 * MIB) == 1
    assert await process.grows_to(470 * MIB + GROWN_BYTES) == 1
    assert await process.grows_to(471 * MIB + GROWN_BYTES) == 2
    keeper.cancel()


@in_simulation
async def test_past_the_bound_it_is_tried_again_though_nothing_grows() -> None:
    process = Process()
    keeper = runtime.spawn(stay_below(BOUND, process.resident, process.give_back))
    assert await process.grows_to(BOUND + 10 * MIB) >= 1
    await process.grows_to(BOUND + 10 * MIB, free=200 * MIB)
    assert process.resident_bytes == BOUND - 190 * MIB
    keeper.cancel()


@in_simulation
async def test_growth_towards_the_bound_is_met_also_soon_after_memory_was_given_back() -> None:
    process = Process()
    keeper = runtime.spawn(stay_below(BOUND, process.resident, process.give_back))
    assert await process.grows_to(460 * MIB, free=200 * MIB) == 1
    process.resident_bytes, process.free_bytes = 455 * MIB, 100 * MIB
    await runtime.sleep(2.5)
    assert process.given_back == 2
    for _ in range(40):  # within the rest that follows
        process.resident_bytes += 12 * MIB
        process.free_bytes += 12 * MIB
        await runtime.sleep(0.25)
        assert process.resident_bytes <= BOUND
    assert process.given_back > 2
    keeper.cancel()


@in_simulation
async def test_what_grows_again_at_once_is_not_chased() -> None:
    process = Process()
    keeper = runtime.spawn(stay_below(BOUND, process.resident, process.give_back))
    for _ in range(400):
        process.resident_bytes, process.free_bytes = 480 * MIB, 200 * MIB
        await runtime.sleep(CHECK_SECONDS)
    assert 5 <= process.given_back <= 400 * CHECK_SECONDS / REST_SECONDS
    keeper.cancel()


@pytest.mark.skipif(sys.platform != "linux", reason="mappings cannot be resized here")
def test_what_is_kept_for_the_next_segment_is_given_back_with_the_heap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def trim() -> bool:
        trims.append(runtime.resident_bytes())
        return True

    trims = list[int]()
    monkeypatch.setattr(runtime, "give_back_freed_memory", trim)
    aligned_buffer(200 * MIB)[:] = 1
    held = runtime.resident_bytes()
    give_back_free()
    assert held - runtime.resident_bytes() > 190 * MIB
    assert len(trims) == 1
