"""Running work in threads, without delaying the event loop.

All threads share one interpreter lock. By default a computing thread keeps it for 5 ms, and the
event loop, which serves every client, would wait that long for each of them.

Handing one call to a thread and its result back takes longer than reading a small file, and the
threads compete for the interpreter lock. `BatchedOffload` therefore runs the calls made in one
iteration of the event loop in few batches, and calls made while all batches are busy share the next
one.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, ParamSpec, TypeVar

from neve.runtime.context import simulated

T = TypeVar("T")
P = ParamSpec("P")

SWITCH_SECONDS = 0.0005
BATCHES_MAX = 4
"""Concurrent batches. A call that hangs delays only its own batch."""
BATCH_CALLS_MIN = 8
"""Do not split fewer calls than this over several threads."""


def favour_the_loop() -> None:
    """Make computing threads release the interpreter lock soon when the event loop needs it."""
    sys.setswitchinterval(SWITCH_SECONDS)


async def offload(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run blocking or heavy work in a thread, or inline in simulation."""
    return await _run(None, work, *args, **kwargs)


class ThreadPool:
    """A thread pool for one kind of work, which then never queues behind other kinds."""

    def __init__(self, threads_max: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads_max, thread_name_prefix=name)

    async def offload(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await _run(self._pool, work, *args, **kwargs)

    def close(self) -> None:
        """Accept no more work. Running work completes; this does not wait for it."""
        self._pool.shutdown(wait=False)


async def _run(
    pool: ThreadPoolExecutor | None, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    if simulated():
        await asyncio.sleep(0)
        return work(*args, **kwargs)
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    return await loop.run_in_executor(pool, lambda: context.run(work, *args, **kwargs))


class _Call(NamedTuple):
    """A call and the future that receives its result."""

    run: Callable[[], Any]
    result: asyncio.Future[Any]


_Outcome = tuple[Any, BaseException | None]


class BatchedOffload:
    """Runs short blocking calls in threads, several at a time."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: list[_Call] = []
        self._batches = 0
        self._start_scheduled = False

    async def offload(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work in a thread, batched with other calls; inline in simulation."""
        if simulated():
            return await offload(work, *args, **kwargs)
        loop = self._on_this_loop()
        result: asyncio.Future[T] = loop.create_future()
        self._queue.append(_Call(lambda: work(*args, **kwargs), result))
        if not self._start_scheduled and self._batches < BATCHES_MAX:
            self._start_scheduled = True
            loop.call_soon(self._start)  # more calls may be queued in this iteration of the loop
        return await result

    def _on_this_loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop. Batches of a previous, closed loop never end: forget them."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._queue, self._batches, self._start_scheduled = loop, [], 0, False
        return loop

    def _start(self) -> None:
        self._start_scheduled = False
        loop = self._on_this_loop()
        # Calls of cancelled callers: after the last one the loop may have no threads any more.
        self._queue = [call for call in self._queue if not call.result.done()]
        while self._queue and self._batches < BATCHES_MAX:
            share = -(-len(self._queue) // (BATCHES_MAX - self._batches))
            count = max(BATCH_CALLS_MIN, share)
            batch, self._queue = self._queue[:count], self._queue[count:]
            self._batches += 1
            done = loop.run_in_executor(None, _run_batch, [call.run for call in batch])
            done.add_done_callback(lambda done, batch=batch: self._finish(done, batch))  # type: ignore[misc]

    def _finish(self, done: asyncio.Future[list[_Outcome]], batch: list[_Call]) -> None:
        self._batches -= 1
        for call, (result, failure) in zip(batch, done.result(), strict=True):
            if call.result.done():
                continue  # the caller was cancelled
            if failure is None:
                call.result.set_result(result)
            else:
                call.result.set_exception(failure)
        self._start()


def _run_batch(calls: list[Callable[[], Any]]) -> list[_Outcome]:
    return [_outcome(call) for call in calls]


def _outcome(call: Callable[[], Any]) -> _Outcome:
    try:
        return call(), None
    except Exception as failure:  # raised to the caller; the rest of the batch goes on
        return None, failure
