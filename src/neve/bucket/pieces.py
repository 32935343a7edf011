"""Which objects hold a range of one partition's offsets: a plan, made without asking the store.

A piece is a stretch of offsets in one object. Pieces ascend and do not overlap, so that no record
is read twice whatever the objects contain; offsets that were given up on purpose (skips) belong to
no piece and are counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from neve.log.manifest.records import Segment, Skip
from neve.log.tail import TailSlice

OffsetRange: TypeAlias = tuple[int, int]
"""From the first up to, not including, the second."""


class SegmentPiece(NamedTuple):
    """Offsets that a segment holds."""

    segment: Segment
    first: int
    end: int


class TailPiece(NamedTuple):
    """Offsets that a slice of a stream's object holds."""

    row: TailSlice
    first: int
    end: int


Piece: TypeAlias = SegmentPiece | TailPiece


@dataclass(frozen=True)
class Plan:
    """Pieces in the order of their offsets, what is passed over on purpose, and what is nowhere."""

    pieces: tuple[Piece, ...]
    skipped: tuple[OffsetRange, ...]
    missing: tuple[OffsetRange, ...]


def plan(
    first: int,
    end: int,
    segments: Sequence[Segment],
    slices: Sequence[TailSlice],
    skips: Sequence[Skip],
) -> Plan:
    """What to read for the offsets from `first` up to `end`."""
    given_up = clipped_skips(skips, first, end)
    pieces: list[Piece] = []
    missing: list[OffsetRange] = []
    for start, stop in without(first, end, given_up):
        due = start
        for piece in _within(start, stop, segments, slices):
            if piece.end <= due:
                continue
            if piece.first > due:
                missing.append((due, piece.first))
            pieces.append(piece._replace(first=max(due, piece.first)))
            due = piece.end
        if due < stop:
            missing.append((due, stop))
    return Plan(tuple(pieces), tuple(given_up), tuple(missing))


def clipped_skips(skips: Iterable[Skip], first: int, end: int) -> list[OffsetRange]:
    """The parts of skips within a range, joined where they overlap or touch."""
    found: list[OffsetRange] = []
    for skip in sorted(skips, key=lambda row: row.first):
        start, stop = max(first, skip.first), min(end, skip.last + 1)
        if start >= stop:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return found


def without(first: int, end: int, holes: Iterable[OffsetRange]) -> list[OffsetRange]:
    """What is left of a range beside its holes, which ascend."""
    left: list[OffsetRange] = []
    for start, stop in holes:
        if first < start:
            left.append((first, start))
        first = max(first, stop)
    if first < end:
        left.append((first, end))
    return left


def _within(
    start: int, stop: int, segments: Sequence[Segment], slices: Sequence[TailSlice]
) -> Iterable[Piece]:
    """All that segments and slices have of a range; segments come first where both have it."""
    for segment in segments:
        first, end = max(start, segment.base), min(stop, segment.last + 1)
        if first < end:
            yield SegmentPiece(segment, first, end)
    for row in slices:
        first, end = max(start, row.entry.base_offset), min(stop, row.entry.last_offset + 1)
        if first < end:
            yield TailPiece(row, first, end)
