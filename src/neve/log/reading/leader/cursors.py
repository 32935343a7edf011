"""Cursors: what is kept for sequential readers between two of their reads.

A cursor is at the offset where the last chunk ended. A read from exactly that offset continues with
it, and with the blocks that were read ahead for it. Several cursors may be at one offset. The
number of resting cursors is bounded; the least recently used is dropped first, and one task drops
idle ones. Their blocks are released when other readers need the bytes.
"""

from __future__ import annotations

import asyncio
from collections import deque

from neve import runtime
from neve.log.reading.leader.blocks import Block, Blocks
from neve.log.reading.leader.readable_log import ReadableLog

Position = tuple[ReadableLog, int]


class Cursor:
    """One reader's position, and the blocks it holds in the order of their offsets."""

    def __init__(self, log: ReadableLog, offset: int, blocks: Blocks) -> None:
        self.log = log
        self.next_offset = offset
        self.blocks: deque[Block] = deque()
        self.reads = 0  # that returned a chunk
        self.used_at = 0.0
        self.dropped = False
        self.waits = False  # for room in the budget
        self.planner: asyncio.Task[None] | None = None
        self._pool = blocks

    @property
    def held_bytes(self) -> int:
        return sum(block.located.size for block in self.blocks)

    @property
    def planned_to(self) -> int:
        """The offset after the last block."""
        return self.blocks[-1].located.end_offset if self.blocks else self.next_offset

    def move_to(self, offset: int) -> Block | None:
        """Release the blocks below `offset`, and return the block that holds it.

        If none holds it, all blocks are released: the reader does not continue with them.
        """
        self.next_offset = offset
        while self.blocks and self.blocks[0].located.end_offset <= offset:
            self._pool.release(self.blocks.popleft())
        if self.blocks and not self.blocks[0].holds(offset):
            self.clear()
        return self.blocks[0] if self.blocks else None

    def clear(self) -> None:
        while self.blocks:
            self._pool.release(self.blocks.pop())

    def drop(self) -> None:
        """Release all blocks and stop reading ahead."""
        self.dropped = True
        if self.planner is not None:
            self.planner.cancel()
        self.clear()


class Cursors:
    """Resting cursors. A cursor in use is not among them, and so is not dropped.

    `readers` counts both: a reader calls `use` for its cursor, and later `rest` or `drop`.
    """

    def __init__(self, cursors_max: int, idle_ms: int) -> None:
        self._cursors_max = cursors_max
        self._idle_seconds = idle_ms / 1000
        self._at: dict[Position, list[Cursor]] = {}
        self._order: dict[Cursor, None] = {}
        self._used: set[Cursor] = set()
        self._tasks = runtime.Tasks()
        self._closed = False
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._order)

    @property
    def readers(self) -> int:
        """The number of cursors, resting or in use."""
        return len(self._order) + len(self._used)

    def peek(self, log: ReadableLog, offset: int) -> Cursor | None:
        found = self._at.get((log, offset))
        return found[-1] if found else None

    def take(self, log: ReadableLog, offset: int) -> Cursor | None:
        """Return and remove the resting cursor at this offset: its reader continues."""
        cursor = self.peek(log, offset)
        if cursor is not None:
            self._remove(cursor)
        return cursor

    def use(self, cursor: Cursor) -> None:
        """Count a cursor as in use until it rests or is dropped."""
        self._used.add(cursor)

    def drop(self, cursor: Cursor) -> None:
        """Drop a cursor that is in use."""
        self._used.discard(cursor)
        cursor.drop()

    def rest(self, cursor: Cursor) -> None:
        """Keep a cursor until its reader comes back."""
        self._used.discard(cursor)
        if self._closed:
            cursor.drop()
            return
        cursor.used_at = runtime.monotonic()
        self._at.setdefault((cursor.log, cursor.next_offset), []).append(cursor)
        self._order[cursor] = None
        while len(self._order) > self._cursors_max:
            self._drop(next(iter(self._order)))
        if self._order and not len(self._tasks):
            self._tasks.start(self._sweep(), name="idle readers")

    def make_room(self, size: int) -> None:
        """Release blocks of resting cursors, the least recently used first."""
        for cursor in list(self._order):
            if size <= 0:
                return
            size -= sum(block.located.size for block in cursor.blocks if block.holders == 1)
            cursor.clear()

    async def aclose(self) -> None:
        self._closed = True
        await self._tasks.close()
        for cursor in list(self._order):
            self._drop(cursor)

    async def _sweep(self) -> None:
        while self._order:
            await runtime.sleep(self._idle_seconds / 2)
            idle_since = runtime.monotonic() - self._idle_seconds
            for cursor in list(self._order):
                if cursor.used_at > idle_since:
                    break
                self._drop(cursor)

    def _drop(self, cursor: Cursor) -> None:
        self._remove(cursor)
        cursor.drop()
        self.dropped += 1

    def _remove(self, cursor: Cursor) -> None:
        place = (cursor.log, cursor.next_offset)
        resting = self._at[place]
        resting.remove(cursor)
        if not resting:
            del self._at[place]
        del self._order[cursor]
