"""The runner for callers that are not asynchronous."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncGenerator, Iterator

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


class Numbers:
    """Yields the numbers below 10, and sets `ended` when it is closed."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    async def __call__(self) -> AsyncGenerator[int, None]:
        try:
            for number in range(10):
                yield number
        finally:
            await runtime.sleep(0)
            self.ended.set()


def test_iterating_early_left_closes_the_source() -> None:
    numbers, more = Numbers(), Numbers()
    with runtime.BlockingRunner() as runner:
        assert list(runner.iterate(numbers())) == list(range(10))
        assert numbers.ended.is_set()
        part = runner.iterate(more())
        assert next(part) == 0
        part.close()  # type: ignore[attr-defined]
        assert more.ended.wait(10)


def test_iterations_have_ended_when_end_iterations_returns() -> None:
    numbers, more = Numbers(), Numbers()
    with runtime.BlockingRunner() as runner:
        left, unfinished = runner.iterate(numbers()), runner.iterate(more())
        assert next(left) == next(unfinished) == 0
        left.close()  # type: ignore[attr-defined]
        runner.end_iterations()
        assert numbers.ended.is_set()
        assert more.ended.is_set()


def test_an_iteration_may_be_garbage_collected_in_the_thread_of_a_loop() -> None:
    """In its own loop's thread, and in that of a runner whose iteration is collected there."""

    class Holder:
        def __init__(self, rows: Iterator[int]) -> None:
            self.rows = rows
            self.itself = self

    async def collect() -> None:
        gc.collect()

    def use() -> None:
        with runtime.BlockingRunner() as runner, runtime.BlockingRunner() as other:
            gc.disable()
            try:
                for each, numbers in zip((runner, other), sources, strict=True):
                    assert next(Holder(each.iterate(numbers())).rows) == 0
                runner.run(collect())
            finally:
                gc.enable()
            done.append(runner.run(twice(1)) + other.run(twice(1)))

    sources, done = [Numbers(), Numbers()], list[int]()
    thread = threading.Thread(target=use, daemon=True)
    thread.start()
    thread.join(10)
    assert done == [4]
    assert all(numbers.ended.is_set() for numbers in sources)


def test_closing_reports_a_source_that_failed_to_close() -> None:
    async def source() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            raise ValueError("no")

    runner = runtime.BlockingRunner()
    assert next(runner.iterate(source())) == 1
    with pytest.raises(ValueError, match="no"):
        runner.close()
    assert runner.closed


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
