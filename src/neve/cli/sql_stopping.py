"""Ctrl-C while a statement runs: Spark is told to end it, and the command waits until it has.

The statement runs in a thread of its own. A signal that broke into its call would leave the bridge
to Spark with an answer that nobody takes.
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
    """Run some work. On Ctrl-C, stop it and raise KeyboardInterrupt; on a second one, just end."""
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
    while True:  # until the work ends: a stop may come just before what it is meant for begins
        await runtime.offload(stop)
        await runtime.sleep(_AGAIN_SECONDS)
