"""Starting tasks, and ending them: nothing runs that nobody owns."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar, cast

T = TypeVar("T")


def spawn(work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
    """Start a task. The caller owns it: keeps the reference and awaits or cancels it."""
    return asyncio.get_running_loop().create_task(work, name=name)


async def gather(*works: Coroutine[Any, Any, T]) -> list[T]:
    """Run side by side; results in order. The first failure cancels the rest, waits, and raises."""
    tasks = [spawn(work) for work in works]
    try:
        # asyncio's gather raises the first failure and leaves the others running: we end them.
        return list(await asyncio.gather(*tasks))
    finally:
        await _end(tasks)


async def first(*works: Coroutine[Any, Any, T]) -> T:
    """The result of whichever succeeds first; the others are cancelled. Raises the last failure."""
    tasks = [spawn(work) for work in works]
    try:
        failure: BaseException | None = None
        pending = list(tasks)
        while pending:
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            # In the order given, not the order of asyncio's set: simulations must replay exactly.
            for task in [task for task in pending if task.done()]:
                pending.remove(task)
                if task.cancelled():
                    failure = asyncio.CancelledError()
                elif task.exception() is None:
                    return task.result()
                else:
                    failure = task.exception()
        raise failure if failure is not None else ValueError("first() needs at least one work")
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
            task.exception()  # marks it as seen


async def one_ahead(source: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The same items, each made while the one before is still in use."""
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
    """Run a program in the real world, on uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


class Tasks:
    """Background tasks of one owner: started here, ended together by `close`.

    A background task that fails is told to `on_failure` once, at once; it is never lost silently.
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
        """Wait until all tasks have ended by themselves; raise the first failure."""
        while self._tasks:
            await asyncio.wait(list(self._tasks))
        self._raise()

    async def close(self) -> None:
        """Cancel what runs, wait for it, and raise a failure nobody was told of."""
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
