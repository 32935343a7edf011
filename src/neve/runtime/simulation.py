"""Virtual time: an event loop whose clock jumps to the next timer whenever nothing is ready.

A simulated run takes the same steps in the same order for the same seed: asyncio's ready queue is
first in, first out, timers are ordered, and no thread or socket is involved. An hour of timeouts
passes in milliseconds. If all tasks wait forever, the run raises DeadlockError instead of hanging;
if a task runs forever without letting time pass, it raises SpinError.

The loop is asyncio's own selector loop on a `VirtualSelector`. Sockets in memory can therefore have
asyncio's own transports: a loop whose selector knows such sockets is passed to `simulate`.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Coroutine, Mapping
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


class VirtualSelector(selectors.BaseSelector):
    """Replaces asyncio's selector: advances a clock instead of waiting.

    No descriptor is ever ready. A subclass with sockets in memory overrides `ready`.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._rounds = 0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, fileobj, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def ready(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the registered descriptors that are ready, each with its events."""
        return []

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self.ready()
        if ready:
            timeout = 0
        elif timeout is None:
            raise DeadlockError("the simulation has stopped: all tasks wait and no timer is set")
        self._rounds = 0 if timeout > 0 else self._rounds + 1
        if self._rounds > ROUNDS_MAX:
            self._rounds = 0
            raise SpinError(f"time stands still at {self.now:.6f} s: a task spins")
        self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's own scheduler on a virtual clock."""

    def __init__(self, selector: VirtualSelector | None = None) -> None:
        self._clock = selector or VirtualSelector()
        super().__init__(self._clock)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._clock.now

    # asyncio has a pair of sockets through which other threads wake the loop. There are none.

    def _make_self_pipe(self) -> None:
        """Do nothing: no other thread wakes this loop."""

    def _close_self_pipe(self) -> None:
        """Do nothing: no other thread wakes this loop."""

    def _write_to_self(self) -> None:
        """Do nothing: no other thread wakes this loop."""


def simulate(main: Coroutine[Any, Any, T], *, seed: int, loop: VirtualLoop | None = None) -> T:
    """Run `main` to completion in virtual time, with all randomness drawn from `seed`.

    `loop` is a new loop that has more than tasks and timers, such as sockets in memory.
    """
    loop = loop or VirtualLoop()
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
