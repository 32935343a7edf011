"""Chooses the segments that are worth merging, from the list alone and without I/O.

Neighbours are grouped from the oldest on, as many as fit into the requested size. A segment is
rewritten only together with at least half as many bytes of others. So, however often jobs run, the
number of times that a byte is rewritten grows only with the logarithm of the size.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from neve.log.manifest.records import Segment
from neve.log.segment import kfs

# The last segments of an internal partition, which are not merged: if the last bundle is lost, the
# one before it is needed to rebuild it.
INTERNAL_KEPT = 2
TIMES_THE_REST_MAX = 2
"""A segment is rewritten only if it has at most this many times the bytes of all others."""


def merge_groups(
    segments: Sequence[Segment],
    target_bytes: int,
    *,
    left_out: Collection[str] = (),
    imported: bool = False,
    internal: bool = False,
) -> list[list[Segment]]:
    """Return groups of two or more neighbours, each for a segment of at most `target_bytes`.

    Imported segments are not grouped unless requested, because merging them makes a copy.
    """
    if internal:
        segments = segments[:-INTERNAL_KEPT]
    groups: list[list[Segment]] = []
    group: list[Segment] = []
    size = 0
    for segment in segments:
        fits = segment.key not in left_out and (imported or segment.owned)
        joins = bool(group) and segment.base == group[-1].last + 1
        if group and not (fits and joins and size + _body_bytes(segment) <= target_bytes):
            groups.append(group)
            group, size = [], 0
        if fits and segment.bytes < target_bytes:
            if not group:
                size = kfs.HEADER_BYTES + kfs.FOOTER_BYTES
            group.append(segment)
            size += _body_bytes(segment)
    groups.append(group)
    return [worth for group in groups if (worth := _worth_rewriting(group))]


def _body_bytes(segment: Segment) -> int:
    return segment.bytes - kfs.HEADER_BYTES - kfs.FOOTER_BYTES


def _worth_rewriting(group: list[Segment]) -> list[Segment]:
    """Return the group without segments at its ends that are too large compared to the rest.

    Returns an empty list if fewer than two are left, or if one in the middle is too large.
    """
    kept = list(group)
    while len(kept) > 1:
        size = sum(segment.bytes for segment in kept)
        too_large = [
            segment.bytes > TIMES_THE_REST_MAX * (size - segment.bytes) for segment in kept
        ]
        if too_large[0]:
            del kept[0]
        elif too_large[-1]:
            del kept[-1]
        else:
            return [] if any(too_large) else kept
    return []
