"""The runner for callers that are not asynchronous."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator

import pytest

from neve import runtime
from neve.errors import ClosedError


async def twice(number: int) -> int:
    await runtime.sleep(0)
    return 2 * number


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "blocking-test"]


def test_a_coroutine_is_waited_for_and_its_error_raised() -> None:
    async def fails() -> None:
        raise ValueError("no")

    with runtime.BlockingRunner() as runner:
        assert runner.run(twice(4)) == 8
        with pytest.raises(ValueError, match="no"):
            runner.run(fails())


def test_iterating_early_left_closes_the_source() -> None:
    ended: list[bool] = []

    async def source() -> AsyncGenerator[int, None]:
        try:
            for number in range(10):
                yield number
        finally:
            await runtime.sleep(0)
            ended.append(True)

    with runtime.BlockingRunner() as runner:
        assert list(runner.iterate(source())) == list(range(10))
        part = runner.iterate(source())
        assert next(part) == 0
        part.close()  # type: ignore[attr-defined]
        assert ended == [True, True]


def test_closing_cancels_what_runs_and_ends_the_thread() -> None:
    cancelled = threading.Event()

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    runner = runtime.BlockingRunner("blocking-test")
    told: list[BaseException] = []
    waiting = threading.Thread(target=lambda: told.append(_failure(runner, waits)))
    waiting.start()
    while not threads():
        pass
    runner.run(twice(1))
    runner.close()
    waiting.join(5)
    assert cancelled.is_set()
    assert isinstance(told[0], ClosedError)
    assert threads() == []
    assert runner.closed
    runner.close()
    with pytest.raises(ClosedError):
        runner.run(twice(1))


def _failure(runner: runtime.BlockingRunner, work: object) -> BaseException:
    try:
        runner.run(work())  # type: ignore[operator]
    except BaseException as error:
        return error
    raise AssertionError("it ended by itself")


def test_a_forgotten_runner_is_closed() -> None:
    runner = runtime.BlockingRunner("blocking-test")
    assert threads() != []
    del runner
    gc.collect()
    assert threads() == []


def test_many_threads_may_use_one() -> None:
    found: list[int] = []
    with runtime.BlockingRunner() as runner:
        users = [
            threading.Thread(target=lambda n=n: found.append(runner.run(twice(n))))  # type: ignore[misc]
            for n in range(20)
        ]
        for user in users:
            user.start()
        for user in users:
            user.join()
    assert sorted(found) == [2 * n for n in range(20)]
