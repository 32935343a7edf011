"""What a selection would read of each partition: made of manifests and tails, without any data.

A plan's pieces cover every offset of the selection, except where a segment's or slice's times say
that it has no record of the wanted ones, and where offsets were given up on purpose. Offsets that
no object holds are a piece of no bytes: whoever reads it looks again, and is told if they are lost.

One partition that cannot be planned does not keep the others from being planned: its plan carries
the `failure`, and as much as could be seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neve import runtime
from neve.bucket.layout import PartitionSource, Resolved
from neve.bucket.model import (
    EARLIEST,
    LATEST,
    PARTITION_ERRORS,
    Bounds,
    Selection,
    TopicInfo,
)
from neve.bucket.pieces import Piece, SegmentPiece, TailPiece, plan
from neve.errors import NeveError
from neve.log.manifest.records import Segment

TIME_MIN, TIME_MAX = -(2**63), 2**63 - 1
"""The times of a piece of which nobody wrote them down."""


@dataclass(frozen=True)
class PlannedPiece:
    """Offsets from `first` up to `end` in one object; `bytes` is in proportion for a part of it."""

    first: int
    end: int
    bytes: int
    min_timestamp: int
    max_timestamp: int
    tail: bool


@dataclass(frozen=True)
class PartitionPlan:
    """What a selection leaves of one partition.

    `start` and `end` are the log's bounds, `first` and `stop` the selection's within them; `lost`
    is how many offsets were asked for below the log's start. Segments and bytes that are pruned are
    those of the whole partition that the selection leaves out. Where `failure` is set, `end` is how
    far the partition could be seen.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    first: int
    stop: int
    pieces: tuple[PlannedPiece, ...] = ()
    segments_planned: int = 0
    segments_pruned: int = 0
    bytes_planned: int = 0
    bytes_pruned: int = 0
    lost: int = 0
    failure: NeveError | None = None


async def plan_partitions(
    sources: Sequence[PartitionSource], topics: Sequence[TopicInfo], bounds: Bounds, at_once: int
) -> list[PartitionPlan]:
    """Plans in the order of the sources, `at_once` of them looked up side by side."""
    ids = {topic.name: topic.id for topic in topics}
    found: list[PartitionPlan] = []
    for begin in range(0, len(sources), at_once):
        found += await runtime.gather(
            *(
                _planned(source, ids[source.name.topic], bounds.of(source.name.partition))
                for source in sources[begin : begin + at_once]
            )
        )
    return found


async def _planned(source: PartitionSource, topic_id: str, selection: Selection) -> PartitionPlan:
    try:
        resolved = await source.resolve()
        return await _of(source, topic_id, selection, resolved)
    except PARTITION_ERRORS as error:
        topic, partition = source.name
        return PartitionPlan(topic, topic_id, partition, 0, 0, 0, 0, failure=error)


async def _of(
    source: PartitionSource, topic_id: str, selection: Selection, resolved: Resolved
) -> PartitionPlan:
    first, lost = _first(selection, resolved)
    stop = max(first, min(resolved.end, selection.to_offset))
    listed: list[Segment] = []
    kept: set[str] = set()
    if first < stop:
        listed = await source.segments(first, stop, Selection())
        wanted = await source.segments(first, stop, selection) if selection.by_time else listed
        kept = {row.key for row in wanted if _in_time(*_times(row), selection)}
    found = plan(first, stop, listed, resolved.tail, resolved.skips)
    chosen = [piece for piece in found.pieces if _wanted(piece, kept, selection)]
    planned = {piece.segment.key for piece in chosen if isinstance(piece, SegmentPiece)}
    pieces = [_described(piece) for piece in chosen]
    pieces += [PlannedPiece(*hole, 0, TIME_MIN, TIME_MAX, tail=False) for hole in found.missing]
    segments_all, bytes_all = await source.totals()
    bytes_all += sum(row.entry.length for row in resolved.tail)
    bytes_planned = sum(piece.bytes for piece in pieces)
    topic, partition = source.name
    return PartitionPlan(
        topic,
        topic_id,
        partition,
        resolved.start,
        resolved.end,
        first,
        stop,
        tuple(sorted(pieces, key=lambda piece: piece.first)),
        len(planned),
        max(0, segments_all - len(planned)),
        bytes_planned,
        max(0, bytes_all - bytes_planned),
        lost,
        resolved.failure,
    )


def _first(selection: Selection, resolved: Resolved) -> tuple[int, int]:
    """Where to begin, within the log, and how many offsets before that are gone."""
    asked = selection.from_offset
    if asked == EARLIEST:
        return resolved.start, 0
    if asked == LATEST:
        return resolved.end, 0
    first = int(asked)
    lost = max(0, min(resolved.start, selection.to_offset) - first)
    return min(max(first, resolved.start), resolved.end), lost


def _wanted(piece: Piece, kept: set[str], selection: Selection) -> bool:
    if isinstance(piece, SegmentPiece):
        return piece.segment.key in kept
    return _in_time(TIME_MIN, piece.row.entry.max_timestamp, selection)


def _times(segment: Segment) -> tuple[int, int]:
    """Times that no record of a segment lies outside of.

    Tiering and merging look at batch headers alone, and a producer may give a record an earlier
    time than its batch's first: only of imported segments is the least time that of a record.
    """
    least = TIME_MIN if segment.owned else segment.min_timestamp
    return least, segment.max_timestamp


def _in_time(min_timestamp: int, max_timestamp: int, selection: Selection) -> bool:
    young = selection.from_timestamp is None or max_timestamp >= selection.from_timestamp
    return young and (selection.to_timestamp is None or min_timestamp < selection.to_timestamp)


def _described(piece: Piece) -> PlannedPiece:
    if isinstance(piece, TailPiece):
        entry = piece.row.entry
        offsets = entry.last_offset + 1 - entry.base_offset
        size = _share(entry.length, piece, offsets)
        return PlannedPiece(piece.first, piece.end, size, TIME_MIN, entry.max_timestamp, tail=True)
    segment = piece.segment
    size = _share(segment.bytes, piece, segment.last + 1 - segment.base)
    return PlannedPiece(piece.first, piece.end, size, *_times(segment), tail=False)


def _share(size: int, piece: Piece, offsets: int) -> int:
    return -(-size * (piece.end - piece.first) // max(1, offsets))
