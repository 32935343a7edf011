"""Pieces of objects that are downloaded and checked as one: ranges of a segment, whole slices.

Ranges of a segment end where the object's bytes pass a multiple of the part size, at the first
index entry there. So two readers that come from different offsets soon ask for the same ranges,
and one download serves both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from neve.errors import DamagedError
from neve.log.cached_slice import CachedSlice
from neve.log.manifest.records import Segment
from neve.log.segment import kfs
from neve.log.segment.bundle import Bundle
from neve.log.wal import object as wal_object
from neve.records.crc import crc32c

# A first read asks for little more than it was asked for, but not for crumbs.
FIRST_BYTES_MIN = 64 * 1024


@dataclass(frozen=True, eq=False)
class Piece:
    """Bytes start to end of an object, which hold the offsets from first up to end_offset.

    `source` names what the offsets belong to: an object of a stream has slices of many partitions.
    """

    source: tuple[str, int]
    key: str
    start: int
    end: int
    first_offset: int
    end_offset: int
    check: Callable[[memoryview], memoryview]
    segment: Segment | None = None

    @property
    def size(self) -> int:
        return self.end - self.start


def slice_piece(row: CachedSlice) -> Piece:
    """A slice has one checksum, so it is read whole."""
    held, entry = row.held, row.entry
    return Piece(
        (held.key, entry.position),
        held.key,
        entry.position,
        entry.end,
        entry.base_offset,
        entry.last_offset + 1,
        lambda data: wal_object.slice_bytes(entry, data, held.key),
    )


def segment_source(segment: Segment) -> tuple[str, int]:
    return segment.key, 0


def segment_piece(
    segment: Segment, bundle: Bundle, offset: int, part_bytes: int, wanted_bytes: int | None
) -> Piece:
    """The stretches from the one of `offset` to the end of its part, or until there are enough."""
    positions = bundle.positions
    first = bundle.stretch_for(offset).entry
    start = int(positions[first])
    stop = (start // part_bytes + 1) * part_bytes
    if wanted_bytes is not None:
        stop = min(stop, start + max(wanted_bytes, FIRST_BYTES_MIN))
    after = max(int(np.searchsorted(positions, stop, "left")), first + 1)
    last = after == len(positions)
    return Piece(
        segment_source(segment),
        segment.key,
        start,
        segment.bytes - kfs.FOOTER_BYTES if last else int(positions[after]),
        int(bundle.offsets[first]),
        segment.last + 1 if last else int(bundle.offsets[after]),
        functools.partial(_verified, bundle, first, after, segment.key),
        segment,
    )


def _verified(bundle: Bundle, first: int, after: int, key: str, data: memoryview) -> memoryview:
    """Check every stretch of a range. A plain loop: small records have thousands of stretches."""
    start = int(bundle.positions[first])
    ends = bundle.positions[first + 1 : after + 1].tolist()
    if after == len(bundle.positions):
        ends.append(bundle.segment_bytes - kfs.FOOTER_BYTES)
    if bundle.checksums is None:
        stretches = bundle.stretches_from(int(bundle.offsets[first]), ends[-1] - start)
        return bundle.verify_range(stretches, data, key)
    begin = 0
    for end, crc in zip(ends, bundle.checksums.stretch_crcs[first:after].tolist(), strict=True):
        if crc32c(data[begin : end - start]) != crc:
            raise DamagedError(key, f"bytes {start + begin} to {end} do not match {bundle.key}")
        begin = end - start
    return data
