"""`LogReader`: a broker's reader of all partitions that it leads.

`read_now` never waits: it serves the tail in memory, and what was read ahead, within microseconds.
`read` waits for the store if necessary, in the queue of catch-up reads. Both return whole,
committed batches; the first one holds the requested offset.
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
    read-ahead queues for slots like other calls. `hot_work` counts work for producers: while it
    grows, catch-up reads are throttled.
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
        throttle = CatchUpThrottle(lambda: self.memory_reads + hot_work(), settings.catchup_share)
        self.cold = ColdReader(store, ahead, indexes, settings, self._recent, throttle=throttle)
        self.times = TimeSearch(self.read, self.cold.indexes, settings.search_bytes)
        self._closed = False

    def read_now(self, log: ReadableLog, offset: int, max_bytes: int) -> RecordChunk | None:
        """Return committed batches from memory; None if they are not in memory.

        At least one batch is returned, and otherwise no more than `max_bytes`; none at the
        committed end. Raises OffsetOutOfRangeError above it and below the log's start.
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
        """Return committed batches, wherever they are. See `read_now`."""
        if self._closed:
            raise ClosedError("the reader of logs is closed")
        chunk = self.read_now(log, offset, max_bytes)
        if chunk is not None:
            return chunk
        return await self.cold.read(log, offset, max_bytes)

    async def offset_for_time(self, log: ReadableLog, timestamp_ms: int) -> Timed | None:
        """Return offset and timestamp of the first record at or past a time; None if none."""
        return await self.times.first_from(log, timestamp_ms)

    async def max_timestamp(self, log: ReadableLog) -> Timed | None:
        """Return offset and timestamp of the first record with the greatest timestamp."""
        return await self.times.greatest(log)

    async def aclose(self) -> None:
        """End read-ahead and reject further reads."""
        self._closed = True
        await self.cold.aclose()
