"""Which segments are worth merging: pure, from the list alone.

Neighbours are taken together from the oldest on, as many as fit into the requested size. A segment
is rewritten only together with at least half as many bytes of others, so that a job that runs again
and again rewrites a byte a number of times that grows with the logarithm of the size, not with the
number of runs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from neve.log.manifest.records import Segment
from neve.log.segment import kfs

# Of an internal partition, the last bundle could be lost: the one before it has what rebuilds it.
INTERNAL_KEPT = 2
TIMES_THE_REST_MAX = 2
"""How much larger than all others together a segment may be that is rewritten with them."""


def merge_groups(
    segments: Sequence[Segment],
    target_bytes: int,
    *,
    left_out: Collection[str] = (),
    imported: bool = False,
    internal: bool = False,
) -> list[list[Segment]]:
    """Groups of at least two neighbours, each to become one segment of `target_bytes` at most.

    Imported segments are left alone unless requested: merging them makes a copy.
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
    """The group without what is too large beside the rest of it, at its ends; or nothing."""
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
