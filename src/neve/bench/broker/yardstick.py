"""How fast this machine is just now: processor time for one fixed piece of work.

Cores that are shared with strangers do the same work in half the time or twice of it, from one
minute to the next, and absolute figures change along. This says by how much.
"""

from __future__ import annotations

from neve import runtime

TURNS = 100_000
COPIES = 25
_BLOCK = bytes(1 << 20)


def milliseconds() -> float:
    """Take some interpreted steps and copy some bytes."""
    before = runtime.cpu_seconds()
    seen: dict[int, tuple[int, str]] = {}
    for turn in range(TURNS):
        seen[turn & 1023] = (turn, str(turn))
    for _ in range(COPIES):
        bytearray(_BLOCK)
    return (runtime.cpu_seconds() - before) * 1000
