"""A pool of receive buffers.

Fresh memory costs a page fault for every 4 KiB that the kernel writes into it, ten times the cost
of the copy itself. So large buffers are reused. Their sizes are powers of two. The pool bounds the
memory of its idle buffers.
"""

from __future__ import annotations

from collections.abc import Sequence

from neve.log.wal.pending import Commit

SMALLEST_BYTES = 64 * 1024


class BufferPool:
    """Buffers by size. `idle_bytes_max` bounds the buffers that are kept while unused."""

    def __init__(self, idle_bytes_max: int) -> None:
        self._idle: dict[int, list[bytearray]] = {}
        self.idle_bytes_max = idle_bytes_max
        self.idle_bytes = 0
        self.used_bytes = 0

    @staticmethod
    def size_of(size: int) -> int:
        """Return the size of the buffer that `take(size)` returns."""
        return max(SMALLEST_BYTES, 1 << (size - 1).bit_length())

    def take(self, size: int) -> bytearray:
        """Return a buffer of at least `size` bytes. Its content is undefined."""
        rounded = self.size_of(size)
        self.used_bytes += rounded
        idle = self._idle.get(rounded)
        if idle:
            self.idle_bytes -= rounded
            return idle.pop()
        return bytearray(rounded)

    def give(self, buffer: bytearray) -> None:
        """Return a buffer to the pool. No reference to its content may be left."""
        size = len(buffer)
        self.used_bytes -= size
        if self.idle_bytes + size <= self.idle_bytes_max:
            self._idle.setdefault(size, []).append(buffer)
            self.idle_bytes += size

    def give_once_decided(self, buffer: bytearray, commits: Sequence[Commit]) -> None:
        """Return a buffer when all batches appended from it are committed or refused."""
        left = len(commits)
        if not left:
            self.give(buffer)

        def decided(_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                self.give(buffer)

        for commit in commits:
            commit.then(decided)
