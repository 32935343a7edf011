"""The part of a leader's log that reading needs."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from neve.errors import NeveError
from neve.log.cached_slice import CachedSlice
from neve.log.manifest.manifest import Manifest
from neve.log.untiered import Untiered


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
    """The attributes of `PartitionLog` that readers use."""

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
    """Return whether `offset` is the committed end.

    Raises OffsetOutOfRangeError if the offset is outside the log.
    """
    end = log.high_watermark
    if log.start_offset <= offset < end:
        return False
    if offset == end:
        return True
    raise OffsetOutOfRangeError(log.name, offset, log.start_offset, end)
