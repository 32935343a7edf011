"""What a read gives: whole batches back to back, as the views that hold them."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from neve.errors import NeveError
from neve.log.cached_slice import CachedSlice
from neve.log.manifest.manifest import Manifest
from neve.log.untiered import Untiered


class Chunk(NamedTuple):
    """Whole batches in the order of their offsets; the first one holds the offset asked for.

    `first_offset` is the first batch's base, `next_offset` what to ask for next. The views keep
    their bytes alive, whatever is dropped from caches meanwhile.
    """

    parts: list[memoryview]
    size: int
    first_offset: int
    next_offset: int


class OffsetOutOfRangeError(NeveError):
    """An offset below the log's start or above its committed end: start from one of the two."""

    def __init__(self, name: str, offset: int, start: int, end: int) -> None:
        super().__init__(
            f"{name}: offset {offset} is outside the log, which holds {start} to {end - 1}: read "
            f"from {start}, or from {end} for what is still to come"
        )
        self.start = start
        self.end = end


class ReadableLog(Protocol):
    """The part of a leader's log (`PartitionLog`) that reading needs."""

    @property
    def name(self) -> str: ...
    @property
    def manifest(self) -> Manifest: ...
    @property
    def recent(self) -> deque[CachedSlice]: ...
    @property
    def tail(self) -> deque[CachedSlice]: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def tiered_offset(self) -> int: ...
    @property
    def untiered(self) -> Untiered: ...


def is_at_end(log: ReadableLog, offset: int) -> bool:
    """Whether `offset` is the committed end; OffsetOutOfRangeError where the log has no such."""
    end = log.high_watermark
    if log.start_offset <= offset < end:
        return False
    if offset == end:
        return True
    raise OffsetOutOfRangeError(log.name, offset, log.start_offset, end)


def past_skips(log: ReadableLog, offset: int) -> int:
    """The first offset from here on that was not given up for lost."""
    for skip in sorted(log.manifest.state.skips, key=lambda row: row.first):
        if skip.first <= offset <= skip.last:
            offset = skip.last + 1
    return offset


def next_skip(log: ReadableLog, offset: int) -> int | None:
    """Where, above `offset`, the next stretch begins that was given up for lost."""
    skips = log.manifest.state.skips
    if not skips:
        return None
    return min((skip.first for skip in skips if skip.first > offset), default=None)
