"""Arithmetic on offset ranges and skips.

A skip is a range of offsets that an operator gave up for lost (`neve storage skip`). Readers pass
over it, and nothing reports it as missing. A leap is a skip of which the end of the loss is not
known (`neve cluster abandon-wal`): its offsets are not counted. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from neve.log.manifest.records import Skip

OffsetRange: TypeAlias = tuple[int, int]
"""Offsets from the first up to, not including, the second."""


def past_skips(skips: Sequence[Skip], offset: int) -> int:
    """Return the first offset at or above `offset` that no skip covers."""
    for skip in sorted(skips, key=_first):
        if skip.first <= offset <= skip.last:
            offset = skip.last + 1
    return offset


def next_skip(skips: Sequence[Skip], offset: int) -> int | None:
    """Return the first offset of the next skip above `offset`; None if there is none."""
    if not skips:
        return None
    return min((skip.first for skip in skips if skip.first > offset), default=None)


def is_skipped(skips: Sequence[Skip], first: int, end: int) -> bool:
    """Return whether skips cover all offsets from `first` up to, not including, `end`."""
    return past_skips(skips, first) >= end


def clipped_skips(skips: Iterable[Skip], first: int, end: int) -> list[OffsetRange]:
    """Return the parts of skips within a range, ascending, joined where they overlap or touch."""
    found: list[OffsetRange] = []
    for skip in sorted(skips, key=_first):
        start, stop = max(first, skip.first), min(end, skip.last + 1)
        if start >= stop:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return found


def leaps(skips: Iterable[Skip]) -> tuple[Skip, ...]:
    """Return the skips of which the end of the loss is not known."""
    return tuple(skip for skip in skips if not skip.end_known)


def known_losses(skips: Iterable[Skip]) -> tuple[Skip, ...]:
    """Return the skips of which each offset counts as lost."""
    return tuple(skip for skip in skips if skip.end_known)


def crosses_leap(skips: Iterable[Skip], first: int, end: int) -> bool:
    """Return whether a leap has an offset from `first` up to, not including, `end`."""
    return any(skip.first < end and first <= skip.last for skip in leaps(skips))


def clipped(ranges: Iterable[OffsetRange], first: int, end: int) -> list[OffsetRange]:
    """Return the parts of ranges within a range, in the same order."""
    cut = [(max(first, low), min(end, high)) for low, high in ranges]
    return [(low, high) for low, high in cut if low < high]


def without(first: int, end: int, holes: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the parts of a range outside `holes`. Holes must be in ascending order."""
    left: list[OffsetRange] = []
    for start, stop in holes:
        if first < start:
            left.append((first, start))
        first = max(first, stop)
    if first < end:
        left.append((first, end))
    return left


def _first(skip: Skip) -> int:
    return skip.first
