"""A span of offsets placed in the partitions it is meant for, with as few requests as it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neve.cli.connection import Connection, Watermarks
from neve.cli.offsets import AtTime, Span


@dataclass(frozen=True)
class Range:
    """What to read of one partition: first up to, not including, end; None means on and on.

    `low` and `high` are what could be read of the partition when it was looked at.
    """

    topic: str
    partition: int
    first: int
    end: int | None
    low: int
    high: int

    @property
    def place(self) -> tuple[str, int]:
        return self.topic, self.partition

    @property
    def begin(self) -> int:
        """Where a reader can start: what lies before the log's start is gone."""
        return min(max(self.first, self.low), self.high)

    @property
    def expected(self) -> int:
        """How many offsets there are to read at most, of those there are now."""
        end = self.high if self.end is None else min(self.end, self.high)
        return max(end - self.begin, 0)


def place(connection: Connection, span: Span, places: Sequence[tuple[str, int]]) -> list[Range]:
    """A span in each of these partitions."""
    marks = connection.watermarks(places, readable=True)
    times = {
        bound.timestamp_ms: connection.offsets_at(places, bound.timestamp_ms)
        for bound in (span.first, span.end)
        if isinstance(bound, AtTime)
    }
    found = []
    for where in places:
        held: Watermarks = marks[where]

        def offset_at(timestamp_ms: int, where: tuple[str, int] = where) -> int | None:
            return times[timestamp_ms][where]

        first, end = span.within(held.low, held.high, offset_at)
        found.append(Range(*where, first, end, held.low, held.high))
    return found
