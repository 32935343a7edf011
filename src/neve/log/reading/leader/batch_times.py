"""Finds a record by time within one batch. Pure.

A batch of a few KiB may decompress to gigabytes. So a batch is decoded record by record, only up to
a limit, and no record is kept. For a larger batch the result is its first offset: a reader that
starts there misses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from neve.records.batch import BatchHeader
from neve.records.compression import OversizeError
from neve.records.reference import Record, iterate_batch
from neve.settings.declare import MIB

DECOMPRESSED_BYTES_MAX = 16 * MIB
"""Several times what producers put into a batch."""
RECORDS_MAX = 100_000


class Timed(NamedTuple):
    """The offset and timestamp of a record."""

    offset: int
    timestamp: int


Search = Callable[[Iterator[Record]], Timed | None]


def first_from(
    header: BatchHeader, batch: memoryview, timestamp: int, start: int, key: str
) -> Timed | None:
    """Return the first record at or above `start` with this timestamp or a greater one."""

    def search(records: Iterator[Record]) -> Timed | None:
        for record in records:
            if record.timestamp >= timestamp and record.offset >= start:
                return Timed(record.offset, record.timestamp)
        return None

    return _searched(header, batch, start, key, search)


def youngest(header: BatchHeader, batch: memoryview, start: int, key: str) -> Timed | None:
    """Return the first of the records at or above `start` with the greatest timestamp."""

    def search(records: Iterator[Record]) -> Timed | None:
        best: Timed | None = None
        for record in records:
            if record.offset >= start and (best is None or record.timestamp > best.timestamp):
                best = Timed(record.offset, record.timestamp)
        return best

    return _searched(header, batch, start, key, search)


def _searched(
    header: BatchHeader, batch: memoryview, start: int, key: str, search: Search
) -> Timed | None:
    if header.record_count <= RECORDS_MAX:
        try:
            return search(iterate_batch(batch, key=key, limit=DECOMPRESSED_BYTES_MAX))
        except OversizeError:
            pass
    return Timed(max(header.base_offset, start), header.max_timestamp)
