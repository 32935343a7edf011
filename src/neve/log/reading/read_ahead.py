"""Reading ahead for sequential readers, through the boundaries of objects.

What a reader will want next is worked out by one short task a cursor, which begins downloads until
the cursor's window is full. The window grows with each read that goes on where the last one ended,
up to the cursor's share of the budget. Nothing here waits for bytes, and no failure is told here:
whoever comes to what failed reads it on demand.
"""

from __future__ import annotations

from neve import runtime
from neve.errors import DamagedError, NeveError
from neve.log.manifest.records import Segment
from neve.log.reading.blocks import Blocks
from neve.log.reading.chunk import ReadableLog, past_skips
from neve.log.reading.cursors import Cursor, Cursors
from neve.log.reading.indexes import SegmentIndexes
from neve.log.reading.offset_lookup import locate, unreadable
from neve.log.reading.pieces import Piece, segment_piece, slice_piece
from neve.log.reading.recent import row_holding

# Eight gets of 4 MiB, 15 ms each, come to some 2 GB/s: more than one connection takes.
PARTS_AHEAD_MAX = 8


class ReadAhead:
    """Plans pieces, on demand and ahead, and keeps the windows of cursors filled."""

    def __init__(
        self,
        blocks: Blocks,
        cursors: Cursors,
        indexes: SegmentIndexes,
        budget: runtime.MemoryShare,
        part_bytes: int,
    ) -> None:
        self._blocks = blocks
        self._cursors = cursors
        self._indexes = indexes
        self._budget = budget
        self._part_bytes = part_bytes
        self._tasks = runtime.Tasks()

    async def demanded(self, log: ReadableLog, offset: int, wanted_bytes: int | None) -> Piece:
        """The piece that holds `offset`; up to so many bytes of it, or all of its part."""
        place = await locate(log, offset)
        if not isinstance(place, Segment):
            return slice_piece(place)
        bundle = await self._indexes.get(place)
        if bundle is None:
            try:
                bundle = await self._indexes.make(place)
            except DamagedError as damage:
                raise unreadable(log, damage, place.base, place.last + 1) from damage
        return segment_piece(place, bundle, offset, self._part_bytes, wanted_bytes)

    def kick(self, cursor: Cursor) -> None:
        """Fill the window of a cursor whose reader came back, if there is room for another part."""
        if cursor.dropped or cursor.planner is not None:
            return
        if self._window_bytes(cursor) - cursor.held_bytes < self._part_bytes:
            return
        work = self._fill(cursor)
        cursor.planner = self._tasks.start(work, name=f"read ahead {cursor.log.name}")

    async def aclose(self) -> None:
        await self._tasks.close()

    def _window_bytes(self, cursor: Cursor) -> int:
        # One share is left for those who come anew.
        share = self._budget.bytes_max // (self._cursors.readers + 1)
        parts = min(PARTS_AHEAD_MAX, 1 << min(cursor.reads, PARTS_AHEAD_MAX))
        return max(self._part_bytes, min(share, parts * self._part_bytes))

    async def _fill(self, cursor: Cursor) -> None:
        try:
            while cursor.held_bytes + self._part_bytes <= self._window_bytes(cursor):
                planned_to = cursor.planned_to
                piece = await self._next(cursor.log, planned_to)
                if cursor.dropped or cursor.waits or piece is None:
                    return
                if cursor.planned_to != planned_to:
                    continue  # the reader was quicker
                block = self._blocks.read_ahead(piece)
                if block is None:
                    return
                cursor.blocks.append(block)
        except NeveError:
            return
        finally:
            cursor.planner = None

    async def _next(self, log: ReadableLog, offset: int) -> Piece | None:
        """What to read ahead from `offset` on; None where it is in memory, or not there yet."""
        offset = past_skips(log, offset)
        if offset >= log.high_watermark or offset < log.start_offset:
            return None
        recent = row_holding(log.recent, offset)
        if recent is not None and recent.held.data is not None:
            return None
        place = await locate(log, offset)
        if not isinstance(place, Segment):
            return slice_piece(place) if place.held.data is None else None
        bundle = await self._indexes.get(place)
        if bundle is None:
            return None
        return segment_piece(place, bundle, offset, self._part_bytes, None)
