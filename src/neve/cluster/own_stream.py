"""A node's own stream as it knows it without a request: its tail, and its newest bytes.

In steady state a roll-up therefore reads nothing. The cached bytes, with those of tails that the
node took over, are bounded by `tail.cache.bytes` less what state takes up. Evicted bytes are read
by range. The directory of the tail, an entry for each slice, cannot be evicted: cached bytes make
room for it, and a large one makes a roll-up due, which joins slices. While the outcome of a
checkpoint is unknown, the tail is dropped here and read again.
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

# Memory of a cached object beside its bytes, and of each slice until a roll-up joins it.
OBJECT_OVERHEAD_BYTES = 600
SLICE_OVERHEAD_BYTES = 500
# The directory makes a roll-up due at this share of tail.cache.bytes. Once it takes up all that
# state leaves of tail.cache.bytes, the roll-up is not put off any longer: see PUT_OFF_OBJECTS. A
# directory of few slices has no effect, however small the cache is.
DIRECTORY_SHARE = 0.125
SLICES_LEAST = 4_096
FEW_SLICES_BYTES = SLICES_LEAST * SLICE_OVERHEAD_BYTES
# A roll-up copies everything untiered. It waits until the stream has grown by half of what the last
# one copied, so that copying stays a constant share of what is written; but for at most this
# multiple of wal.tail.objects, which bounds what a successor has to read.
PUT_OFF_OBJECTS = 8
# A roll-up is made early at this share of wal.tail.bytes, if it copies at most that share of it.
EARLY_SHARE = 0.6
CHEAP_SHARE = 0.2


class OwnStream:
    """The stream of one live node, as that node sees it."""

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
        # Our own objects by key; objects of tails that we took over by identity.
        self._cached: OrderedDict[object, tuple[CachedObject, int]] = OrderedDict()
        self._followed = runtime.MemoryShare("followed-streams", 0)
        self.cached_bytes = 0
        self.directory_bytes = 0
        self._objects_since_checkpoint = 0
        self._bytes_since_checkpoint = 0
        self._carried_bytes = 0
        self._covered = (0, 0, 0)
        self._tail: StreamTail | None = StreamTail(incarnation, 0, 0, False, ())
        self._recent: list[TailObject] = []
        self.reader = WalReader(store, incarnation, settings.prefetch)
        self.incarnation = incarnation

    def committed(self, done: CommittedObject) -> CachedObject:
        """Add an object that the writer committed, and cache its bytes."""
        key = self.reader.keys.number(done.number)
        held = CachedObject(key, self.incarnation, done.number, done.data)
        if self._tail is None or done.number >= self._tail.position:
            # Otherwise the tail was read from the store after this commit.
            self._recent.append(TailObject(key, done.number, done.slices, None))
        self._objects_since_checkpoint += 1
        self._bytes_since_checkpoint += len(done.data)
        self.directory_bytes += len(done.slices) * SLICE_OVERHEAD_BYTES
        self._keep(key, held)
        return held

    def keep(self, held: CachedObject) -> None:
        """Cache bytes of a tail that was taken over. The oldest are evicted first."""
        self._keep(held, held, SLICE_OVERHEAD_BYTES)

    def _keep(self, name: object, held: CachedObject, slice_bytes: int = 0) -> None:
        assert held.data is not None
        size = len(held.data) + OBJECT_OVERHEAD_BYTES + slice_bytes
        self._cached[name] = held, size
        self.cached_bytes += size
        self.shrink()

    def share_with(self, followed: runtime.MemoryShare) -> None:
        """Leave to followed streams what they use of tail.cache.bytes."""
        self._followed = followed

    def shrink(self) -> None:
        """Evict the oldest bytes beyond what others leave of tail.cache.bytes."""
        used = self._followed.used + max(0, self.directory_bytes - FEW_SLICES_BYTES)
        bytes_max = max(0, self._bytes_left() - used)
        while self.cached_bytes > bytes_max:
            _, (oldest, size) = self._cached.popitem(last=False)
            self.cached_bytes -= size
            oldest.drop()

    def _bytes_left(self) -> int:
        """Return what state that cannot be evicted leaves of tail.cache.bytes."""
        return max(0, self._cache_bytes_max - self._memory.lent_bytes)

    def roll_up_due(self) -> bool:
        objects, size = self._objects_since_checkpoint, self._bytes_since_checkpoint
        is_large = self._is_directory_over(DIRECTORY_SHARE * self._cache_bytes_max)
        if objects < self._wal.tail_objects and size < self._wal.tail_bytes and not is_large:
            return False
        if 2 * size >= self._carried_bytes or objects >= PUT_OFF_OBJECTS * self._wal.tail_objects:
            return True
        return self._is_directory_over(self._bytes_left())

    def _is_directory_over(self, bytes_max: float) -> bool:
        return self.directory_bytes >= max(bytes_max, FEW_SLICES_BYTES)

    def roll_up_is_cheap(self, untiered_bytes: Iterable[int]) -> bool:
        """Whether a roll-up that is due soon would copy little now."""
        size = self._bytes_since_checkpoint
        is_soon = size >= EARLY_SHARE * self._wal.tail_bytes
        return is_soon and sum(untiered_bytes) <= CHEAP_SHARE * size

    async def tail(self, committed_end: int) -> StreamTail:
        """The stream's tail up to its committed end."""
        if self._tail is None:
            read = await self.reader.tail()
            # Bytes of small objects come with their directories, and no cache counts them.
            bare = tuple(item._replace(data=None) for item in read.objects)
            self._tail = known = dataclasses.replace(read, objects=bare)
            self._keep_recent(read.position)
            return known
        objects = (*self._tail.objects, *self._recent)
        ends = next_offsets(self._tail.ends, self._recent)
        # What was read from the store may go beyond the committed end that we know.
        position = max(committed_end, self._tail.position)
        known = StreamTail(self.incarnation, self._tail.checkpoint, position, False, objects, ends)
        self._tail, self._recent = known, []
        return known

    def _keep_recent(self, position: int) -> None:
        self._recent = [
            item for item in self._recent if item.number is not None and item.number >= position
        ]

    async def read(self, item: TailObject, entry: Slice) -> memoryview:
        """A slice's bytes, from memory if they are still cached."""
        held, _ = self._cached.get(item.key, (None, 0))
        if held is not None and held.data is not None:
            return held.data[entry.position : entry.end]
        return await self.reader.slice_data(item, entry)

    def rolling_up(self) -> None:
        """Drop the tail while a checkpoint is being written: its outcome is unknown."""
        self._covered = (
            self._objects_since_checkpoint,
            self._bytes_since_checkpoint,
            self.directory_bytes,
        )
        self._tail = None

    def rolled_up(self, before: StreamTail, upto: int, rollups: list[TailObject]) -> None:
        """Set the tail after our checkpoint at `upto`: its roll-ups and later objects."""
        # Reset only on success: after a failure the next roll-up is due at once.
        objects, size, directory = self._covered
        self._objects_since_checkpoint -= objects
        self._bytes_since_checkpoint -= size
        self.directory_bytes -= directory
        self._covered = (0, 0, 0)
        self._carried_bytes = sum(entry.length for item in rollups for entry in item.slices)
        later = [item for item in before.objects if item.number is not None and item.number >= upto]
        # Including partitions without a slice in the roll-ups.
        ends = next_offsets(before.ends, before.objects)
        self._tail = StreamTail(
            self.incarnation, upto, before.position, False, (*rollups, *later), ends
        )
        self._keep_recent(before.position)
