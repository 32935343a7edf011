"""From pieces of a plan to downloads of checked batches.

A segment is read in ranges of whole stretches that its bundle verifies, so that the first record
does not wait for the last byte. Where the bundle is missing, damaged or contradicts its segment,
the segment is read whole and checked by itself and against what the list says of it: slower, and
right. A slice of the tail is one range, checked against its object's directory.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from neve.bucket.pieces import Piece, SegmentPiece, TailPiece
from neve.errors import DamagedError, NotFoundError, UnsupportedError
from neve.log.fetch import PART_BYTES_DEFAULT, Download, read_range
from neve.log.index_cache import IndexCache
from neve.log.manifest.records import Segment
from neve.log.remote import IndexAbsentError
from neve.log.segment import kfs
from neve.log.segment.bundle import Bundle, Stretch
from neve.log.wal import object as wal_object
from neve.records.batch import walk
from neve.store.port import Store

NO_CRC = -1
"""In a listed segment: nobody wrote its checksum down."""


class Chunk(NamedTuple):
    """Whole batches, checked, of which the offsets from `first` up to `end` are wanted.

    `reached` is the first offset behind the batches: below `end` where the object has fewer
    offsets than its list promised, which only foreign segments may.
    """

    key: str
    data: memoryview
    first: int
    end: int
    reached: int


class ChunkReader:
    """Makes downloads of pieces. An index that was found to mislead is not asked again."""

    def __init__(self, indexes: IndexCache, *, part_bytes: int = PART_BYTES_DEFAULT) -> None:
        self._indexes = indexes
        self._part_bytes = part_bytes
        self._distrusted: set[str] = set()

    def distrust_index(self, piece: SegmentPiece) -> bool:
        """Read this segment without its index from now on; False where that is so already."""
        if piece.segment.key in self._distrusted:
            return False
        self._distrusted.add(piece.segment.key)
        return True

    async def downloads(self, piece: Piece, from_timestamp: int | None) -> list[Download[Chunk]]:
        """What to download for a piece; nothing where no record is young enough."""
        if isinstance(piece, TailPiece):
            if from_timestamp is not None and piece.row.entry.max_timestamp < from_timestamp:
                return []
            return [_slice(piece)]
        if from_timestamp is not None and piece.segment.max_timestamp < from_timestamp:
            return []
        bundle = await self._bundle(piece.segment)
        if bundle is None or (not bundle.checksummed and _is_whole(piece)):
            # A foreign segment read whole is held against the checksum in its footer, which
            # covers more than its batches' own.
            return [_whole(piece)]
        try:
            first = _scan_from(bundle, piece, from_timestamp)
        except (DamagedError, UnsupportedError):
            return [_whole(piece)]
        if first is None:
            return []
        return list(self._ranges(bundle, piece._replace(first=first)))

    async def _bundle(self, segment: Segment) -> Bundle | None:
        if segment.index_key is None or segment.key in self._distrusted:
            return None
        try:
            bundle = await self._indexes.get(segment)
        except (NotFoundError, DamagedError, UnsupportedError, IndexAbsentError):
            return None
        fits = int(bundle.offsets[0]) == segment.base and int(bundle.offsets[-1]) <= segment.last
        return bundle if fits and bundle.last_offset in (None, segment.last) else None

    def _ranges(self, bundle: Bundle, piece: SegmentPiece) -> Iterator[Download[Chunk]]:
        stretches = bundle.stretches(piece.first, piece.end)
        first = piece.first
        for part in _parts(stretches, self._part_bytes):
            after = part[-1].entry + 1
            last = after == len(bundle.offsets)
            end = piece.end if last else min(piece.end, int(bundle.offsets[after]))
            if first < end:
                yield _stretches(bundle, part, piece.segment.key, first, end, open_ended=last)
            first = max(first, end)


def _is_whole(piece: SegmentPiece) -> bool:
    return piece.first <= piece.segment.base and piece.end > piece.segment.last


def _scan_from(bundle: Bundle, piece: SegmentPiece, from_timestamp: int | None) -> int | None:
    """The first offset worth reading; None if all is older."""
    if from_timestamp is None:
        return piece.first
    scan = bundle.offset_for_timestamp(from_timestamp)
    if scan is None or scan >= piece.end:
        return None
    return max(piece.first, scan)


def _parts(stretches: Sequence[Stretch], part_bytes: int) -> Iterator[list[Stretch]]:
    """Neighbouring stretches together, up to so many bytes."""
    part: list[Stretch] = []
    for each in stretches:
        if part and each.end - part[0].start > part_bytes:
            yield part
            part = []
        part.append(each)
    if part:
        yield part


def _stretches(
    bundle: Bundle, part: list[Stretch], key: str, first: int, end: int, *, open_ended: bool
) -> Download[Chunk]:
    start, stop = part[0].start, part[-1].end

    async def fetch(store: Store) -> Chunk:
        data = bundle.verify_range(part, await read_range(store, key, start, stop), key)
        reached = end
        if open_ended and not bundle.checksummed:
            reached = min(end, _reached(data, key))
        return Chunk(key, data, first, end, reached)

    return Download(key=key, size_bytes=stop - start, fetch=fetch, start=start)


def _reached(data: memoryview, key: str) -> int:
    return max(header.next_offset for _, header in walk(data, key=key))


def _whole(piece: SegmentPiece) -> Download[Chunk]:
    segment = piece.segment
    fetch = functools.partial(_fetch_whole, piece=piece)
    return Download(key=segment.key, size_bytes=segment.bytes, fetch=fetch)


async def _fetch_whole(store: Store, piece: SegmentPiece) -> Chunk:
    segment = piece.segment
    data = await store.get(segment.key, segment.bytes_max)
    facts = kfs.check(data, segment.key).facts
    if facts.base_offset != segment.base or segment.crc not in (NO_CRC, facts.body_crc):
        raise DamagedError(
            segment.key,
            f"it holds offsets from {facts.base_offset} with checksum {facts.body_crc:08x}, and "
            f"is listed from {segment.base}: another segment lies under this key",
        )
    body = data[kfs.HEADER_BYTES : len(data) - kfs.FOOTER_BYTES]
    reached = min(piece.end, facts.last_offset + 1)
    return Chunk(segment.key, body, piece.first, piece.end, reached)


def _slice(piece: TailPiece) -> Download[Chunk]:
    item, entry = piece.row.item, piece.row.entry

    async def fetch(store: Store) -> Chunk:
        if item.data is not None:
            data = item.data[entry.position : entry.end]
        else:
            read = await read_range(store, item.key, entry.position, entry.end)
            data = wal_object.slice_bytes(entry, read, item.key)
        return Chunk(item.key, data, piece.first, piece.end, piece.end)

    return Download(key=item.key, size_bytes=entry.length, fetch=fetch, start=entry.position)
