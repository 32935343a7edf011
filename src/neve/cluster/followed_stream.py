"""A stream that this process follows: its newest objects in memory, read number by number.

A number is taken only after every number before it, so what was taken is committed. A number that
is gone was rolled up by the leader: the follower goes on from the stream's checkpoint, and the
copies that use its slices are resolved again.

All followed streams share half of `tail.cache.bytes`; what they use is not available to the
process's own stream.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from neve import runtime
from neve.cluster.own_stream import OBJECT_OVERHEAD_BYTES, SLICE_OVERHEAD_BYTES, OwnStream
from neve.log.cached_slice import CachedObject
from neve.log.series import greatest_checkpoint
from neve.log.wal.object import Slice
from neve.log.wal.reader import PartitionId, TailObject, WalReader
from neve.settings import KIB, PrefetchSettings
from neve.store.port import Store

# Numbers of one stream that are read at once by a follower that lags.
READS_AT_ONCE = 4
# The size that the first object of a stream is assumed to have before it is read.
EXPECTED_BYTES = 64 * KIB
# The part of the memory of followed streams that one stream's reads may reserve.
READING_SHARE = 0.5
# The part of tail.cache.bytes that followed streams may use.
CACHE_SHARE = 0.5


class FollowedObject(NamedTuple):
    """One number of a followed stream. The bytes may have been evicted."""

    number: int
    cached: CachedObject
    slices: tuple[Slice, ...]


class FollowedCache:
    """The memory of all followed streams. The object that was read first is evicted first."""

    def __init__(self, own: OwnStream, tail_bytes: int, memory: runtime.MemoryBudget) -> None:
        self._own = own
        self._memory = memory
        self._tail_bytes = tail_bytes
        self._kept: OrderedDict[tuple[int, int], tuple[FollowedStream, int]] = OrderedDict()
        self.share = runtime.MemoryShare(
            "followed-streams", int(tail_bytes * CACHE_SHARE), self._free
        )
        own.share_with(self.share)

    def keep(self, stream: FollowedStream, found: FollowedObject) -> None:
        data = found.cached.data
        size = OBJECT_OVERHEAD_BYTES + SLICE_OVERHEAD_BYTES * len(found.slices)
        size += 0 if data is None else len(data)
        self._kept[stream.incarnation, found.number] = stream, size
        self.share.count(size)
        left = max(0, self._tail_bytes - self._memory.lent_bytes)
        self._free(self.share.used - min(self.share.bytes_max, left))
        self._own.shrink()

    def forget(self, stream: FollowedStream) -> None:
        """Evict everything of a stream."""
        for name in [name for name, row in self._kept.items() if row[0] is stream]:
            self._evict(name)

    def _free(self, size: int) -> None:
        ends_at = self.share.used - size
        while self._kept and self.share.used > ends_at:
            self._evict(next(iter(self._kept)))

    def _evict(self, name: tuple[int, int]) -> None:
        stream, size = self._kept.pop(name)
        stream.evicted()
        self.share.count(-size)


class FollowedStream:
    """The stream of one live process, as a follower has read it. `read_on` reads what is next.

    `on_object` is called with each number that was taken, in order. `on_gap` is called when the
    stream goes on from a checkpoint, so that numbers before it were not taken.
    """

    def __init__(
        self,
        store: Store,
        incarnation: int,
        cache: FollowedCache,
        prefetch: PrefetchSettings,
        *,
        lag_seconds: float,
        on_object: Callable[[FollowedStream, FollowedObject], None],
        on_gap: Callable[[FollowedStream], None],
    ) -> None:
        self._store = store
        self._cache = cache
        self._reader = WalReader(
            store, incarnation, prefetch, data_bytes_max=cache.share.bytes_max // 2
        )
        self._lag_seconds = lag_seconds
        self._on_object = on_object
        self._on_gap = on_gap
        self._expected_bytes = EXPECTED_BYTES
        self._index: dict[PartitionId, list[tuple[CachedObject, Slice]]] | None = None
        self.incarnation = incarnation
        self.position: int | None = None  # the next number to read
        self.sealed = False
        # From this number on, all numbers up to `position` are in `objects`.
        self.complete_from = 0
        self.objects: deque[FollowedObject] = deque()
        self.leader_end = 0  # the committed end that the leader has named
        self.heard_at: float | None = None
        self.caught_up_at = runtime.monotonic()
        self.due = asyncio.Event()

    # -- lag ---------------------------------------------------------------------------------

    def heard(self, end: int) -> int:
        """Take note that the leader has committed all numbers below `end`.

        Returns the number up to which this process has read, or -1 if it has not begun.
        """
        self.heard_at = runtime.monotonic()
        self.leader_end = max(self.leader_end, end)
        if self.position is None or self.position < end:
            self.due.set()
        elif not self.sealed:
            self.caught_up_at = self.heard_at
        return -1 if self.position is None else self.position

    @property
    def lag_objects(self) -> int:
        """How many committed numbers, as far as is known, are not read yet."""
        return max(0, self.leader_end - (self.position or 0))

    @property
    def lag_seconds(self) -> float:
        """How long ago the follower was known to have everything."""
        return runtime.monotonic() - self.caught_up_at

    @property
    def in_sync(self) -> bool:
        return self.position is not None and self.lag_seconds <= self._lag_seconds

    # -- reading -----------------------------------------------------------------------------

    async def read_on(self) -> bool:
        """Read the next numbers, as many at once as the leader has named. Returns True if any."""
        if self.sealed:
            return False
        if self.position is None:
            await self._go_on_from_checkpoint()
            return True
        began = runtime.monotonic()
        first = self.position
        count = min(max(1, self.leader_end - first), READS_AT_ONCE)
        numbers = range(first, first + count)
        found = await runtime.gather(*(self._read(number) for number in numbers))
        for number, (item, is_seal) in zip(numbers, found, strict=True):
            if item is None:
                self.sealed = is_seal
                break
            self._take(number, item)
        if self.position > first or self.sealed:
            return self.position > first
        # A leader names what is committed, so a number below its end is gone, not to come.
        keys = self._reader.keys
        if await greatest_checkpoint(self._store, keys, above=self.position) is not None:
            await self._go_on_from_checkpoint()
            return True
        if self.leader_end <= self.position:
            self.caught_up_at = began
        return False

    async def _read(self, number: int) -> tuple[TailObject | None, bool]:
        share = self._cache.share
        size = min(self._expected_bytes, int(share.bytes_max * READING_SHARE / READS_AT_ONCE))
        async with share.taken(size):
            return await self._reader.number(number)

    async def _go_on_from_checkpoint(self) -> None:
        began = runtime.monotonic()
        tail = await self._reader.tail()
        before = self.position
        has_gap = before is None or tail.checkpoint > before
        if has_gap:
            self.complete_from = self.position = tail.checkpoint
        for item in tail.objects:
            if item.number is not None and item.number == self.position:
                self._take(item.number, item)
        self.sealed = tail.sealed
        if not self.sealed and self.position == tail.position >= self.leader_end:
            self.caught_up_at = began
        if has_gap:
            self._on_gap(self)

    def _take(self, number: int, item: TailObject) -> None:
        assert number == self.position, "numbers are taken in their order"
        self.position = number + 1
        self._index = None
        if item.data is not None:
            self._expected_bytes = 2 * len(item.data)
        cached = CachedObject(item.key, self.incarnation, number, item.data)
        found = FollowedObject(number, cached, item.slices)
        self.objects.append(found)
        self._on_object(self, found)
        self._cache.keep(self, found)

    def evicted(self) -> None:
        """Drop the oldest object: the cache has evicted it."""
        oldest = self.objects.popleft()
        oldest.cached.drop()
        self.complete_from = max(self.complete_from, oldest.number + 1)
        self._index = None

    def forget(self) -> None:
        """Drop everything from memory."""
        self._cache.forget(self)

    # -- slices ------------------------------------------------------------------------------

    def slices_from(self, number: int, partition: PartitionId) -> list[tuple[CachedObject, Slice]]:
        """Return a partition's slices in the numbers from this one on, as far as they are kept."""
        found: list[tuple[CachedObject, Slice]] = []
        for each in reversed(self.objects):
            if each.number < number:
                break
            for entry in each.slices:
                if (entry.topic_id, entry.partition) == partition:
                    found.append((each.cached, entry))
        found.sort(key=lambda row: row[1].base_offset)
        return found

    def covering(self, entry: Slice) -> list[tuple[Slice, memoryview]] | None:
        """Return slices with exactly the records of `entry`, which may be one of a roll-up.

        Returns None unless all their bytes are in memory.
        """
        rows: Sequence[tuple[CachedObject, Slice]] = self._by_partition().get(
            (entry.topic_id, entry.partition), ()
        )
        at = bisect_left(rows, entry.base_offset, key=lambda row: row[1].base_offset)
        due = entry.base_offset
        found: list[tuple[Slice, memoryview]] = []
        for cached, each in rows[at:]:
            if due > entry.last_offset:
                break
            is_next = each.base_offset == due and each.leader_epoch == entry.leader_epoch
            if not is_next or cached.data is None:
                return None
            found.append((each, cached.data[each.position : each.end]))
            due = each.last_offset + 1
        return found if due == entry.last_offset + 1 else None

    def _by_partition(self) -> dict[PartitionId, list[tuple[CachedObject, Slice]]]:
        """Return the slices of each partition, by offset. Built once after each change."""
        if self._index is None:
            self._index = {}
            for _, cached, slices in self.objects:
                for entry in slices:
                    rows = self._index.setdefault((entry.topic_id, entry.partition), [])
                    rows.append((cached, entry))
        return self._index
