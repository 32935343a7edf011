"""What a broker reads its partitions with: one for all of them.

`read_now` never waits: it serves what is in memory, the tail and what was read ahead, in some
microseconds. `read` waits for the store where it has to, in the queue of those who lag. Both give
whole batches, the first one with the offset that was asked for, and nothing that is not committed.
"""

from __future__ import annotations

from collections.abc import Callable

from neve.errors import ClosedError
from neve.log.index_cache import IndexCache
from neve.log.manifest.skips import next_skip, past_skips
from neve.log.reading.leader.batch_times import Timed
from neve.log.reading.leader.catch_up_throttle import CatchUpThrottle
from neve.log.reading.leader.cold import ColdReader
from neve.log.reading.leader.readable_log import ReadableLog, is_at_end
from neve.log.reading.leader.recent import RecentReader
from neve.log.reading.leader.times import TimeSearch
from neve.log.reading.record_chunk import RecordChunk
from neve.settings import FetchSettings
from neve.store.port import Store


class LogReader:
    """Reads logs that this process leads. Close it with `aclose`.

    `ahead` is the same store for calls that need a free slot (`Stack.prefetch`); without it,
    reading ahead queues for slots like everything else. `hot_work` counts what is done for others
    than readers: while it grows, those who lag are served at a pace.
    """

    def __init__(
        self,
        store: Store,
        indexes: IndexCache,
        settings: FetchSettings,
        *,
        ahead: Store | None = None,
        hot_work: Callable[[], int] = lambda: 0,
    ) -> None:
        self._recent = RecentReader()
        self.memory_reads = 0
        pace = CatchUpThrottle(lambda: self.memory_reads + hot_work(), settings.catchup_share)
        self.cold = ColdReader(store, ahead, indexes, settings, self._recent, pace=pace)
        self.times = TimeSearch(self.read, self.cold.indexes, settings.search_bytes)
        self._closed = False

    def read_now(self, log: ReadableLog, offset: int, max_bytes: int) -> RecordChunk | None:
        """Committed batches from memory; None where they are not there.

        At least one batch, otherwise no more than `max_bytes`. At the committed end there are none
        yet; OffsetOutOfRangeError above it and below the log's start.
        """
        if is_at_end(log, offset):
            return RecordChunk([], 0, offset, offset)
        limit = None
        if log.manifest.state.skips:
            wanted, offset = offset, past_skips(log.manifest.state.skips, offset)
            if offset >= log.high_watermark:
                return RecordChunk([], 0, wanted, wanted)
            limit = next_skip(log.manifest.state.skips, offset)
        chunk = self._recent.read(log.recent, offset, max_bytes, limit=limit)
        if chunk is None:
            return self.cold.ready(log, offset, max_bytes)
        self.memory_reads += 1
        return chunk

    async def read(self, log: ReadableLog, offset: int, max_bytes: int) -> RecordChunk:
        """Committed batches from wherever they lie."""
        if self._closed:
            raise ClosedError("the reader of logs is closed")
        chunk = self.read_now(log, offset, max_bytes)
        if chunk is not None:
            return chunk
        return await self.cold.read(log, offset, max_bytes)

    async def offset_for_time(self, log: ReadableLog, timestamp_ms: int) -> Timed | None:
        """Offset and timestamp of the first record at or past a time; None: none is so young."""
        return await self.times.first_from(log, timestamp_ms)

    async def max_timestamp(self, log: ReadableLog) -> Timed | None:
        """Offset and timestamp of the first record with the greatest timestamp."""
        return await self.times.greatest(log)

    async def aclose(self) -> None:
        """End all that is read ahead."""
        self._closed = True
        await self.cold.aclose()
