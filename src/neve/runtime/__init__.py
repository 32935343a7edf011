"""The only package that reads a clock, sleeps, draws random numbers or starts tasks and threads.

All other packages use it. The whole system therefore runs in simulation from a seed: `simulate`
replaces the event loop's clock, the wall clock and the random number generator.
"""

from neve.runtime.blocking import BlockingRunner
from neve.runtime.clock import (
    Backoff,
    backoff_seconds,
    cpu_seconds,
    deadline,
    monotonic,
    ms_from_wall,
    now_ms,
    sleep,
    wall_from_ms,
)
from neve.runtime.context import chance, simulated, token
from neve.runtime.deadline_queue import DeadlineQueue
from neve.runtime.memory import MemoryBudget, MemoryShare
from neve.runtime.process_memory import (
    give_back_freed_memory,
    keep_freed_memory,
    resident_bytes,
)
from neve.runtime.simulation import DeadlockError, SpinError, simulate
from neve.runtime.tasks import Tasks, first, gather, one_ahead, run, spawn
from neve.runtime.threads import BatchedOffload, ThreadPool, favour_the_loop, offload

__all__ = [
    "Backoff",
    "BatchedOffload",
    "BlockingRunner",
    "DeadlineQueue",
    "DeadlockError",
    "MemoryBudget",
    "MemoryShare",
    "SpinError",
    "Tasks",
    "ThreadPool",
    "backoff_seconds",
    "chance",
    "cpu_seconds",
    "deadline",
    "favour_the_loop",
    "first",
    "gather",
    "give_back_freed_memory",
    "keep_freed_memory",
    "monotonic",
    "ms_from_wall",
    "now_ms",
    "offload",
    "one_ahead",
    "resident_bytes",
    "run",
    "simulate",
    "simulated",
    "sleep",
    "spawn",
    "token",
    "wall_from_ms",
]
