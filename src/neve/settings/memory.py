"""Division of `broker.memory.bytes` into the memory settings of a broker's components.

A memory setting without a value is scaled with `broker.memory.bytes`, in proportion to the
defaults. Settings with a value keep it, and the total must fit. Segments are at most as large as
the memory for building one of them allows.

State (partitions, producers, groups, offsets, sessions) has limits too, but no memory of its own:
the tail cache shrinks by what state uses.
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
"""Memory of one led partition, without its records and producers."""
PROCESS_BYTES = 96 * MIB
"""Memory of the interpreter, its libraries, and connections."""
COPIES_OF_A_SEGMENT = 2
"""A segment under construction is in memory twice: as slices that were read, and concatenated."""
_TAIL = "tail.cache.bytes"
_PARTITIONS = "cluster.partitions.max"
_TIERING = "tiering.memory.bytes"
_SEGMENT = "segment.bytes"
_RECOVERY = "prefetch.bytes"


def shares(given: Mapping[str, Any]) -> dict[str, int]:
    """Return values for the memory settings that are not set, if `broker.memory.bytes` is set."""
    if WHOLE not in given:
        return {}
    known = declared()
    left, usual = given[WHOLE] - PROCESS_BYTES, known[WHOLE].default - PROCESS_BYTES
    # Reserve the state limits that are set, and divide the rest.
    apart = sum(given.get(name, 0) for name in STATE)
    apart += PARTITION_BYTES * given.get(_PARTITIONS, 0)
    left = max(left - apart, 1)

    def part(name: str, of: int, usually: int) -> int:
        about = known[name]
        size: int = about.default * of // usually
        return max(int(about.minimum or 0), size if name == _PARTITIONS else size // KIB * KIB)

    found = {name: part(name, left, usual) for name in PARTS if name not in given}
    # Used only at times: read-ahead during recovery, and a segment under construction.
    at_most = {_RECOVERY: left // 2}
    if _TIERING in found:
        at_most[_SEGMENT] = found[_TIERING] // COPIES_OF_A_SEGMENT
    fitting = {name: min(known[name].default, most) for name, most in at_most.items()}
    found |= {name: size for name, size in fitting.items() if name not in given}
    # State may use the tail cache's memory and what no component uses.
    sizes = {name: given.get(name, known[name].default) for name in PARTS} | found
    segment = sizes.get(_SEGMENT, given.get(_SEGMENT, known[_SEGMENT].default))
    tiering = max(sizes[_TIERING], COPIES_OF_A_SEGMENT * segment)
    held = sum(sizes[name] for name in PARTS) - sizes[_TIERING] + tiering
    room = sizes[_TAIL] + max(0, left - held)
    of, usually = min((left, usual), (room, known[_TAIL].default), key=lambda row: row[0] / row[1])
    names = (*STATE, _PARTITIONS)
    return found | {name: part(name, of, usually) for name in names if name not in given}


def spare_bytes(settings: Settings) -> int:
    """Return the memory that no component may use: state uses it before it shrinks the cache."""
    held = sum(_values(settings, PARTS).values()) + PROCESS_BYTES
    return max(0, settings.broker.memory_bytes - held)


def check_memory(settings: Settings) -> None:
    """Raise InvalidError if the memory settings add up to more than `broker.memory.bytes`."""
    sizes = _values(settings, PARTS)
    sizes[_TIERING] = max(sizes[_TIERING], COPIES_OF_A_SEGMENT * settings.segment.bytes)
    state = _values(settings, STATE)
    state[_PARTITIONS] = PARTITION_BYTES * settings.cluster.partitions_max
    lacking = max(0, sum(state.values()) - sizes[_TAIL])
    whole = settings.broker.memory_bytes
    needed = sum(sizes.values()) + lacking + PROCESS_BYTES
    if needed <= whole:
        return
    rows = ", ".join(f"{name} {_mebibytes(size)}" for name, size in sizes.items())
    if lacking:
        more = ", ".join(f"{name} {_mebibytes(size)}" for name, size in state.items())
        rows += f", and {_mebibytes(lacking)} of state beyond {_TAIL}: {more}"
    raise InvalidError(
        f"{WHOLE} is {_mebibytes(whole)}, but the memory settings need {_mebibytes(needed)}: "
        f"the process {_mebibytes(PROCESS_BYTES)}, {rows} ({_TIERING} counts as at least twice "
        f"{_SEGMENT}). Lower them, or set {WHOLE} to at least {-(-needed // MIB) * MIB}"
    )


def _values(settings: Settings, names: tuple[str, ...]) -> dict[str, int]:
    known = declared()
    return {
        name: getattr(getattr(settings, known[name].group), known[name].field) for name in names
    }


def _mebibytes(size: int) -> str:
    return f"{size / MIB:.4g} MiB"
