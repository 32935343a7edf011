"""The gate: its cap, its order, and what prefetch may take."""

from __future__ import annotations

import asyncio

import pytest

from neve import runtime
from neve.store.gate import Gate, NoFreeSlotError
from neve.store.memory import MemoryStore
from neve.store.port import OBJECT_BYTES_MAX


class Slow(MemoryStore):
    """A store whose gets take as long as a test wants, and that counts how many run at once."""

    def __init__(self) -> None:
        super().__init__()
        self.running = 0
        self.running_max = 0
        self.started: list[str] = []

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        self.running += 1
        self.running_max = max(self.running_max, self.running)
        self.started.append(key)
        try:
            await runtime.sleep(runtime.chance().random())
            return memoryview(key.encode())
        finally:
            self.running -= 1


def test_never_more_than_its_number_under_ten_times_the_load() -> None:
    async def scenario() -> None:
        store = Slow()
        gate = Gate(store, 64)
        await runtime.gather(*(gate.get(f"{number:03d}") for number in range(640)))
        assert store.running_max == gate.peak == 64
        assert (gate.in_flight, gate.waiting) == (0, 0)

    runtime.simulate(scenario(), seed=1)


def test_waiters_come_in_their_order() -> None:
    async def scenario() -> None:
        store = Slow()
        gate = Gate(store, 3)
        keys = [f"{number:02d}" for number in range(30)]
        await runtime.gather(*(gate.get(key) for key in keys))
        assert store.started == keys

    runtime.simulate(scenario(), seed=2)


def test_a_latecomer_does_not_overtake_who_was_handed_a_slot() -> None:
    async def scenario() -> None:
        store = Slow()
        gate = Gate(store, 1)
        first = runtime.spawn(gate.get("1"))
        await runtime.sleep(0)
        second = runtime.spawn(gate.get("2"))
        await first
        # The slot belongs to the second already, though it has not run yet.
        with pytest.raises(NoFreeSlotError):
            await gate.prefetching().get("3")
        await gate.get("4")
        await second
        assert store.started == ["1", "2", "4"]
        assert store.running_max == 1

    runtime.simulate(scenario(), seed=3)


def test_zero_turns_it_off() -> None:
    async def scenario() -> None:
        store = Slow()
        gate = Gate(store, 0)
        await runtime.gather(
            *(gate.get(f"{number}") for number in range(500)),
            *(gate.prefetching().get(f"{number}") for number in range(500)),
        )
        assert store.running_max == gate.peak == 1000
        assert gate.in_flight == 0

    runtime.simulate(scenario(), seed=4)


@pytest.mark.parametrize("seed", range(20))
def test_cancelled_calls_never_cost_a_slot(seed: int) -> None:
    async def scenario() -> None:
        store = Slow()
        gate = Gate(store, 4)
        tasks = [runtime.spawn(gate.get(f"{number}")) for number in range(60)]
        for _ in range(200):
            await runtime.sleep(runtime.chance().random() * 0.05)
            runtime.chance().choice(tasks).cancel()
        await asyncio.wait(tasks)
        assert any(task.cancelled() for task in tasks)
        assert (gate.in_flight, gate.waiting) == (0, 0)
        store.running_max = 0
        await runtime.gather(*(gate.get(f"{number}") for number in range(8)))
        assert store.running_max == 4

    runtime.simulate(scenario(), seed=seed)


def test_a_slot_handed_to_a_call_that_is_cancelled_at_that_moment_goes_on() -> None:
    async def scenario() -> None:
        store = Slow()
        gate = Gate(store, 1)
        first = runtime.spawn(gate.get("1"))
        await runtime.sleep(0)
        second = runtime.spawn(gate.get("2"))
        third = runtime.spawn(gate.get("3"))
        await runtime.sleep(0)
        gate.leave()  # as the first call would, in the same step as the cancellation
        second.cancel()
        await third
        assert "2" not in store.started
        gate.in_flight += 1  # undo the leave above
        await first
        assert gate.in_flight == 0

    runtime.simulate(scenario(), seed=5)


def test_a_holder_and_a_waiter_cancelled_together_are_both_just_cancelled() -> None:
    async def scenario() -> None:
        gate = Gate(Slow(), 1)
        holder = runtime.spawn(gate.get("1"))
        waiter = runtime.spawn(gate.get("2"))
        await runtime.sleep(0)
        holder.cancel()
        waiter.cancel()
        await asyncio.wait([holder, waiter])
        assert holder.cancelled()
        assert waiter.cancelled()
        assert (gate.in_flight, gate.waiting) == (0, 0)

    runtime.simulate(scenario(), seed=6)


def test_prefetch_takes_a_free_slot_and_no_other() -> None:
    async def scenario() -> None:
        store = Slow()
        gate = Gate(store, 2)
        prefetch = gate.prefetching()
        assert await prefetch.get("free") == b"free"
        busy = [runtime.spawn(gate.get(f"busy {number}")) for number in range(2)]
        await runtime.sleep(0)
        with pytest.raises(NoFreeSlotError):
            await prefetch.get("full")
        assert "full" not in store.started
        for task in busy:
            await task
        assert gate.in_flight == 0

    runtime.simulate(scenario(), seed=6)


def test_prefetch_gets_nothing_while_others_wait() -> None:
    async def scenario() -> None:
        store = Slow()
        gate = Gate(store, 8)
        prefetched = 0

        async def prefetch() -> None:
            nonlocal prefetched
            while live_left:
                waited_for = gate.waiting
                try:
                    await gate.prefetching().get("ahead")
                except NoFreeSlotError:
                    await runtime.sleep(0.001)
                else:
                    assert waited_for == 0
                    prefetched += 1

        live_left = 80

        async def live(number: int) -> None:
            nonlocal live_left
            await gate.get(f"{number}")
            live_left -= 1

        await runtime.gather(*(live(number) for number in range(80)), prefetch())
        last_live = max(store.started.index(f"{number}") for number in range(80))
        assert "ahead" not in store.started[: last_live + 1]
        assert store.running_max == 8
        assert prefetched > 0

    runtime.simulate(scenario(), seed=7)


async def test_closing_the_prefetching_view_leaves_the_store_open() -> None:
    gate = Gate(MemoryStore(), 2)
    await gate.prefetching().close()
    await gate.put("k", b"x")
    await gate.close()
