"""Who is served when: one busy connection leaves the event loop to others after its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from neve.broker import fair_queue
from neve.broker.fair_queue import ROUND_SECONDS, TURN_SECONDS, FairQueue, Paced, Usage
from neve.protocol.messages.api_versions import API_VERSIONS
from neve.records.reference import Record, build_batch
from support.wire import Wire, running_broker

BATCH = build_batch([Record(0, 1_000, None, b"x")])


BRIEF_SECONDS = 0.0005


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(fair_queue, "runtime", SimpleNamespace(monotonic=lambda: self.now))


class Busy:
    """A connection that always has more requests, each of which takes some time."""

    def __init__(self, name: str, queue: FairQueue, clock: Clock, seconds: float = 0.0) -> None:
        self.name = name
        self.queue = queue
        self.clock = clock
        self.seconds = seconds
        self.usage = Usage()
        self.served: list[str] = []

    def take_turn(self, ends_at: float) -> None:
        self.served.append(self.name)
        began = self.clock.now
        while self.clock.now < ends_at:
            self.clock.now += self.seconds
        self.usage.add(self.clock.now - began)
        self.queue.wait(self, self.clock.now - ends_at)


class Brief(Busy):
    """A connection that always has one more short request."""

    def take_turn(self, ends_at: float) -> None:
        self.served.append(self.name)
        self.clock.now += BRIEF_SECONDS
        self.usage.add(BRIEF_SECONDS)
        self.queue.wait(self)


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


async def test_a_burst_of_connections_with_much_to_do_does_not_delay_one_with_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, queue = Clock(monkeypatch), FairQueue()
    served: list[str] = []
    for _ in range(200):
        busy = Busy("B", queue, clock, TURN_SECONDS)
        busy.served = served
        queue.wait(busy)
    light = Brief("q", queue, clock)
    light.served = served
    for _ in range(10):
        light.usage.add(0.0001)
    queue.wait(light)
    for _ in range(3):
        await asyncio.sleep(0)
    assert served[:3] == ["B", "q", "B"], "one turn of each round is kept for the others"
    assert len(served) >= 5, "what is left of a round is theirs"


async def test_a_new_connection_is_not_known_to_have_little_to_do() -> None:
    usage = Usage()
    assert not usage.is_light
    for _ in range(4):
        usage.add(0.0001)
    assert usage.is_light
    usage.add(2 * TURN_SECONDS)
    usage.add(0.0001)
    assert not usage.is_light, "one short turn does not make up for a long one"


async def test_many_connections_with_little_to_do_leave_a_turn_of_each_round_to_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, queue = Clock(monkeypatch), FairQueue()
    served: list[str] = []
    for name in "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqBB":
        each = (Brief if name == "q" else Busy)(name, queue, clock, TURN_SECONDS)
        each.served = served
        for _ in range(8 if name == "q" else 0):
            each.usage.add(0.0001)
        queue.wait(each)
    clock.now += ROUND_SECONDS
    for _ in range(6):
        await asyncio.sleep(0)
    assert served.count("B") >= 6
    assert served.count("q") >= 5 * (ROUND_SECONDS - TURN_SECONDS) / BRIEF_SECONDS - 6


async def test_tasks_woken_at_once_go_on_a_few_in_each_round_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Thousands of fetches may wait for the same commit."""
    clock, queue = Clock(monkeypatch), FairQueue()
    commit, answered = asyncio.Event(), []

    async def fetch() -> None:
        await commit.wait()
        clock.now += TURN_SECONDS
        answered.append(clock.now)

    async def run() -> None:
        await Paced(fetch(), queue, Busy("a", queue, clock, 0.1))

    tasks = [asyncio.create_task(run()) for _ in range(200)]
    await asyncio.sleep(0)
    clock.now += 1
    commit.set()
    together = asyncio.gather(*tasks)
    most = await _most_in_a_round(lambda: len(answered), together)
    await together
    assert most <= 2 * fair_queue.TASKS_MAX
    assert len(answered) == 200


async def test_a_task_that_is_cancelled_while_it_waits_for_its_turn_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, queue = Clock(monkeypatch), FairQueue()
    steps = []

    async def work() -> None:
        steps.append("begun")

    async def run() -> None:
        await Paced(work(), queue, Busy("a", queue, clock, 0.1))

    task = asyncio.create_task(run())
    asyncio.get_running_loop().call_soon(task.cancel)
    queue.begin(clock.now)
    clock.now += ROUND_SECONDS  # nothing is left of this round
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not steps
    await asyncio.sleep(0)
    assert queue.begin(clock.now) is not None, "others are served"


async def test_the_more_connections_wait_the_less_is_received_from_each() -> None:
    queue = FairQueue()
    assert queue.receive_bytes_max == fair_queue.WAITING_BYTES_MAX
    for _ in range(20_000):
        queue.wait(SimpleNamespace(take_turn=print, usage=Usage()))
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

    async def run(paced: Paced) -> object:
        return await paced

    paced = Paced(work(), FairQueue(), Busy("a", FairQueue(), clock, 0.1))
    task = asyncio.create_task(run(paced))
    await asyncio.sleep(0.01)
    clock.now += 100
    task.cancel()
    assert await task == "done"
    assert paced.seconds == 7


async def _most_in_a_round(count: Callable[[], int], until: asyncio.Future[Any]) -> int:
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
        await broker.node.topics.create("t", 1)

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
