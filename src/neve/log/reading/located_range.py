"""Byte ranges of objects that are downloaded and checked as one.

A segment is read in ranges of whole stretches, which its index verifies. A range ends at the first
index entry at or after a multiple of the part size. So two readers that start at different offsets
soon read the same ranges, and one download serves both. A slice is one range. A segment without a
usable index is one range too: it is checked by its footer and against its manifest entry.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from neve.errors import DamagedError
from neve.log.downloads import checked, read_range
from neve.log.manifest.records import NO_CRC, Segment
from neve.log.reading.spans import StoredSlice
from neve.log.segment import kfs
from neve.log.segment.bundle import Bundle
from neve.log.wal import object as wal_object
from neve.records.batch import walk
from neve.records.crc import crc32c
from neve.store.port import Store

# A first read fetches at least this much, even if the client asks for less.
FIRST_BYTES_MIN = 64 * 1024


class CheckedBytes(NamedTuple):
    """Whole batches of a range. `end_offset` is the offset after the last batch.

    It is below the range's own `end_offset` if a foreign segment holds fewer offsets than listed.
    """

    data: memoryview
    end_offset: int


@dataclass(frozen=True, eq=False)
class LocatedRange:
    """Bytes `start` to `end` of an object: the offsets from `first_offset` up to `end_offset`.

    `source` identifies the segment or slice: one WAL object has slices of many partitions. `check`
    verifies the downloaded bytes and raises DamagedError. `bundle` is the index that located the
    range. A `whole` range is the entire object, even if its size differs from the listed one.
    """

    source: tuple[str, int]
    key: str
    start: int
    end: int
    first_offset: int
    end_offset: int
    check: Callable[[memoryview], CheckedBytes]
    segment: Segment | None = None
    bundle: Bundle | None = None
    whole: bool = False

    @property
    def size(self) -> int:
        return self.end - self.start


async def read_located(store: Store, located: LocatedRange) -> CheckedBytes:
    """Read and check a range once. Raises DamagedError for a torn read, too: read again."""
    if located.whole:
        assert located.segment is not None
        data = await store.get(located.key, located.segment.bytes_max)
    else:
        data = await read_range(store, located.key, located.start, located.end)
    return await checked(located.check, data)


def slice_range(row: StoredSlice) -> LocatedRange:
    """Locate a slice. It has one checksum, so it is read whole."""
    key, entry = row.key, row.entry
    end_offset = entry.last_offset + 1
    return LocatedRange(
        (key, entry.position),
        key,
        entry.position,
        entry.end,
        entry.base_offset,
        end_offset,
        lambda data: CheckedBytes(wal_object.slice_bytes(entry, data, key), end_offset),
    )


def whole_range(segment: Segment) -> LocatedRange:
    """Locate a segment that is read without its index."""

    def check(data: memoryview) -> CheckedBytes:
        # KafScale's segments may overlap: the next one then holds the offsets after this one's.
        facts = check_whole(segment, data, may_reach_further=not segment.owned).facts
        body = data[kfs.HEADER_BYTES : len(data) - kfs.FOOTER_BYTES]
        return CheckedBytes(body, facts.last_offset + 1)

    return LocatedRange(
        (segment.key, 0),
        segment.key,
        0,
        segment.bytes,
        segment.base,
        segment.last + 1,
        check,
        segment,
        whole=True,
    )


def segment_ranges(
    segment: Segment, bundle: Bundle, first: int, end: int, part_bytes: int
) -> Iterator[LocatedRange]:
    """Locate the offsets from `first` up to, not including, `end`, part by part."""
    while first < end:
        located = segment_range(segment, bundle, first, part_bytes, end_offset=end)
        yield located
        first = located.end_offset


def segment_range(
    segment: Segment,
    bundle: Bundle,
    offset: int,
    part_bytes: int,
    *,
    end_offset: int | None = None,
    target_bytes: int | None = None,
) -> LocatedRange:
    """Locate the stretches from the one of `offset` to the end of its part.

    The range ends earlier once it holds `target_bytes`, or all offsets below `end_offset`.
    """
    positions = bundle.positions
    first = bundle.stretch_for(offset).entry
    start = int(positions[first])
    stop = (start // part_bytes + 1) * part_bytes
    if target_bytes is not None:
        stop = min(stop, start + max(target_bytes, FIRST_BYTES_MIN))
    after = int(np.searchsorted(positions, stop, "left"))
    if end_offset is not None:
        after = min(after, int(np.searchsorted(bundle.offsets, end_offset, "left")))
    after = max(after, first + 1)
    last = after == len(positions)
    return LocatedRange(
        (segment.key, 0),
        segment.key,
        start,
        segment.bytes - kfs.FOOTER_BYTES if last else int(positions[after]),
        int(bundle.offsets[first]),
        segment.last + 1 if last else int(bundle.offsets[after]),
        functools.partial(_check_stretches, segment, bundle, first, after),
        segment,
        bundle,
    )


def check_whole(
    segment: Segment, data: memoryview, *, may_reach_further: bool = False
) -> kfs.Segment:
    """Check a whole segment by itself and against its manifest entry. Raises DamagedError.

    One that `may_reach_further` than listed must be cut at its listed end by the caller.
    """
    found = kfs.check(data, segment.key)
    facts = found.facts
    within = may_reach_further or facts.last_offset <= segment.last
    listed = facts.base_offset == segment.base and within
    if not listed or segment.crc not in (NO_CRC, facts.body_crc):
        raise DamagedError(
            segment.key,
            f"it holds offsets from {facts.base_offset} with checksum {facts.body_crc:08x}, "
            f"and is listed from {segment.base}: this key holds another segment",
        )
    return found


def _check_stretches(
    segment: Segment, bundle: Bundle, first: int, after: int, data: memoryview
) -> CheckedBytes:
    last = after == len(bundle.offsets)
    end_offset = segment.last + 1 if last else int(bundle.offsets[after])
    if bundle.checksums is None:
        view = bundle.verify_range(bundle.stretches_between(first, after), data, segment.key)
        if last:
            end_offset = min(end_offset, _behind_last_batch(view, segment.key))
        return CheckedBytes(view, end_offset)
    # A plain loop: a part of small records has thousands of stretches.
    start = int(bundle.positions[first])
    ends = bundle.positions[first + 1 : after + 1].tolist()
    if last:
        ends.append(bundle.segment_bytes - kfs.FOOTER_BYTES)
    begin = 0
    for end, crc in zip(ends, bundle.checksums.stretch_crcs[first:after].tolist(), strict=True):
        if crc32c(data[begin : end - start]) != crc:
            raise DamagedError(
                segment.key, f"bytes {start + begin} to {end} do not match {bundle.key}"
            )
        begin = end - start
    return CheckedBytes(data, end_offset)


def _behind_last_batch(data: memoryview, key: str) -> int:
    return max(header.next_offset for _, header in walk(data, key=key))
