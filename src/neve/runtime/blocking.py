"""A loop in a thread of its own, for callers that are not asynchronous.

`BlockingRunner` lets ordinary code call coroutines and iterate over asynchronous generators, from
any thread. Whatever a caller left running is cancelled when the runner is closed; a runner that was
forgotten is closed when it is collected or the process ends.
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

T = TypeVar("T")


class BlockingRunner:
    """Runs coroutines for threads that wait for them. Close it, or use it as `with`."""

    def __init__(self, name: str = "neve") -> None:
        self._loop = _LoopThread(name)
        self._sources: dict[int, AsyncGenerator[Any, None]] = {}
        self._finalizer = weakref.finalize(self, self._loop.stop)

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine. Interrupting the caller (Ctrl-C) cancels it."""
        if self.closed:
            work.close()
            raise ClosedError("it is closed: open it again")
        future = asyncio.run_coroutine_threadsafe(work, self._loop.loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            # Nobody else cancels: it was closed from another thread while this one waited.
            raise ClosedError("it was closed meanwhile: open it again") from None
        except BaseException:
            future.cancel()
            raise

    def iterate(self, source: AsyncGenerator[T, None]) -> Iterator[T]:
        """An asynchronous generator as an ordinary one. Leaving it early closes the source.

        Once the runner is closed it ends with ClosedError, which does not look like its end.
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
            if self._sources.pop(id(source), None) is not None and not self.closed:
                self.run(_close(source))

    def end_iterations(self) -> None:
        """Close the sources of all iterators that somebody still holds."""
        for source in list(self._sources.values()):
            self._sources.pop(id(source), None)
            self.run(_close(source))

    def close(self) -> None:
        """End all iterations, cancel what runs and end the thread."""
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
    with contextlib.suppress(RuntimeError):  # another thread waits for it: that step is cancelled
        await source.aclose()


async def _next(source: AsyncGenerator[T, None]) -> T:
    return await anext(source)


class _LoopThread:
    """The thread and its loop. Nothing here refers to the runner, so that it can be collected."""

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
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            self.loop.call_soon_threadsafe(self._stopped.set)
        # A finalizer may run in the loop's own thread, which cannot wait for itself.
        if threading.current_thread() is not self._thread:
            self._thread.join()


def loop_factory() -> Any:
    """uvloop's where there is one; None means asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
