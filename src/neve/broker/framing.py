"""Cut the bytes of a connection into frames, with as few copies as possible.

All connections receive into one scratch buffer: the event loop asks for a buffer and reports what
it received in the same step. So no two connections use it at once, and an idle one holds none. A
frame that lies whole in the scratch is read there. A larger one that does not gets a pooled buffer
of its own and receives its rest straight into it. Nothing is allocated for a length that is over
the bound, and what all connections together are in the middle of receiving is bounded too: one
frame always passes, another waits until there is room. What is kept of smaller ones, and of those
that have to wait, is counted: where it comes to much, little is received from each at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

from neve import runtime
from neve.broker.buffers import BufferPool
from neve.protocol.errors import MalformedError

SCRATCH_BYTES = 128 * 1024
# An unfinished frame above this is not kept and copied back at every read.
LARGE_BYTES = 16 * 1024
# How much is received at once where much is kept, and which part of the bound that is.
RECEIVE_BYTES_MIN = 4 * 1024
KEPT_SHARE = 2
_LENGTH = struct.Struct(">i")
_PREFIX_BYTES = 4


class Frame(NamedTuple):
    """One request without its length. `buffer` is set where it must go back to the pool.

    Without one the bytes lie in the scratch, and are gone at the next read.
    """

    data: memoryview
    buffer: bytearray | None


class Scratch:
    """The receive buffer that all connections of a server share, and their share of the pool.

    `on_room` is called whenever less is being received than before.
    """

    def __init__(self, pool: BufferPool, receiving_bytes_max: int = 2**31) -> None:
        self.pool = pool
        self.buffer = bytearray(SCRATCH_BYTES)
        self.view = memoryview(self.buffer)
        self.receiving_bytes = 0
        self.on_room: Callable[[], None] = lambda: None
        self.kept = runtime.MemoryShare("half-received", receiving_bytes_max // KEPT_SHARE)
        self.held_back = False  # what is free is kept for one that has waited for long
        self._receiving_bytes_max = receiving_bytes_max

    def begin(self, length: int) -> bytearray | None:
        """A buffer to receive a large frame into; None while too much is being received."""
        if self.held_back or not self.has_room(length):
            return None
        self.receiving_bytes += self.pool.size_of(length)
        return self.pool.take(length)

    def has_room(self, length: int) -> bool:
        """Whether a frame of this length may be received now. It may if there is no other.

        What is kept of smaller ones counts as well.
        """
        received = self.receiving_bytes
        held = received + self.kept.used
        return not received or held + self.pool.size_of(length) <= self._receiving_bytes_max

    @property
    def receive_bytes_max(self) -> int:
        """How much to receive at once, given what is kept."""
        return SCRATCH_BYTES if self.kept.room_bytes >= SCRATCH_BYTES else RECEIVE_BYTES_MIN

    def release(self, frame: Frame) -> None:
        """Release a frame that was read, and of which no part is kept."""
        if frame.buffer is not None:
            self.pool.give(frame.buffer)

    def received(self, buffer: bytearray) -> None:
        """The frame in this buffer is whole, or will never be."""
        self.receiving_bytes -= len(buffer)
        self.on_room()


class Framing:
    """One connection's bytes, cut into frames."""

    __slots__ = (
        "_at",
        "_end",
        "_filled",
        "_frame_bytes_max",
        "_kept",
        "_large",
        "_scratch",
        "wanted_bytes",
    )

    def __init__(self, scratch: Scratch, frame_bytes_max: int) -> None:
        self._scratch = scratch
        self._frame_bytes_max = frame_bytes_max
        self._kept = b""  # received and not yet cut, while the scratch serves others
        self._at = self._end = 0  # what is still to be cut, in the scratch
        self._large: memoryview | None = None  # a frame being received into a buffer of its own
        self._filled = 0
        self.wanted_bytes = 0  # the length of a frame that waits for a buffer; 0: none does

    def space(self, bytes_max: int = SCRATCH_BYTES) -> memoryview:
        """Where the next bytes go: at most `bytes_max` of them, if not straight into a large frame.

        What was kept stays so until bytes have come: an event loop may ask and then find nothing.
        """
        if self._large is not None:
            return self._large[self._filled :]
        kept = len(self._kept)
        if kept:
            self._scratch.view[:kept] = self._kept
        return self._scratch.view[kept : kept + min(bytes_max, self._scratch.receive_bytes_max)]

    def received(self, count: int) -> bool:
        """So many bytes were put there. Returns False if they are the midst of a large frame."""
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
        """Whether bytes wait that have not been cut."""
        return bool(self._kept) or self._at < self._end or self._large is not None

    @property
    def kept_bytes(self) -> int:
        """What was received and waits to be cut while others use the scratch."""
        return len(self._kept)

    @property
    def receiving_bytes(self) -> int | None:
        """How much has come of a large frame that is not whole; None where there is none."""
        return None if self._large is None else self._filled

    def next(self) -> Frame | None:
        """The next whole frame; MalformedError where its length cannot be."""
        if self._large is not None:
            return self._finished_large(self._large)
        at, end = self._at, self._end
        if end - at < _PREFIX_BYTES:
            return None
        (length,) = _LENGTH.unpack_from(self._scratch.buffer, at)
        if not 0 < length <= self._frame_bytes_max:
            raise MalformedError(
                f"a frame of {length} bytes (request.bytes.max is {self._frame_bytes_max})"
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
            self.wanted_bytes = length
            return
        self.wanted_bytes = 0
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
        """Keep what is left in the scratch: the next connection is about to use it."""
        if self._at < self._end:
            self._keep(bytes(self._scratch.view[self._at : self._end]))
        self._at = self._end = 0

    def resume(self) -> None:
        """Look at what was kept again."""
        if self._kept and self._large is None:
            self.space()
            self.received(0)

    def close(self) -> None:
        if self._large is not None:
            buffer = self._large.obj
            assert isinstance(buffer, bytearray)
            self._large = None
            self._scratch.pool.give(buffer)
            self._scratch.received(buffer)
        self._keep(b"")
        self._at = self._end = 0
