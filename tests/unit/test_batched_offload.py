"""Small calls that share a turn: few turns, each its own answer, and none waits for ever."""

from __future__ import annotations

import asyncio
import threading

import pytest

from neve import runtime
from neve.runtime.threads import BATCH_CALLS_MIN, BATCHES_MAX

WAIT_SECONDS = 10


async def _all(turns: runtime.BatchedOffload, count: int) -> list[int]:
    return await runtime.gather(*(turns.offload(int, str(each)) for each in range(count)))


@pytest.mark.parametrize("count", [1, 7, 8, 9, 33, 500])
async def test_each_gets_the_answer_to_its_own_question(count: int) -> None:
    assert await _all(runtime.BatchedOffload(), count) == list(range(count))


async def test_what_is_asked_together_takes_few_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    sizes: list[int] = []
    really = loop.run_in_executor

    def counted(pool: None, done: object, calls: list[object]) -> object:
        sizes.append(len(calls))
        return really(pool, done, calls)  # type: ignore[arg-type,call-arg]

    monkeypatch.setattr(loop, "run_in_executor", counted)
    await _all(runtime.BatchedOffload(), BATCH_CALLS_MIN)
    assert sizes == [BATCH_CALLS_MIN]
    sizes.clear()
    await _all(runtime.BatchedOffload(), 100)
    assert sizes == [100 // BATCHES_MAX] * BATCHES_MAX


async def test_a_failure_is_told_to_who_asked_and_to_nobody_else() -> None:
    turns = runtime.BatchedOffload()
    asked = [turns.offload(int, text) for text in ("1", "x", "3")]
    first, second, third = await asyncio.gather(*asked, return_exceptions=True)
    assert (first, type(second), third) == (1, ValueError, 3)


async def test_who_left_disturbs_nobody() -> None:
    turns = runtime.BatchedOffload()
    release = threading.Event()
    left = runtime.spawn(turns.offload(release.wait, WAIT_SECONDS))
    stayed = runtime.spawn(turns.offload(int, "5"))
    await asyncio.sleep(0.01)
    left.cancel()
    release.set()
    assert await stayed == 5
    assert left.cancelled()


async def test_a_call_that_hangs_holds_up_its_own_turn_alone() -> None:
    turns = runtime.BatchedOffload()
    release = threading.Event()
    hanging = []
    for _ in range(BATCHES_MAX - 1):
        hanging.append(runtime.spawn(turns.offload(release.wait, WAIT_SECONDS)))
        await asyncio.sleep(0.01)  # each in a turn of its own
    try:
        assert await asyncio.wait_for(_all(turns, 50), WAIT_SECONDS / 2) == list(range(50))
    finally:
        release.set()
        await asyncio.wait(hanging)


async def test_what_comes_while_all_turns_are_taken_has_the_next_one() -> None:
    turns = runtime.BatchedOffload()
    release = threading.Event()
    hanging = []
    for _ in range(BATCHES_MAX):
        hanging.append(runtime.spawn(turns.offload(release.wait, WAIT_SECONDS)))
        await asyncio.sleep(0.01)
    late = runtime.spawn(_all(turns, 20))
    await asyncio.sleep(0.05)
    assert not late.done()
    release.set()
    assert await asyncio.wait_for(late, WAIT_SECONDS) == list(range(20))
    await asyncio.wait(hanging)


def test_a_loop_that_ends_starts_nothing_more() -> None:
    """Its threads are gone by the time at which the last batches end."""
    turns = runtime.BatchedOffload()
    release = threading.Event()
    failures: list[object] = []

    async def left_behind() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: failures.append(about))
        for _ in range(BATCHES_MAX):
            runtime.spawn(turns.offload(release.wait, WAIT_SECONDS))
            await asyncio.sleep(0.01)
        for _ in range(3):
            runtime.spawn(turns.offload(int, "5"))
        await asyncio.sleep(0.01)
        threading.Timer(0.2, release.set).start()

    runtime.run(left_behind())
    assert failures == []


def test_turns_go_on_in_the_next_loop() -> None:
    turns = runtime.BatchedOffload()
    release = threading.Event()

    async def left_behind() -> None:
        for _ in range(BATCHES_MAX):
            runtime.spawn(turns.offload(release.wait, WAIT_SECONDS))
            await asyncio.sleep(0.01)
        release.set()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(left_behind())
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert runtime.run(_all(turns, 30)) == list(range(30))


def test_a_simulation_has_no_turns() -> None:
    async def scenario() -> int:
        return await runtime.BatchedOffload().offload(threading.get_ident)

    assert runtime.simulate(scenario(), seed=1) == threading.get_ident()
