"""The world in which code runs: the real one, or a simulation with a seed.

The world is a context variable that a task inherits from the task that starts it. Two simulations,
or a simulation and the real world, therefore never mix.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field


@dataclass(frozen=True)
class World:
    """The sources of time and randomness."""

    monotonic: Callable[[], float]
    wall: Callable[[], float]
    entropy: Callable[[int], bytes]
    chance: random.Random
    cpu: Callable[[], float] = lambda: 0.0
    simulated: bool = False


@dataclass(frozen=True)
class _RealWorld(World):
    monotonic: Callable[[], float] = time.perf_counter
    wall: Callable[[], float] = time.time
    entropy: Callable[[int], bytes] = os.urandom
    chance: random.Random = field(default_factory=random.Random)
    cpu: Callable[[], float] = time.process_time


world: ContextVar[World] = ContextVar("neve_world", default=_RealWorld())  # noqa: B039 (frozen)


def chance() -> random.Random:
    """Return the random number generator (jitter, placement); seeded in simulation."""
    return world.get().chance


def token(size: int) -> bytes:
    """Return random bytes for identities, from the operating system or the simulation's seed."""
    return world.get().entropy(size)


def simulated() -> bool:
    """Return whether time is virtual. Use it only for what cannot be simulated: threads."""
    return world.get().simulated
