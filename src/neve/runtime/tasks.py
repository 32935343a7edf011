"""Starting and ending tasks. Every task has an owner that awaits or cancels it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")


def spawn(work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
    """Start a task. The caller owns it: it keeps the reference and awaits or cancels the task."""
    return asyncio.get_running_loop().create_task(work, name=name)


async def gather(*works: Coroutine[Any, Any, T]) -> list[T]:
    """Run coroutines concurrently and return their results in order.

    The first failure cancels the others, waits for them to end, and is raised.
    """
    tasks = [spawn(work) for work in works]
    try:
        # asyncio.gather raises the first failure and leaves the others running.
        return list(await asyncio.gather(*tasks))
    finally:
        await _end(tasks)


async def first(*works: Coroutine[Any, Any, T]) -> T:
    """Return the first successful result and cancel the others. Raises the last failure if none."""
    tasks = [spawn(work) for work in works]
    try:
        failure: BaseException | None = None
        pending = list(tasks)
        while pending:
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            # In the given order, not in that of asyncio's set: simulations must replay exactly.
            for task in [task for task in pending if task.done()]:
                pending.remove(task)
                if task.cancelled():
                    failure = asyncio.CancelledError()
                elif task.exception() is None:
                    return task.result()
                else:
                    failure = task.exception()
        raise failure if failure is not None else ValueError("first() needs at least one coroutine")
    finally:
        await _end(tasks)


async def _end(tasks: list[asyncio.Task[T]]) -> None:
    live = [task for task in tasks if not task.done()]
    for task in live:
        task.cancel()
    if live:
        await asyncio.wait(live)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()  # marks the exception as retrieved


async def one_ahead(source: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Yield the items of `source`, computing each while the consumer uses the one before."""
    async with contextlib.aclosing(source):
        following = spawn(_next(source))
        try:
            while (found := await following) is not _END:
                following = spawn(_next(source))
                yield cast("T", found)
        finally:
            await _end([following])


_END = object()


async def _next(source: AsyncGenerator[T, None]) -> T | object:
    return await anext(source, _END)


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a program's main coroutine, on uvloop if it is installed."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)


def loop_factory() -> Any:
    """Return uvloop's loop factory if uvloop is installed; None means asyncio's."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


class Tasks:
    """The background tasks of one owner, which `close` ends together.

    A failure is passed to `on_failure` immediately. Without it, `join` or `close` raises the first.
    """

    def __init__(self, on_failure: Callable[[BaseException], None] | None = None) -> None:
        self._tasks: dict[asyncio.Task[Any], None] = {}  # a dict keeps the order, for replays
        self._on_failure = on_failure
        self._failure: BaseException | None = None

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        task = spawn(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled() or task.exception() is None:
            return
        failure = task.exception()
        assert failure is not None
        if self._on_failure is not None:
            self._on_failure(failure)
        elif self._failure is None:
            self._failure = failure

    async def join(self) -> None:
        """Wait until all tasks have ended. Raises the first failure."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        self._raise()

    async def close(self) -> None:
        """Cancel all tasks and wait for them. Raises the first unreported failure."""
        while self._tasks:
            live = list(self._tasks)
            for task in live:
                task.cancel()
            await asyncio.wait(live)
        self._raise()

    def _raise(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
