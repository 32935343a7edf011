"""Split the bytes of a connection into frames, with as few copies as possible.

All connections receive into one scratch buffer. The event loop asks for a buffer and reports the
received bytes in the same step, so two connections never use the scratch at once, and an idle
connection holds no buffer. A frame that is complete in the scratch is read there. The rest of a
larger frame is received into a pooled buffer of its own.

Memory is bounded: nothing is allocated for a frame over the size limit, and the incomplete large
frames of all connections share `broker.receiving.bytes.max`. One frame may always be received;
others wait until there is room. The incomplete small frames count too. When they take up much
memory, less is received from each connection at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from neve import runtime
from neve.broker.buffers import BufferPool
from neve.protocol.errors import MalformedError

SCRATCH_BYTES = 128 * 1024
# A larger frame gets a buffer of its own. A smaller one is copied back to the scratch at each read.
LARGE_BYTES = 16 * 1024
# How much is received at once when incomplete small frames take up much memory.
RECEIVE_BYTES_MIN = 4 * 1024
# Incomplete small frames may take up this fraction of `broker.receiving.bytes.max`: 1 / 2.
KEPT_SHARE = 2
_LENGTH = struct.Struct(">i")
_PREFIX_BYTES = 4


class Frame(NamedTuple):
    """One request without its length prefix.

    `buffer` must go back to the pool. If it is None, `data` is in the scratch, and the next read
    overwrites it.
    """

    data: memoryview
    buffer: bytearray | None


class Scratch:
    """The receive buffer that all connections of a server share, and the pool for large frames.

    `on_room` is called whenever a large frame is complete or dropped.
    """

    def __init__(self, pool: BufferPool, receiving_bytes_max: int = 2**31) -> None:
        self.pool = pool
        self.buffer = bytearray(SCRATCH_BYTES)
        self.view = memoryview(self.buffer)
        self.receiving_bytes = 0
        self.on_room: Callable[[], None] = lambda: None
        self.kept = runtime.MemoryShare("half-received", receiving_bytes_max // KEPT_SHARE)
        self.is_reserved = False  # free memory is reserved for a frame that has waited long
        self._receiving_bytes_max = receiving_bytes_max

    def begin(self, length: int) -> bytearray | None:
        """Return a buffer for a large frame, or None if the frame must wait."""
        if self.is_reserved or not self.has_room(length):
            return None
        self.receiving_bytes += self.pool.size_of(length)
        return self.pool.take(length)

    def has_room(self, length: int) -> bool:
        """Whether a large frame of this length may be received now.

        It may if no other is being received. Incomplete small frames count as well.
        """
        received = self.receiving_bytes
        held = received + self.kept.used
        return not received or held + self.pool.size_of(length) <= self._receiving_bytes_max

    @property
    def receive_bytes_max(self) -> int:
        """How much to receive at once, given the memory of incomplete small frames."""
        return SCRATCH_BYTES if self.kept.room_bytes >= SCRATCH_BYTES else RECEIVE_BYTES_MIN

    def release(self, frame: Frame) -> None:
        """Return a frame's buffer to the pool. No reference to its data may be left."""
        if frame.buffer is not None:
            self.pool.give(frame.buffer)

    def received(self, buffer: bytearray) -> None:
        """Note that the frame in this buffer is complete or dropped."""
        self.receiving_bytes -= len(buffer)
        self.on_room()


