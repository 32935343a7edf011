"""Downloaded ranges that readers share: one download for all readers of the same range.

A block exists while at least one cursor holds it. The last one to release it cancels its download
or frees its bytes. Until a reader waits for it, a block is downloaded through free slots of the
store only. Its bytes count in the budget from the start of the download on.
"""

from __future__ import annotations

import asyncio
import functools
from dataclasses import dataclass

from neve import runtime
from neve.errors import ClosedError, UnavailableError
from neve.log.downloads import through_free_slots, until_believed
from neve.log.reading.leader.batch_map import BatchMap, Cut
from neve.log.reading.located_range import CheckedBytes, LocatedRange, read_located
from neve.store.port import Store


@dataclass
class BlockCounters:
    """Downloads, their bytes, blocks that were shared, and waits for a free slot."""

    downloads: int = 0
    bytes: int = 0
    shared: int = 0
    slot_waits: int = 0


class Block:
    """One located range. `data` is set once it is downloaded and checked."""

    __slots__ = ("awaited", "batches", "charged", "data", "failure", "holders", "located", "task")

    def __init__(self, located: LocatedRange) -> None:
        self.located = located
        self.data: memoryview | None = None
        self.failure: BaseException | None = None
        self.holders = 1
        self.charged = True
        self.awaited = asyncio.Event()
        self.batches = BatchMap(located.first_offset, located.key)
        self.task: asyncio.Task[None] | None = None

    def holds(self, offset: int) -> bool:
        return self.located.first_offset <= offset < self.located.end_offset

    def cut(self, offset: int, room: int, *, at_least_one: bool, limit: int | None) -> Cut | None:
        assert self.data is not None
        return self.batches.cut(self.data, offset, room, at_least_one=at_least_one, limit=limit)

    async def wait(self) -> memoryview:
        """Return the bytes, or raise the failure of the download.

        Cancelling a waiting reader does not cancel the download for the others.
        """
        assert self.task is not None
        self.awaited.set()
        if not self.task.done():
            await asyncio.wait([self.task])
        if self.data is None:
            key = self.located.key
            raise self.failure or UnavailableError(key, "its download was cancelled: read again")
        return self.data


class Blocks:
    """All blocks that cursors hold."""

    def __init__(self, store: Store, ahead: Store | None, budget: runtime.MemoryShare) -> None:
        self.counters = BlockCounters()
        self._store = store
        self._ahead = ahead
        self._budget = budget
        self._of_source: dict[tuple[str, int], list[Block]] = {}
        # The block keeps the failure of its download for the readers that wait.
        self._tasks = runtime.Tasks(on_failure=lambda _: None)
        self._closed = False

    def __len__(self) -> int:
        return sum(map(len, self._of_source.values()))

    def find(self, source: tuple[str, int], offset: int) -> Block | None:
        """Return a block of this source with this offset, held for the caller; None if none."""
        for block in self._of_source.get(source, ()):
            if block.holds(offset):
                block.holders += 1
                self.counters.shared += 1
                return block
        return None

    async def demand(self, located: LocatedRange, offset: int) -> Block:
        """Return a block with this offset, held for the caller. Waits for room in the budget."""
        found = self.find(located.source, offset)
        if found is not None:
            return found
        await self._budget.take(located.size)
        found = self.find(located.source, offset)
        if found is not None or self._closed:
            self._budget.give_back(located.size)
        if found is not None:
            return found
        if self._closed:
            raise ClosedError("the reader of logs is closed")
        return self._begin(located)

    def read_ahead(self, located: LocatedRange) -> Block | None:
        """Return the block of a range, held for the caller; None if the budget has no room."""
        found = self.find(located.source, located.first_offset)
        if found is not None:
            return found
        if self._closed or not self._budget.try_take(located.size):
            return None
        return self._begin(located)

    def release(self, block: Block) -> None:
        """Release a block. The last holder ends it."""
        block.holders -= 1
        if block.holders:
            return
        self._forget(block)
        assert block.task is not None
        if block.task.done():
            self._settle(block)
        else:
            block.task.cancel()

    async def aclose(self) -> None:
        """Cancel all downloads and start no more."""
        self._closed = True
        await self._tasks.close()

    def _begin(self, located: LocatedRange) -> Block:
        block = Block(located)
        self._of_source.setdefault(located.source, []).append(block)
        self.counters.downloads += 1
        block.task = self._tasks.start(
            self._download(block), name=f"catch-up {located.key}+{located.start}"
        )
        block.task.add_done_callback(functools.partial(self._ended, block))
        return block

    async def _download(self, block: Block) -> None:
        async def read() -> CheckedBytes:
            return await through_free_slots(
                functools.partial(read_located, located=block.located),
                self._store,
                self._ahead,
                block.awaited,
                self._count_slot_wait,
            )

        found = await until_believed(read)
        self.counters.bytes += len(found.data)
        block.data = found.data

    def _count_slot_wait(self) -> None:
        self.counters.slot_waits += 1

    def _ended(self, block: Block, task: asyncio.Task[None]) -> None:
        if block.data is None:
            block.failure = None if task.cancelled() else task.exception()
            self._forget(block)
        if block.data is None or not block.holders:
            self._settle(block)

    def _forget(self, block: Block) -> None:
        rows = self._of_source.get(block.located.source, [])
        if block in rows:
            rows.remove(block)
            if not rows:
                del self._of_source[block.located.source]

    def _settle(self, block: Block) -> None:
        """Give the block's bytes back to the budget."""
        block.data = None
        if block.charged:
            block.charged = False
            self._budget.give_back(block.located.size)
