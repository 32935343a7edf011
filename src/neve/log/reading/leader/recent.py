"""Reads from memory: the newest committed slices, which tailing consumers request.

A slice is returned as one view, however many batches it has. The search begins at the newest slice,
because tailing readers are there. Only a read that starts or stops within a slice needs a map of
its batches; the most recently used maps are kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque

from neve.log.cached_slice import CachedSlice
from neve.log.reading.leader.batch_map import BatchMap, Cut
from neve.log.reading.record_chunk import RecordChunk
from neve.log.wal.object import Slice

# Maps of slices. The map of a slice of 4 MiB has at most 256 positions.
MAPS_MAX = 1_024


class RecentReader:
    """Reads committed slices whose bytes are in memory."""

    def __init__(self) -> None:
        self._maps: OrderedDict[tuple[str, bytes, int, int, int], BatchMap] = OrderedDict()

    def read(
        self,
        rows: deque[CachedSlice],
        offset: int,
        room: int,
        *,
        at_least_one: bool = True,
        limit: int | None = None,
    ) -> RecordChunk | None:
        """Return whole batches from the one that holds `offset` on; None if it is not in memory."""
        at = index_of(rows, offset)
        if at < 0:
            return None
        row = rows[at]
        data, entry = row.cached.data, row.entry
        if data is None or entry.last_offset < offset:
            return None
        whole = offset == entry.base_offset and entry.length <= room
        if not whole or limit is not None:
            cut = self._cut(row, offset, room, at_least_one=at_least_one, limit=limit)
            if cut is None:
                return None
            start = entry.position + cut.start
            part = data[start : entry.position + cut.end]
            chunk = RecordChunk([part], cut.end - cut.start, cut.first_offset, cut.next_offset)
        else:
            part = data[entry.position : entry.end]
            chunk = RecordChunk([part], entry.length, offset, entry.last_offset + 1)
        if chunk.next_offset <= entry.last_offset or at + 1 == len(rows):
            return chunk
        return self._extended(rows, at + 1, chunk, room, limit)

    def _extended(
        self, rows: deque[CachedSlice], at: int, chunk: RecordChunk, room: int, limit: int | None
    ) -> RecordChunk:
        """Return the chunk, extended by the slices from index `at` on within `room` bytes."""
        parts, size, first, next_offset, _key, _absent = chunk
        for index in range(at, len(rows)):
            row = rows[index]
            data, entry = row.cached.data, row.entry
            if data is None or entry.base_offset != next_offset:
                break
            if size + entry.length > room or limit is not None:
                cut = self._cut(row, next_offset, room - size, at_least_one=False, limit=limit)
                if cut is None:
                    break
                parts.append(data[entry.position : entry.position + cut.end])
                size += cut.end
                next_offset = cut.next_offset
                if next_offset <= entry.last_offset:
                    break
            else:
                parts.append(data[entry.position : entry.end])
                size += entry.length
                next_offset = entry.last_offset + 1
        return RecordChunk(parts, size, first, next_offset)

    def _cut(
        self, row: CachedSlice, offset: int, room: int, *, at_least_one: bool, limit: int | None
    ) -> Cut | None:
        entry, cached = row.entry, row.cached
        assert cached.data is not None
        data = cached.data[entry.position : entry.end]
        found = self._map(cached.key, entry)
        return found.cut(data, offset, room, at_least_one=at_least_one, limit=limit)

    def _map(self, key: str, entry: Slice) -> BatchMap:
        # Positions do not identify a slice: of some objects only a stretch is in memory.
        name = (key, entry.topic_id, entry.partition, entry.base_offset, entry.length)
        found = self._maps.get(name)
        if found is None:
            found = self._maps[name] = BatchMap(entry.base_offset, key)
            if len(self._maps) > MAPS_MAX:
                self._maps.popitem(last=False)
        else:
            self._maps.move_to_end(name)
        return found


def index_of(rows: deque[CachedSlice], offset: int) -> int:
    """Return the index of the last slice that begins at or below `offset`; -1 if there is none.

    Searches from the newest slice on.
    """
    high = len(rows)
    low, step = high - 1, 1
    while low >= 0 and rows[low].entry.base_offset > offset:
        high, step = low, step * 2
        low -= step
    if low == high - 1:
        return low
    return bisect_right(rows, offset, max(low, 0), high, key=_base_offset) - 1


def row_holding(rows: deque[CachedSlice], offset: int) -> CachedSlice | None:
    """Return the slice that holds `offset`; None if there is none."""
    at = index_of(rows, offset)
    if at < 0 or rows[at].entry.last_offset < offset:
        return None
    return rows[at]


def _base_offset(row: CachedSlice) -> int:
    return row.entry.base_offset
