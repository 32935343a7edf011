"""Several ranges of one object as few requests: near ones are read together and cut apart.

Every store and wrapper answers `get_ranges` with its own `get_range`, so each request is a call
of its own to the gate, to retry and to the counters. (obstore's own get_ranges aborts where a
range starts past the object's end.)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from neve import runtime
from neve.settings import MIB
from neve.store.key import checked_range

# Reading over a gap this wide costs less time than another request.
GAP_BYTES_MAX = MIB

GetRange = Callable[[str, int, int], Awaitable[memoryview]]


def merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The stretches to read, in order and apart, that cover all ranges that are not empty."""
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
    """All ranges, in the order asked for, each clamped at the object's end."""
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
