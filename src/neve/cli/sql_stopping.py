"""Ctrl-C while a statement runs: cancel it in Spark, and wait until it has ended.

The statement runs in a thread. An interrupted call to the JVM would leave an unread response in the
connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable

from neve import runtime
from neve.cli import EXIT_INTERRUPTED

_AGAIN_SECONDS = 0.5


def run_stoppable(work: Callable[[], object], stop: Callable[[], object]) -> None:
    """Run some work. Ctrl-C stops it and raises KeyboardInterrupt; a second one ends at once."""
    runtime.run(_run(work, stop))


async def _run(work: Callable[[], object], stop: Callable[[], object]) -> None:
    asked = asyncio.Event()

    def interrupted() -> None:
        if asked.is_set():
            sys.stdout.flush()
            os._exit(EXIT_INTERRUPTED)
        asked.set()

    loop = asyncio.get_running_loop()
    with contextlib.suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGINT, interrupted)
    stopper = runtime.spawn(_stop_when(asked, stop))
    try:
        await runtime.offload(work)
    except Exception:
        if asked.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        stopper.cancel()
        loop.remove_signal_handler(signal.SIGINT)
    if asked.is_set():
        raise KeyboardInterrupt


async def _stop_when(asked: asyncio.Event, stop: Callable[[], object]) -> None:
    await asked.wait()
    while True:  # repeat until the work ends: a stop may arrive before the statement has started
        await runtime.offload(stop)
        await runtime.sleep(_AGAIN_SECONDS)
