"""The read planner: which objects hold a range of one partition's offsets.

A span is a range of offsets in one segment, or in one slice of a WAL object. The planner needs the
listed segments, the slices of the tail and the skips; it sends no request. Spans ascend and do not
overlap, so no record is read twice even if two objects hold it. The broker, `neve.open`, Spark and
verify plan with these functions. Compaction and aborted transactions will add holes to a plan here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from neve.log.manifest.records import Segment, Skip
from neve.log.manifest.skips import (
    OffsetRange,
    clipped_skips,
    known_losses,
    leaps,
    without,
)
from neve.log.wal.object import Slice

TIME_MIN, TIME_MAX = -(2**63), 2**63 - 1
"""The range of timestamps that are not known."""


class StoredSlice(Protocol):
    """Batches of one partition in a WAL object or roll-up."""

    @property
    def key(self) -> str:
        """The key of the object."""

    @property
    def entry(self) -> Slice:
        """Offsets, position and checksum of the batches."""

    def in_memory(self) -> memoryview | None:
        """Return the checked batches if this process has them in memory, else None."""


class TimeWindow(NamedTuple):
    """Timestamps from `start` up to, not including, `end`, in ms since 1970. None: no bound."""

    start: int | None = None
    end: int | None = None

    def overlaps(self, min_timestamp: int, max_timestamp: int) -> bool:
        young = self.start is None or max_timestamp >= self.start
        return young and (self.end is None or min_timestamp < self.end)


ALL_TIMES = TimeWindow()


class Span(NamedTuple):
    """Offsets from `first` up to, not including, `end` in one segment or slice."""

    first: int
    end: int
    holder: Segment | StoredSlice

    @property
    def key(self) -> str:
        return self.holder.key

    @property
    def offsets(self) -> OffsetRange:
        """All offsets of the segment or slice."""
        return held_offsets(self.holder)

    @property
    def is_whole(self) -> bool:
        """Whether the span covers all offsets of its segment or slice."""
        base, end = self.offsets
        return self.first <= base and self.end >= end

    @property
    def size(self) -> int:
        """Bytes of the object, in proportion to the offsets of the span. Rounded up."""
        holder = self.holder
        size = holder.bytes if isinstance(holder, Segment) else holder.entry.length
        base, end = self.offsets
        return -(-size * (self.end - self.first) // max(1, end - base))

    @property
    def times(self) -> tuple[int, int]:
        """The least and the greatest timestamp that a record of the span may have.

        Tiering and merging see batch headers only, and a producer may give a record an earlier
        timestamp than its batch's first. So a least timestamp is known for imported segments only.
        """
        holder = self.holder
        if isinstance(holder, Segment):
            return TIME_MIN if holder.owned else holder.min_timestamp, holder.max_timestamp
        return TIME_MIN, holder.entry.max_timestamp


@dataclass(frozen=True)
class ReadPlan:
    """Spans in the order of their offsets, offsets that skips cover, and offsets nothing holds.

    `open_losses` are the skipped offsets of losses without a known end, which are not in `skipped`.
    """

    spans: tuple[Span, ...]
    skipped: tuple[OffsetRange, ...]
    missing: tuple[OffsetRange, ...]
    open_losses: tuple[OffsetRange, ...] = ()


def plan_spans(
    first: int,
    end: int,
    segments: Sequence[Segment],
    slices: Sequence[StoredSlice],
    skips: Sequence[Skip],
    *,
    times: TimeWindow = ALL_TIMES,
) -> ReadPlan:
    """Plan a read of the offsets from `first` up to, not including, `end`.

    Segments and slices must ascend. A segment is preferred to a slice that holds the same offsets.
    Spans without a record in `times` are left out; their offsets are not missing.
    """
    spans: list[Span] = []
    missing: list[OffsetRange] = []
    for start, stop in without(first, end, clipped_skips(skips, first, end)):
        next_offset = start
        for span in spans_within(start, stop, segments, slices):
            if span.end <= next_offset:
                continue
            if span.first > next_offset:
                missing.append((next_offset, span.first))
            if times.overlaps(*span.times):
                spans.append(span._replace(first=max(next_offset, span.first)))
            next_offset = span.end
        if next_offset < stop:
            missing.append((next_offset, stop))
    skipped = clipped_skips(known_losses(skips), first, end)
    open_losses = clipped_skips(leaps(skips), first, end)
    return ReadPlan(tuple(spans), tuple(skipped), tuple(missing), tuple(open_losses))


def spans_within(
    first: int, end: int, segments: Iterable[Segment], slices: Iterable[StoredSlice]
) -> Iterator[Span]:
    """Yield the spans of a range in segments, and then those in slices. Spans may overlap."""
    for holders in (segments, slices):
        for holder in holders:
            base, behind = held_offsets(holder)
            start, stop = max(first, base), min(end, behind)
            if start < stop:
                yield Span(start, stop, holder)


def held_offsets(holder: Segment | StoredSlice) -> OffsetRange:
    """Return the offsets that a segment or slice holds."""
    if isinstance(holder, Segment):
        return holder.base, holder.last + 1
    return holder.entry.base_offset, holder.entry.last_offset + 1
