"""What a broker's memory is divided into: one bound for the process, and a share for each part.

A part that is not set has its share of `broker.memory.bytes`, as large as its default is beside
that setting's. Parts that are set keep what they were given, and must leave room for the rest.
Segments are no larger than what building one of them may take up.

State (partitions, producers, groups, offsets, sessions) has shares as well, and no room of its own:
the cache of the tail gives way to it.
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
STATE = (
    "producers.memory.bytes",
    "groups.metadata.max.bytes",
    "offsets.memory.bytes",
    "fetch.sessions.bytes",
)
PARTITION_BYTES = 6 * KIB
"""What a partition takes up that is led, beside its records and producers."""
PROCESS_BYTES = 96 * MIB
"""The interpreter, its libraries, and connections."""
COPIES_OF_A_SEGMENT = 2
"""A segment being built is in memory as the slices that were read, and put together."""
_TAIL = "tail.cache.bytes"
_PARTITIONS = "cluster.partitions.max"
_BUILDING = "tiering.memory.bytes"
_SEGMENT = "segment.bytes"
_RECOVERY = "prefetch.bytes"


def shares(given: Mapping[str, Any]) -> dict[str, int]:
    """The parts that are not set, if the whole is: each as much of it as of the default."""
    if WHOLE not in given:
        return {}
    known = declared()
    left, usual = given[WHOLE] - PROCESS_BYTES, known[WHOLE].default - PROCESS_BYTES
    # State that is set is set apart; what is left of the whole is divided.
    apart = sum(given.get(name, 0) for name in STATE)
    apart += PARTITION_BYTES * given.get(_PARTITIONS, 0)
    left = max(left - apart, 1)

    def part(name: str, of: int, usually: int) -> int:
        about = known[name]
        size: int = about.default * of // usually
        return max(int(about.least or 0), size if name == _PARTITIONS else size // KIB * KIB)

    found = {name: part(name, left, usual) for name in PARTS if name not in given}
    # What is not held all the time: a segment while it is built, what recovery reads at the start.
    at_most = {_RECOVERY: left // 2}
    if _BUILDING in found:
        at_most[_SEGMENT] = found[_BUILDING] // COPIES_OF_A_SEGMENT
    fitting = {name: min(known[name].default, most) for name, most in at_most.items()}
    found |= {name: size for name, size in fitting.items() if name not in given}
    # State has what the cache of the tail can give way to, and what is left over.
    sizes = {name: given.get(name, known[name].default) for name in PARTS} | found
    segment = sizes.get(_SEGMENT, given.get(_SEGMENT, known[_SEGMENT].default))
    building = max(sizes[_BUILDING], COPIES_OF_A_SEGMENT * segment)
    held = sum(sizes[name] for name in PARTS) - sizes[_BUILDING] + building
    room = sizes[_TAIL] + max(0, left - held)
    of, usually = min((left, usual), (room, known[_TAIL].default), key=lambda row: row[0] / row[1])
    names = (*STATE, _PARTITIONS)
    return found | {name: part(name, of, usually) for name in names if name not in given}


def spare_bytes(settings: Settings) -> int:
    """What the whole leaves when all parts are held: state may have that without any cache's."""
    held = sum(_values(settings, PARTS).values()) + PROCESS_BYTES
    return max(0, settings.broker.memory_bytes - held)


def refuse_too_much(settings: Settings) -> None:
    """Refuse parts that come to more than the whole leaves them."""
    sizes = _values(settings, PARTS)
    sizes[_BUILDING] = max(sizes[_BUILDING], COPIES_OF_A_SEGMENT * settings.segment.bytes)
    state = _values(settings, STATE)
    state[_PARTITIONS] = PARTITION_BYTES * settings.cluster.partitions_max
    lacking = max(0, sum(state.values()) - sizes[_TAIL])
    whole = settings.broker.memory_bytes
    needed = sum(sizes.values()) + lacking + PROCESS_BYTES
    if needed <= whole:
        return
    rows = ", ".join(f"{name} {_told(size)}" for name, size in sizes.items())
    if lacking:
        more = ", ".join(f"{name} {_told(size)}" for name, size in state.items())
        rows += f", and what {_TAIL} cannot make room for of {more}"
    raise InvalidError(
        f"{WHOLE} is {_told(whole)}, but the process itself ({_told(PROCESS_BYTES)}) and what it "
        f"may hold come to {_told(needed)} ({rows}; {_BUILDING} is at least twice {_SEGMENT}): "
        f"lower these, or set {WHOLE} to {-(-needed // MIB) * MIB} or more"
    )


def _values(settings: Settings, names: tuple[str, ...]) -> dict[str, int]:
    known = declared()
    return {
        name: getattr(getattr(settings, known[name].group), known[name].field) for name in names
    }


def _told(size: int) -> str:
    return f"{size / MIB:.4g} MiB"
