"""Shares of memory: who gets bytes first, what is kept spare, what is counted past the bound."""

from __future__ import annotations

from neve import runtime
from support.scripted_store import in_simulation

MAX = 100


@in_simulation
async def test_the_lowest_rank_is_served_first_and_equal_ones_in_order() -> None:
    share = runtime.MemoryShare("test", MAX)
    assert share.try_take(MAX)
    order: list[str] = []

    async def take(name: str, size: int, rank: int) -> None:
        await share.take(size, rank=rank)
        order.append(name)

    claims = (("large", 80, 80), ("small", 10, 10), ("other", 10, 10))
    tasks = [runtime.spawn(take(*claim)) for claim in claims]
    await runtime.sleep(0)
    share.give_back(MAX)
    for task in tasks:
        await task
    assert order == ["small", "other", "large"]
    assert share.used == MAX


@in_simulation
async def test_a_lower_rank_passes_those_who_wait_and_spare_bytes_are_left_to_it() -> None:
    share = runtime.MemoryShare("test", MAX)
    assert share.try_take(50, rank=1, spare=25)
    assert not share.try_take(50, rank=1, spare=25)
    waits = runtime.spawn(share.take(50, rank=1, spare=25))
    await runtime.sleep(0)
    assert share.try_take(25, rank=0)
    assert not share.try_take(1, rank=1)
    share.give_back(25)
    share.give_back(25)
    await waits
    assert share.used == 75


def test_what_is_held_anyway_is_counted_past_the_bound() -> None:
    share = runtime.MemoryShare("test", MAX)
    share.count(MAX + 1)
    assert (share.used, share.room_bytes, share.try_take(1)) == (MAX + 1, 0, False)
    share.count(-MAX - 1)
    assert (share.used, share.peak) == (0, MAX + 1)