class Framing:
    """Splits one connection's bytes into frames."""

    __slots__ = (
        "_at",
        "_end",
        "_filled",
        "_frame_bytes_max",
        "_kept",
        "_large",
        "_scratch",
        "awaited_bytes",
    )

    def __init__(self, scratch: Scratch, frame_bytes_max: int) -> None:
        self._scratch = scratch
        self._frame_bytes_max = frame_bytes_max
        self._kept = b""  # bytes not yet split, while other connections use the scratch
        self._at = self._end = 0  # the range of the scratch that is not yet split
        self._large: memoryview | None = None  # a frame that is received into its own buffer
        self._filled = 0
        self.awaited_bytes = 0  # the length of a frame that waits for a buffer, or 0

    def receive_space(self, bytes_max: int = SCRATCH_BYTES) -> memoryview:
        """Return where to receive the next bytes: the rest of a large frame, or the scratch.

        In the scratch it is at most `bytes_max` long. The kept bytes stay kept until `received`: an
        event loop may ask for space and then receive nothing.
        """
        if self._large is not None:
            return self._large[self._filled :]
        kept = len(self._kept)
        if kept:
            self._scratch.view[:kept] = self._kept
        return self._scratch.view[kept : kept + min(bytes_max, self._scratch.receive_bytes_max)]

    def received(self, count: int) -> bool:
        """Note `count` bytes in the space. Returns False if a large frame is still incomplete."""
        if self._large is not None:
            self._filled += count
            return self._filled == len(self._large)
        self._at, self._end = 0, len(self._kept) + count
        self._keep(b"")
        return True

    def _keep(self, data: bytes) -> None:
        if data or self._kept:
            self._scratch.kept.count(len(data) - len(self._kept))
            self._kept = data

    @property
    def pending(self) -> bool:
        """Whether there are bytes that are not yet split into frames."""
        return bool(self._kept) or self._at < self._end or self._large is not None

    @property
    def kept_bytes(self) -> int:
        """How many bytes are kept outside the scratch."""
        return len(self._kept)

    @property
    def receiving_bytes(self) -> int | None:
        """How many bytes of an incomplete large frame have arrived; None without such a frame."""
        return None if self._large is None else self._filled

    def next(self) -> Frame | None:
        """Return the next complete frame, if any. Raises MalformedError for an invalid length."""
        if self._large is not None:
            return self._finished_large(self._large)
        at, end = self._at, self._end
        if end - at < _PREFIX_BYTES:
            return None
        (length,) = _LENGTH.unpack_from(self._scratch.buffer, at)
        if not 0 < length <= self._frame_bytes_max:
            raise MalformedError(
                f"a frame of {length} bytes (accepted: 1 to broker.request.bytes.max, "
                f"{self._frame_bytes_max})"
            )
        start = at + _PREFIX_BYTES
        if end - start >= length:
            self._at = start + length
            return Frame(self._scratch.view[start : start + length], None)
        if length > LARGE_BYTES:
            self._begin_large(start, end, length)
        return None

    def _begin_large(self, start: int, end: int, length: int) -> None:
        buffer = self._scratch.begin(length)
        if buffer is None:
            self.awaited_bytes = length
            return
        self.awaited_bytes = 0
        large = memoryview(buffer)[:length]
        self._filled = end - start
        large[: self._filled] = self._scratch.view[start:end]
        self._large = large
        self._at = self._end = 0

    def _finished_large(self, large: memoryview) -> Frame | None:
        if self._filled < len(large):
            return None
        self._large = None
        buffer = large.obj
        assert isinstance(buffer, bytearray)
        self._scratch.received(buffer)
        return Frame(large, buffer)

    def settle(self) -> None:
        """Move the rest out of the scratch, because other connections are about to use it."""
        if self._at < self._end:
            self._keep(bytes(self._scratch.view[self._at : self._end]))
        self._at = self._end = 0

    def resume(self) -> None:
        """Move the kept bytes back to the scratch, to be split into frames."""
        if self._kept and self._large is None:
            self.receive_space()
            self.received(0)

    def close(self) -> None:
        """Drop all bytes and release the buffer of an incomplete frame."""
        if self._large is not None:
            buffer = self._large.obj
            assert isinstance(buffer, bytearray)
            self._large = None
            self._scratch.pool.give(buffer)
            self._scratch.received(buffer)
        self._keep(b"")
        self._at = self._end = 0
