"""Virtual time: an event loop whose clock jumps to the next timer whenever nothing is ready.

A simulated run takes the same steps in the same order for the same seed: asyncio's ready queue is
first in, first out, timers are ordered, and no thread or socket is involved. An hour of timeouts
passes in milliseconds. If all tasks wait forever, the run raises DeadlockError instead of hanging;
if a task runs forever without letting time pass, it raises SpinError.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

from neve.errors import NeveError
from neve.runtime.context import World, world

T = TypeVar("T")

# A fixed start of the wall clock, so that timestamps replay too: 2026-01-01T00:00:00Z.
WALL_START_SECONDS = 1_767_225_600.0


class DeadlockError(NeveError):
    """In simulation: all tasks wait and no timer is set."""


class SpinError(NeveError):
    """In simulation: a task runs again and again while virtual time stands still."""


# Iterations of the loop in one instant. Thousands of tasks that wait for each other need many.
ROUNDS_MAX = 200_000


class _JumpingSelector:
    """Replaces asyncio's socket selector: advances the clock instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._rounds = 0

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise DeadlockError("the simulation has stopped: all tasks wait and no timer is set")
        self._rounds = 0 if timeout > 0 else self._rounds + 1
        if self._rounds > ROUNDS_MAX:
            self._rounds = 0
            raise SpinError(f"time stands still at {self._loop.time():.6f} s: a task spins")
        self._loop.advance(timeout)
        return []

    def close(self) -> None:
        """Do nothing: there is no resource to release."""


class VirtualLoop(asyncio.BaseEventLoop):
    """asyncio's own scheduler on a virtual clock."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._selector = _JumpingSelector(self)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        if seconds > 0:
            self._now += seconds

    def _process_events(self, event_list: list[Any]) -> None:
        """Do nothing: there are no sockets."""

    def _write_to_self(self) -> None:
        """Do nothing: no other thread wakes this loop."""


def simulate(main: Coroutine[Any, Any, T], *, seed: int) -> T:
    """Run `main` to completion in virtual time, with all randomness drawn from `seed`."""
    loop = VirtualLoop()
    source = random.Random(seed)
    identities = random.Random(f"identities-{seed}")
    simulation = World(
        monotonic=loop.time,
        wall=lambda: WALL_START_SECONDS + loop.time(),
        entropy=identities.randbytes,
        chance=source,
        simulated=True,
    )
    context = copy_context()
    context.run(world.set, simulation)
    try:
        return loop.run_until_complete(loop.create_task(main, context=context))
    finally:
        _end_remaining(loop)
        loop.close()


def _end_remaining(loop: VirtualLoop) -> None:
    """Cancel the remaining tasks, such as those of a killed node."""
    remaining = sorted(asyncio.all_tasks(loop), key=lambda task: task.get_name())
    for task in remaining:
        task.cancel()
    if remaining:
        loop.run_until_complete(asyncio.wait(remaining))
