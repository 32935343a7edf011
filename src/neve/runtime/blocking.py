"""A loop in a thread of its own, for callers that are not asynchronous.

`BlockingRunner` lets ordinary code call coroutines and iterate over asynchronous generators, from
any thread. Whatever a caller left running is cancelled when the runner is closed; a runner that was
forgotten is closed when it is collected or the process ends.
"""

from __future__ import annotations

import asyncio
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
        except BaseException:
            future.cancel()
            raise

    def iterate(self, source: AsyncGenerator[T, None]) -> Iterator[T]:
        """An asynchronous generator as an ordinary one. Leaving it early closes the source."""
        try:
            while True:
                try:
                    item = self.run(_next(source))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            if not self.closed:
                with contextlib.suppress(ClosedError):
                    self.run(source.aclose())

    def close(self) -> None:
        """Cancel what runs and end the thread."""
        self._finalizer()

    def __enter__(self) -> BlockingRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
