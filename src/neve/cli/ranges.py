"""Resolution of a span of offsets in partitions, with few requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from neve.cli.connection import Connection, Watermarks
from neve.cli.offsets import AtTime, Span


@dataclass(frozen=True)
class Range:
    """The offsets to read of one partition: first up to but excluding end; None means endlessly.

    `low` and `high` were the readable offsets of the partition at the lookup.
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
        """The first offset that can be read: not before the log's start."""
        return min(max(self.first, self.low), self.high)

    @property
    def expected(self) -> int:
        """The maximum number of offsets to read, of those that exist now."""
        end = self.high if self.end is None else min(self.end, self.high)
        return max(end - self.begin, 0)


def place(connection: Connection, span: Span, places: Sequence[tuple[str, int]]) -> list[Range]:
    """Resolve a span in each of these partitions."""
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
