"""What a node knows of its own stream without asking the store: its tail, and the newest bytes.

In steady state a roll-up then costs no read at all. The bytes, and those of the tails that the node
took over, are bounded by `tail.cache.bytes`, less what state takes up. Others are read by range. If
it is ever in doubt how things stand (a checkpoint whose fate is unknown), what is kept here is
forgotten and read again.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Iterable

from neve import runtime
from neve.log.cached_slice import CachedObject
from neve.log.wal.object import Slice
from neve.log.wal.reader import StreamTail, TailObject, WalReader, next_offsets
from neve.log.wal.writer import CommittedObject
from neve.settings import Settings
from neve.store.port import Store

# What an object and a row of it take up in memory beside their bytes: many small ones count too.
OBJECT_OVERHEAD_BYTES = 600
SLICE_OVERHEAD_BYTES = 500
# A roll-up writes all that is untiered anew. It waits until half as much has come as the last one
# carried, so that it costs a constant share however much is untiered; but not for longer than so
# many times wal.tail.objects, which bounds what a successor has to read.
PUT_OFF_OBJECTS = 8
# One is made early where so much of wal.tail.bytes has come, and so little of it is to be carried.
EARLY_SHARE = 0.6
CHEAP_SHARE = 0.2


class OwnStream:
    """The stream of one live node, seen by that node."""

    def __init__(
        self,
        store: Store,
        incarnation: int,
        settings: Settings,
        memory: runtime.MemoryBudget | None = None,
    ) -> None:
        self._wal = settings.wal
        self._cache_bytes_max = settings.cache.tail_bytes
        self._memory = memory or runtime.MemoryBudget()
        # Our own objects by their keys; what was taken over by itself.
        self._cached: OrderedDict[object, tuple[CachedObject, int]] = OrderedDict()
        self.cached_bytes = 0
        self._objects_since_checkpoint = 0
        self._bytes_since_checkpoint = 0
        self._carried_bytes = 0
        self._covered = (0, 0)
        self._tail: StreamTail | None = StreamTail(incarnation, 0, 0, False, ())
        self._recent: list[TailObject] = []
        self.reader = WalReader(store, incarnation, settings.prefetch)
        self.incarnation = incarnation

    def committed(self, done: CommittedObject) -> CachedObject:
        """Take in what the writer committed, and keep its bytes while there is room."""
        key = self.reader.keys.number(done.number)
        held = CachedObject(key, self.incarnation, done.number, done.data)
        if self._tail is None or done.number >= self._tail.position:
            # Otherwise it was read back before we were told that it is committed.
            self._recent.append(TailObject(key, done.number, done.slices, None))
        self._objects_since_checkpoint += 1
        self._bytes_since_checkpoint += len(done.data)
        self._keep(key, held, len(done.slices))
        return held

    def keep(self, held: CachedObject) -> None:
        """Keep bytes of a tail that was taken over while there is room: the oldest go first."""
        self._keep(held, held, 1)

    def _keep(self, name: object, held: CachedObject, slices: int) -> None:
        assert held.data is not None
        size = len(held.data) + OBJECT_OVERHEAD_BYTES + slices * SLICE_OVERHEAD_BYTES
        self._cached[name] = held, size
        self.cached_bytes += size
        # The cache gives way to what must be kept.
        bytes_max = max(0, self._cache_bytes_max - self._memory.lent_bytes)
        while self.cached_bytes > bytes_max:
            _, (oldest, size) = self._cached.popitem(last=False)
            self.cached_bytes -= size
            oldest.drop()

    def roll_up_due(self) -> bool:
        objects, size = self._objects_since_checkpoint, self._bytes_since_checkpoint
        if objects < self._wal.tail_objects and size < self._wal.tail_bytes:
            return False
        worth_it = 2 * size >= self._carried_bytes
        return worth_it or objects >= PUT_OFF_OBJECTS * self._wal.tail_objects

    def roll_up_is_cheap(self, untiered_bytes: Iterable[int]) -> bool:
        """Whether one that is due before long would carry next to nothing now."""
        size = self._bytes_since_checkpoint
        is_soon = size >= EARLY_SHARE * self._wal.tail_bytes
        return is_soon and sum(untiered_bytes) <= CHEAP_SHARE * size

    async def tail(self, committed_end: int) -> StreamTail:
        """The stream's tail up to what is known committed."""
        if self._tail is None:
            read = await self.reader.tail()
            # Bytes of small objects come with their directories: here nobody would count them.
            bare = tuple(item._replace(data=None) for item in read.objects)
            self._tail = known = dataclasses.replace(read, objects=bare)
            self._keep_recent(read.position)
            return known
        objects = (*self._tail.objects, *self._recent)
        ends = next_offsets(self._tail.ends, self._recent)
        # What was read back may go beyond what we were told is committed.
        position = max(committed_end, self._tail.position)
        known = StreamTail(self.incarnation, self._tail.checkpoint, position, False, objects, ends)
        self._tail, self._recent = known, []
        return known

    def _keep_recent(self, position: int) -> None:
        self._recent = [
            item for item in self._recent if item.number is not None and item.number >= position
        ]

    async def read(self, item: TailObject, entry: Slice) -> memoryview:
        """A slice's bytes, from memory if they are still there."""
        held, _ = self._cached.get(item.key, (None, 0))
        if held is not None and held.data is not None:
            return held.data[entry.position : entry.end]
        return await self.reader.slice_data(item, entry)

    def rolling_up(self) -> None:
        """A checkpoint is being written: until it is known to be ours, nothing here is certain."""
        self._covered = (self._objects_since_checkpoint, self._bytes_since_checkpoint)
        self._tail = None

    def rolled_up(self, before: StreamTail, upto: int, rollups: list[TailObject]) -> None:
        """The checkpoint at `upto` is ours: the tail is its roll-ups and what came after."""
        # Only now: after a failure the next one is due at once, not a whole tail later.
        objects, size = self._covered
        self._objects_since_checkpoint -= objects
        self._bytes_since_checkpoint -= size
        self._covered = (0, 0)
        self._carried_bytes = sum(entry.length for item in rollups for entry in item.slices)
        later = [item for item in before.objects if item.number is not None and item.number >= upto]
        # Also of partitions of which the roll-ups hold nothing any more.
        ends = next_offsets(before.ends, before.objects)
        self._tail = StreamTail(
            self.incarnation, upto, before.position, False, (*rollups, *later), ends
        )
        self._keep_recent(before.position)
