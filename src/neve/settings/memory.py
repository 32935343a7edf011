"""What a broker's memory is divided into: one bound for the process, and a share for each part.

A part that is not set has its share of `broker.memory.bytes`, as large as its default is beside
that setting's. Parts that are set keep what they were given, and must leave room for the rest.
Segments are no larger than what building one of them may take up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neve.errors import InvalidError
from neve.settings.declare import KIB, MIB
from neve.settings.tree import Settings, declared

WHOLE = "broker.memory.bytes"
PARTS = (
    "wal.buffer.bytes",
    "tail.cache.bytes",
    "index.cache.memory.bytes",
    "tiering.memory.bytes",
    "fetch.catchup.bytes",
    "fetch.unsent.bytes",
    "fetch.search.bytes",
    "fetch.waiting.bytes",
    "broker.receiving.bytes.max",
    "broker.receive.pool.bytes",
)
PROCESS_BYTES = 96 * MIB
"""The interpreter, its libraries, and what is known of partitions, groups and connections."""
COPIES_OF_A_SEGMENT = 2
"""A segment being built is in memory as the slices that were read, and put together."""
_BUILDING = "tiering.memory.bytes"
_SEGMENT = "segment.bytes"
_RECOVERY = "prefetch.bytes"


def shares(given: Mapping[str, Any]) -> dict[str, int]:
    """The parts that are not set, if the whole is: each as much of it as of the default."""
    if WHOLE not in given:
        return {}
    known = declared()
    left, usual = given[WHOLE] - PROCESS_BYTES, known[WHOLE].default - PROCESS_BYTES
    found = {
        name: max(int(about.least or 0), about.default * left // usual // KIB * KIB)
        for name, about in known.items()
        if name in PARTS and name not in given
    }
    # What is not held all the time: a segment while it is built, what recovery reads at the start.
    at_most = {_RECOVERY: left // 2}
    if _BUILDING in found:
        at_most[_SEGMENT] = found[_BUILDING] // COPIES_OF_A_SEGMENT
    fitting = {name: min(known[name].default, most) for name, most in at_most.items()}
    return found | {name: size for name, size in fitting.items() if name not in given}


def refuse_too_much(settings: Settings) -> None:
    """Refuse parts that come to more than the whole leaves them."""
    known = declared()
    sizes = {
        name: getattr(getattr(settings, known[name].group), known[name].field) for name in PARTS
    }
    sizes[_BUILDING] = max(sizes[_BUILDING], COPIES_OF_A_SEGMENT * settings.segment.bytes)
    whole, needed = settings.broker.memory_bytes, sum(sizes.values()) + PROCESS_BYTES
    if needed <= whole:
        return
    rows = ", ".join(f"{name} {_told(size)}" for name, size in sizes.items())
    raise InvalidError(
        f"{WHOLE} is {_told(whole)}, but the process itself ({_told(PROCESS_BYTES)}) and what it "
        f"may hold come to {_told(needed)} ({rows}; {_BUILDING} is at least twice {_SEGMENT}): "
        f"lower these, or set {WHOLE} to {-(-needed // MIB) * MIB} or more"
    )


def _told(size: int) -> str:
    return f"{size / MIB:.4g} MiB"
