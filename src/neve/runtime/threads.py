"""Running work in threads, without delaying the event loop.

All threads share one interpreter lock. By default a computing thread keeps it for 5 ms, and the
event loop, which serves every client, would wait that long for each of them.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from neve.runtime.context import simulated

T = TypeVar("T")
P = ParamSpec("P")

SWITCH_SECONDS = 0.0005


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
