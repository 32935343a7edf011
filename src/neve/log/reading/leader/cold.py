"""Reads records that are not in memory, with a budget and a queue of their own.

Reads wait in order, so that any number of lagging consumers stays within `fetch.catchup.*` and does
not slow down live traffic. A chunk continues from block to block and into memory as long as that
needs no waiting.

A reader that is cancelled leaves its cursor: its download continues, and is used when the reader
returns, or dropped when it does not. So a reader makes progress even if the store is slower than
the reader's timeout.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from neve import runtime
from neve.errors import DamagedError, NeveError, NotFoundError
from neve.log.index_cache import IndexCache
from neve.log.manifest.skips import next_skip, past_skips
from neve.log.reading.leader.blocks import Block, Blocks
from neve.log.reading.leader.catch_up_throttle import CatchUpThrottle
from neve.log.reading.leader.cursors import Cursor, Cursors
from neve.log.reading.leader.offset_lookup import LookupRetries, unreadable
from neve.log.reading.leader.read_ahead import ReadAhead
from neve.log.reading.leader.readable_log import ReadableLog, is_at_end
from neve.log.reading.leader.recent import RecentReader, row_holding
from neve.log.reading.record_chunk import RecordChunk
from neve.log.reading.segment_indexes import IndexRebuilder, SegmentIndexes
from neve.settings import FetchSettings
from neve.store.port import Store


@dataclass
class ColdCounters:
    """Counters: reads, reads served from read-ahead, and resolves because an object was gone."""

    reads: int = 0
    ahead_hits: int = 0
    resolves: int = 0


class ColdReader:
    """Reads segments, roll-ups and WAL objects for readers that lag."""

    def __init__(
        self,
        store: Store,
        ahead: Store | None,
        indexes: IndexCache,
        settings: FetchSettings,
        recent: RecentReader,
        *,
        throttle: CatchUpThrottle,
    ) -> None:
        self.counters = ColdCounters()
        self.throttle = throttle
        self._recent = recent
        self.cursors = Cursors(settings.readahead_cursors, settings.readahead_idle_ms)
        self.budget = runtime.MemoryShare(
            "catch-up", settings.catchup_bytes, self.cursors.make_room
        )
        self.blocks = Blocks(store, ahead, self.budget)
        self.indexes = SegmentIndexes(indexes, IndexRebuilder(store, self.budget))
        self._ahead = ReadAhead(
            self.blocks, self.cursors, self.indexes, self.budget, settings.readahead_part_bytes
        )
        self._concurrency = asyncio.Semaphore(settings.catchup_concurrency)

    def ready(self, log: ReadableLog, offset: int, max_bytes: int) -> RecordChunk | None:
        """Return what was read ahead for a reader that continues at `offset`; None: not yet."""
        cursor = self.cursors.peek(log, offset)
        if cursor is None or not cursor.blocks:
            return None
        block = cursor.blocks[0]
        if block.data is None or not block.holds(offset) or self.throttle.pause_seconds():
            return None
        self.cursors.take(log, offset)
        self.counters.ahead_hits += 1
        try:
            chunk = self._consumed(cursor, offset, max_bytes)
        except NeveError:
            self.cursors.drop(cursor)
            raise
        cursor.reads += 1
        self._rest(cursor)
        return chunk

    async def read(self, log: ReadableLog, offset: int, max_bytes: int) -> RecordChunk:
        """Return whole batches from the one that holds `offset` on, wherever they are."""
        async with self._concurrency:
            await self.throttle.turn()
            self.counters.reads += 1
            cursor = self.cursors.take(log, offset) or Cursor(log, offset, self.blocks)
            self.cursors.use(cursor)
            try:
                chunk = await self._read(cursor, offset, max_bytes)
            except Exception:
                self.cursors.drop(cursor)
                raise
            except asyncio.CancelledError:
                cursor.next_offset = offset
                self._rest(cursor)
                raise
            cursor.reads += 1
            self._rest(cursor)
            return chunk

    async def aclose(self) -> None:
        """End read-ahead and wait until no task runs."""
        await self.cursors.aclose()
        await self._ahead.aclose()
        await self.indexes.aclose()
        await self.blocks.aclose()

    # -- one read ----------------------------------------------------------------------------

    async def _read(self, cursor: Cursor, offset: int, max_bytes: int) -> RecordChunk:
        log, retries = cursor.log, LookupRetries(cursor.log)
        while True:
            # Checked each time: the log's start may move while the read waits.
            if is_at_end(log, offset):
                return RecordChunk([], 0, offset, offset)
            at = past_skips(log.manifest.state.skips, offset)
            if at >= log.high_watermark:
                return RecordChunk([], 0, offset, offset)
            chunk = self._in_memory(log, at, max_bytes)
            if chunk is not None:
                cursor.move_to(chunk.next_offset)
                return chunk
            try:
                arrived = await self._arrival(cursor, at, max_bytes)
            except NotFoundError as missing:
                cursor.clear()
                self.counters.resolves += 1
                await retries.again(at, missing)
                continue
            except DamagedError:
                # An operator may have given these offsets up meanwhile.
                await log.manifest.refresh()
                if past_skips(log.manifest.state.skips, at) == at:
                    raise
                continue
            if not arrived:
                continue
            chunk = self._consumed(cursor, at, max_bytes)
            if chunk is not None:
                return chunk
            offset = cursor.next_offset  # the block has no batch for it

    def _in_memory(self, log: ReadableLog, offset: int, max_bytes: int) -> RecordChunk | None:
        limit = next_skip(log.manifest.state.skips, offset)
        found = self._recent.read(log.recent, offset, max_bytes, limit=limit)
        # Recovered slices may be in memory too.
        return found or self._recent.read(log.tail, offset, max_bytes, limit=limit)

    async def _arrival(self, cursor: Cursor, at: int, max_bytes: int) -> bool:
        """Wait until the cursor's first block holds `at`.

        Returns False if the segment contradicted its index: locate the offset again.
        """
        block = cursor.move_to(at)
        if block is not None:
            if cursor.reads:
                self._ahead.kick(cursor)
            try:
                await block.wait()
            except NeveError:
                cursor.clear()  # read ahead, or for another reader: now read on demand
            else:
                self.counters.ahead_hits += 1
                return True
        came_back = cursor.reads > 0
        block = await self._demanded(cursor, at, None if came_back else max_bytes)
        if came_back:
            self._ahead.kick(cursor)
        try:
            await block.wait()
        except DamagedError as damage:
            cursor.clear()
            located = block.located
            if located.segment is not None and await self.indexes.distrust(
                located.segment, located.bundle
            ):
                return False
            first, end = located.first_offset, located.end_offset
            raise unreadable(cursor.log, damage, first, end) from damage
        return True

    async def _demanded(self, cursor: Cursor, at: int, wanted: int | None) -> Block:
        """Return the block that holds `at`, as the first of a cursor that holds none."""
        # A cursor that waits for room must hold no bytes: it might wait for its own.
        cursor.waits = True
        try:
            located = await self._ahead.demanded(cursor.log, at, wanted)
            block = await self.blocks.demand(located, at)
        finally:
            cursor.waits = False
        cursor.blocks.append(block)
        return block

    def _consumed(self, cursor: Cursor, at: int, max_bytes: int) -> RecordChunk | None:
        """Return a chunk of the downloaded blocks and move the cursor past it; None: no batch."""
        log = cursor.log
        limit = next_skip(log.manifest.state.skips, at)
        parts: list[memoryview] = []
        size, first, next_offset = 0, at, at
        for block in list(cursor.blocks):
            if block.data is None or not block.holds(next_offset):
                break
            room = max_bytes - size
            cut = block.cut(next_offset, room, at_least_one=not parts, limit=limit)
            if cut is None:
                break
            if not parts:
                first = cut.first_offset
            parts.append(block.data[cut.start : cut.end])
            size += cut.end - cut.start
            next_offset = cut.next_offset
            if cut.end < len(block.data):
                break
            next_offset = max(next_offset, block.located.end_offset)
        if not parts:
            end = cursor.blocks[0].located.end_offset
            cursor.move_to(end if limit is None else min(end, limit))
            return None
        cursor.move_to(next_offset)
        chunk = RecordChunk(parts, size, first, next_offset)
        return chunk if size >= max_bytes else self._into_memory(cursor, chunk, max_bytes)

    def _into_memory(self, cursor: Cursor, chunk: RecordChunk, max_bytes: int) -> RecordChunk:
        """Return the chunk, extended by what follows in memory within `max_bytes`."""
        next_offset, room = chunk.next_offset, max_bytes - chunk.size
        limit = next_skip(cursor.log.manifest.state.skips, next_offset - 1)
        more = self._recent.read(
            cursor.log.recent, next_offset, room, at_least_one=False, limit=limit
        )
        if more is None or more.first_offset != next_offset:
            return chunk
        cursor.move_to(more.next_offset)
        parts = chunk.parts + more.parts
        return RecordChunk(parts, chunk.size + more.size, chunk.first_offset, more.next_offset)

    def _rest(self, cursor: Cursor) -> None:
        log, at = cursor.log, cursor.next_offset
        recent = row_holding(log.recent, at)
        if at >= log.high_watermark or (recent is not None and recent.cached.data is not None):
            self.cursors.drop(cursor)  # it has caught up
        else:
            self.cursors.rest(cursor)
            if cursor.reads > 1:
                self._ahead.kick(cursor)
        self.budget.free_for_waiting()
