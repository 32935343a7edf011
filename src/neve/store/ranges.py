"""Reading several ranges of one object with few requests: adjacent ranges are merged.

Every store and wrapper implements `get_ranges` with its own `get_range`, so that the gate, retries
and counters see each request. (obstore's get_ranges aborts if a range starts past the object's
end.)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from neve import runtime
from neve.settings import MIB
from neve.store.key import checked_range

# Reading a gap of this size takes less time than another request.
GAP_BYTES_MAX = MIB

GetRange = Callable[[str, int, int], Awaitable[memoryview]]


def merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return disjoint stretches, in order, that cover all ranges that are not empty."""
    stretches: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if start == end:
            continue
        if stretches and start - stretches[-1][1] <= GAP_BYTES_MAX:
            stretches[-1] = (stretches[-1][0], max(stretches[-1][1], end))
        else:
            stretches.append((start, end))
    return stretches


async def get_by_parts(
    get_range: GetRange, key: str, ranges: Sequence[tuple[int, int]]
) -> list[memoryview]:
    """Return all ranges in the given order, each clamped at the object's end."""
    for start, end in ranges:
        checked_range(key, start, end)
    stretches = merged(ranges)

    async def read(start: int, end: int) -> memoryview:
        return await get_range(key, start, end)

    blocks = await runtime.gather(*(read(start, end) for start, end in stretches))
    found: list[memoryview] = []
    for start, end in ranges:
        found.append(_cut(stretches, blocks, start, end))
    return found


def _cut(
    stretches: list[tuple[int, int]], blocks: list[memoryview], start: int, end: int
) -> memoryview:
    for (first, last), block in zip(stretches, blocks, strict=True):
        if first <= start and end <= last and start < end:
            return block[start - first : end - first]
    return memoryview(b"")
