"""Which world we are in: the real one, or a simulation with a seed.

The world is a context variable. Tasks inherit it from whoever starts them, so two simulations, or a
simulation and the real world, never mix.
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
    """Where time and chance come from."""

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
    """The source of random choices (jitter, placement): seeded in simulation."""
    return world.get().chance


def token(size: int) -> bytes:
    """Random bytes for identities: from the operating system, or the seed in simulation."""
    return world.get().entropy(size)


def simulated() -> bool:
    """Whether time is virtual. Only for choosing what cannot be simulated, such as threads."""
    return world.get().simulated
