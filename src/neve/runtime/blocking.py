"""An event loop in its own thread, for synchronous callers.

`BlockingRunner` lets synchronous code run coroutines and iterate over asynchronous generators from
any thread. Closing the runner cancels what still runs. A runner that was not closed is closed when
it is garbage collected or the process ends.

The garbage collector may end an iteration in any thread, such as the loop's own or one that holds a
lock that the loop needs. So the end of an iteration only schedules the close of its source, and
`end_iterations` waits for it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import weakref
from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any, TypeVar

from neve.errors import ClosedError
from neve.runtime.tasks import Tasks, loop_factory

T = TypeVar("T")


class BlockingRunner:
    """Runs coroutines for threads that wait for them. Close it, or use it in a `with` statement."""

    def __init__(self, name: str = "neve") -> None:
        self._loop = _LoopThread(name)
        self._sources: dict[int, AsyncGenerator[Any, None]] = {}
        self._closing = Tasks()
        self._finalizer = weakref.finalize(self, self._loop.stop)

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result. Interrupting the caller (Ctrl-C) cancels it."""
        if self.closed:
            work.close()
            raise ClosedError("it is closed: open it again")
        future = asyncio.run_coroutine_threadsafe(work, self._loop.loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            # Only close() cancels it: another thread closed the runner during the call.
            raise ClosedError("it was closed during the call: open it again") from None
        except BaseException:
            future.cancel()
            raise

    def iterate(self, source: AsyncGenerator[T, None]) -> Iterator[T]:
        """Iterate over an asynchronous generator.

        Leaving the iteration early closes the source soon, without waiting for it.
        Raises ClosedError once the runner is closed, so that this is not mistaken for the end.
        """
        self._sources[id(source)] = source
        try:
            while True:
                try:
                    item = self.run(_next(source))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            self._close_soon(source)

    def _close_soon(self, source: AsyncGenerator[Any, None]) -> None:
        if self._sources.pop(id(source), None) is None or self.closed:
            return
        closing = self._closing
        with contextlib.suppress(RuntimeError):  # the loop has stopped, and closed its generators
            self._loop.loop.call_soon_threadsafe(lambda: closing.start(_close(source)))

    def end_iterations(self) -> None:
        """Close the sources of all unfinished iterations, and wait until all are closed.

        Raises the first failure of a source to close.
        """
        for source in list(self._sources.values()):
            self._close_soon(source)
        self.run(self._closing.join())

    def close(self) -> None:
        """End all iterations, cancel running coroutines and stop the thread."""
        if not self.closed:
            try:
                self.end_iterations()
            finally:
                self._finalizer()

    def __enter__(self) -> BlockingRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _close(source: AsyncGenerator[Any, None]) -> None:
    with contextlib.suppress(RuntimeError):  # another thread runs a step of it, which is cancelled
        await source.aclose()


async def _next(source: AsyncGenerator[T, None]) -> T:
    return await anext(source)


class _LoopThread:
    """The thread and its loop. It holds no reference to the runner, which can thus be collected."""

    def __init__(self, name: str) -> None:
        self.loop: asyncio.AbstractEventLoop
        self._stopped: asyncio.Event
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()
        self._started.wait()

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        self._started.set()
        await self._stopped.wait()

    def stop(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has already stopped
            self.loop.call_soon_threadsafe(self._stopped.set)
        # A finalizer may run in the loop's own thread, which cannot wait for itself.
        if threading.current_thread() is not self._thread:
            self._thread.join()
