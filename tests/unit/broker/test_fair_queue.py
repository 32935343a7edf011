"""Who is served when: one busy connection leaves the event loop to others after its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from neve.broker import fair_queue
from neve.broker.fair_queue import ROUND_SECONDS, TURN_SECONDS, FairQueue, Metered
from neve.protocol.messages.api_versions import API_VERSIONS
from neve.records.reference import Record, build_batch
from wire import Wire, running_broker

BATCH = build_batch([Record(0, 1_000, None, b"x")])


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(fair_queue, "runtime", SimpleNamespace(monotonic=lambda: self.now))


class Busy:
    """A connection that always has more requests, each of which takes some time."""

    def __init__(self, name: str, queue: FairQueue, clock: Clock, seconds: float) -> None:
        self.name = name
        self.queue = queue
        self.clock = clock
        self.seconds = seconds
        self.served: list[str] = []

    def take_turn(self, ends_at: float) -> None:
        self.served.append(self.name)
        while self.clock.now < ends_at:
            self.clock.now += self.seconds
        self.queue.wait(self, self.clock.now - ends_at)


async def test_connections_that_always_have_requests_are_served_in_rotation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, queue = Clock(monkeypatch), FairQueue()
    connections = [Busy(name, queue, clock, TURN_SECONDS / 10) for name in "abcdefg"]
    served: list[str] = []
    for each in connections:
        each.served = served
        queue.wait(each)
    rounds: list[list[str]] = []
    clock.now += ROUND_SECONDS
    assert queue.begin(clock.now) is None, "the time of the round is used up"
    for _ in range(7):
        await asyncio.sleep(0)
        rounds.append(served.copy())
        served.clear()
    assert ["".join(each) for each in rounds] == [
        "abcd", "efga", "bcde", "fgab", "cdef", "gabc", "defg"
    ]  # fmt: skip


async def test_a_connection_with_very_long_requests_pauses_as_long_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, queue = Clock(monkeypatch), FairQueue()
    slow = [Busy(name, queue, clock, 0.3) for name in "AB"]
    quick = Busy("q", queue, clock, TURN_SECONDS / 10)
    served: list[str] = []
    for each in (*slow, quick):
        each.served = served
        queue.wait(each)
    for _ in range(20):
        await asyncio.sleep(0)
    assert served[:3] == ["A", "B", "q"]
    assert set(served[3:]) == {"q"}, "both pause"
    await asyncio.sleep(0.5)
    assert served.count("A") == 2
    assert served.count("B") == 1, "one at a time"


async def test_the_more_connections_wait_the_less_is_received_from_each() -> None:
    queue = FairQueue()
    assert queue.receive_bytes_max == fair_queue.WAITING_BYTES_MAX
    for _ in range(20_000):
        queue.wait(SimpleNamespace(take_turn=print))
    assert queue.receive_bytes_max == fair_queue.RECEIVE_BYTES_MIN


async def test_a_coroutine_is_metered_by_its_steps_and_not_by_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)

    async def work() -> str:
        clock.now += 1
        await asyncio.sleep(0)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            clock.now += 2
        await asyncio.sleep(0)
        clock.now += 4
        return "done"

    async def run(metered: Metered) -> object:
        return await metered

    metered = Metered(work())
    task = asyncio.create_task(run(metered))
    await asyncio.sleep(0.01)
    clock.now += 100
    task.cancel()
    assert await task == "done"
    assert metered.seconds == 7


async def _most_in_a_round(count: Callable[[], int], until: asyncio.Task[None]) -> int:
    """By how much a count grows at most between two rounds of the event loop."""
    most, before = 0, count()
    while not until.done():
        await asyncio.sleep(0)
        most, before = max(most, count() - before), count()
    return most


async def test_pipelined_requests_of_one_connection_are_spread_over_rounds_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However they are cut, all are answered, in order."""
    monkeypatch.setattr(fair_queue, "TURN_SECONDS", 1e-6)
    monkeypatch.setattr(fair_queue, "RECEIVE_BYTES_MIN", 100)
    monkeypatch.setattr(fair_queue, "WAITING_BYTES_MAX", 100)
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.node.create_topic("t", 1)

        async def exchange() -> None:
            for _ in range(300):
                wire.send(API_VERSIONS, 0, API_VERSIONS.Request())
                wire.send_batch("t", BATCH)
            for offset in range(300):
                assert (await wire.receive()).error_code == 0
                row = await wire.produced()
                assert (row.error_code, row.base_offset) == (0, offset)

        task = asyncio.create_task(exchange())
        most = await _most_in_a_round(lambda: broker.metrics.produce_batches, task)
        await task
        assert most <= 2, "more than a turn's in one round"
