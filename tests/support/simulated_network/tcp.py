"""One end of a TCP connection, as the kernel of a simulated host keeps it.

What a program sees of it is what Linux shows: bounded buffers and windows, retransmission with
exponential backoff, half close, resets, orphans that still send what was written before `close`,
and the errors of each. Left out is what only costs or saves time: congestion control, delayed and
selective acknowledgements.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from support.simulated_network.retries import Clock, RetryTimer
from support.simulated_network.segments import Address, Kind, Segment

SEGMENT_BYTES = 64 * 1024
"""The kernel hands the network card as much at once."""
CONNECT_RETRIES_MAX, ACCEPT_RETRIES_MAX, RETRIES_MAX, ORPHAN_RETRIES_MAX = 6, 5, 15, 8
"""After these a connection fails: some 127 s, 63 s, 15 minutes and 100 s."""
LINGER_SECONDS = 60.0
"""How long a connection that both ends have closed answers what the other end repeats, and how
long the closed end of a connection waits for the other end to close."""


class State(Enum):
    """The state of an end. How far an open one is closed is in its attributes."""

    CONNECTING = "connecting"
    ACCEPTING = "accepting"
    OPEN = "open"
    CLOSED = "closed"


_LINUX_STATES = {State.CONNECTING: 2, State.ACCEPTING: 3, State.CLOSED: 7}
_COUNT = struct.Struct("=I")
# In Linux's struct tcp_info: the packets in flight, and the bytes that are not yet sent.
_IN_FLIGHT_AT, _UNSENT_AT, _INFO_BYTES = 24, 144, 148


class Kernel(Clock, Protocol):
    """What an endpoint needs from its host."""

    def emit(self, segment: Segment) -> None: ...

    def opened(self, endpoint: Endpoint) -> None:
        """A connection to a listener is open."""

    def retire(self, endpoint: Endpoint, seconds: float) -> None:
        """Forget an endpoint after `seconds`."""


def _ignore() -> None:
    """Nobody waits for this endpoint."""


class Endpoint:
    """One end of a connection. `on_change` is called when a read or a write may succeed."""

    def __init__(
        self,
        kernel: Kernel,
        local: Address,
        remote: Address,
        connection: int,
        state: State,
        buffer_bytes: int,
    ) -> None:
        self.local, self.remote, self.connection, self.state = local, remote, connection, state
        self.on_change: Callable[[], None] = _ignore
        self._kernel = kernel
        self._buffer_bytes = buffer_bytes
        self._error = 0
        # Bytes to read, the next sequence number to receive, and the limit that the peer knows.
        self.received = bytearray()
        self._expected = self._promised = 0
        self.is_ended = False  # the peer has sent everything
        # Bytes to send or to send again, the sequence number of the first, and of the next to send.
        self._unacknowledged = bytearray()
        self._acknowledged = self._sent = 0
        self._limit = 0
        self._ends = False  # nothing is sent after these bytes
        self._end_acknowledged = False
        self._is_orphan = False  # the program has closed it
        self._closes_first = False
        self._retires = False
        self._timer = RetryTimer(kernel, self._is_waiting, self._retry)
        if state is State.CONNECTING:
            self._open(Kind.CONNECT)

    # -- called by the program ---------------------------------------------------------------

    @property
    def is_readable(self) -> bool:
        """Whether a read returns at once: bytes, the end, or an error."""
        return bool(self.received or self.is_ended or self._error) or self.state is State.CLOSED

    @property
    def is_writable(self) -> bool:
        """Whether a write returns at once. A full buffer is writable when a third of it is free."""
        if self._error or self.state is State.CLOSED:
            return True
        return self.state is State.OPEN and 3 * self.unacknowledged <= 2 * self._buffer_bytes

    @property
    def unacknowledged(self) -> int:
        """How many bytes the peer's kernel has not acknowledged."""
        return len(self._unacknowledged)

    @property
    def _is_receiving(self) -> bool:
        return self.state is State.OPEN and not self.is_ended

    def tcp_info(self) -> bytes:
        """Return the start of what Linux returns for TCP_INFO."""
        info = bytearray(_INFO_BYTES)
        info[0] = self._linux_state
        in_flight = self._sent - self._acknowledged
        _COUNT.pack_into(info, _IN_FLIGHT_AT, -(-in_flight // SEGMENT_BYTES))
        _COUNT.pack_into(info, _UNSENT_AT, max(0, self.unacknowledged - in_flight))
        return bytes(info)

    @property
    def _linux_state(self) -> int:
        if self.state is not State.OPEN:
            return _LINUX_STATES[self.state]
        if self.is_ended:
            return 9 if self._ends else 8  # LAST_ACK, CLOSE_WAIT
        if self._ends:
            return 5 if self._end_acknowledged else 4  # FIN_WAIT2, FIN_WAIT1
        return 1

    def take_error(self) -> int:
        """Return the pending error number, once; 0 if there is none."""
        error, self._error = self._error, 0
        return error

    def read(self, count: int) -> bytes:
        """Return up to `count` bytes; none at the end of the stream. Raises what a socket does."""
        if self.received:
            data = bytes(self.received[:count])
            del self.received[:count]
            limit = self._expected + self._buffer_bytes - len(self.received)
            if self._is_receiving and 2 * (limit - self._promised) >= self._buffer_bytes:
                self._send_data(self._sent)
            return data
        self._raise_error()
        if self.is_ended or self.state is State.CLOSED:
            return b""
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Take as many bytes as the buffer has room for. Raises what a socket does."""
        self._raise_error()
        if self.state is State.CLOSED or self._ends:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        room = self._buffer_bytes - len(self._unacknowledged)
        if room <= 0 or self.state is not State.OPEN:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        taken = memoryview(data)[:room]
        self._unacknowledged += taken
        self._push()
        return len(taken)

    def end(self) -> None:
        """Send the end of the stream after what was written."""
        if self.state is not State.OPEN:
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN))
        if not self._ends:
            self._ends = True
            self._push()

    def close(self, *, reset: bool = False) -> None:
        """Close it as the kernel closes a socket: with a reset if it holds unread bytes."""
        self.on_change = _ignore
        if self.state is State.CONNECTING:
            self._die(0)
        elif self.state is not State.CLOSED:
            if reset or self.received or self.state is State.ACCEPTING:
                self.abandon()
            else:
                self._is_orphan = True
                self._timer.failures = 0
                self._ends = True
                self._push()
                self._settle()

    def abandon(self) -> None:
        """Drop everything and reset the peer."""
        if self.state not in (State.CLOSED, State.CONNECTING):
            self._kernel.emit(Segment(Kind.RESET, self.local, self.remote, self.connection))
        self.vanish()

    def vanish(self) -> None:
        """Drop everything. The peer hears nothing of it."""
        self._die(0)

    def _raise_error(self) -> None:
        if error := self.take_error():
            raise OSError(error, os.strerror(error))

    # -- called by the network ---------------------------------------------------------------

    def receive(self, segment: Segment) -> None:
        """Handle a segment of this connection."""
        kind = segment.kind
        if kind is Kind.RESET:
            self._reset_by_peer()
        elif self.state is State.CLOSED:
            if segment.is_last:
                self._send_data(self._sent)
        elif kind is Kind.CONNECT:
            if self.state is State.ACCEPTING:
                self._limit = segment.limit
                self._open(Kind.ACCEPT)
        elif kind is Kind.ACCEPT:
            if self.state is State.CONNECTING:
                self.state = State.OPEN
                self._answered()
                self._limit = segment.limit
                self.on_change()
            self._send_data(self._sent)
        elif self.state is not State.CONNECTING:
            if self.state is State.ACCEPTING:
                self.state = State.OPEN
                self._answered()
                self._kernel.opened(self)
            if self.state is State.OPEN and self._take(segment):
                self._note_acknowledged(segment)

    def _reset_by_peer(self) -> None:
        error = errno.ECONNRESET
        if self.state is State.CONNECTING:
            error = errno.ECONNREFUSED
        elif self.is_ended:
            error = errno.EPIPE
        self._die(error)

    def _take(self, segment: Segment) -> bool:
        """Take the bytes that are next, and acknowledge. Returns False if it reset the peer.

        A segment behind a lost one is dropped: the peer sends it again.
        """
        if not (segment.data or segment.is_last or segment.is_probe):
            return True
        end = segment.sequence + len(segment.data)
        if self._is_orphan and segment.data and end > self._expected:
            self.abandon()  # nobody will ever read this
            return False
        changed = False
        if segment.sequence <= self._expected:
            room = self._buffer_bytes - len(self.received)
            fresh = segment.data[self._expected - segment.sequence :][:room]
            self.received += fresh
            self._expected += len(fresh)
            changed = bool(fresh)
            if segment.is_last and self._expected == end and not self.is_ended:
                self.is_ended = changed = True
                self._closes_first = self._ends
                self._expected += 1
        self._send_data(self._sent)
        if changed:
            self.on_change()
            self._settle()
        return True

    def _note_acknowledged(self, segment: Segment) -> None:
        fresh = segment.acknowledged - self._acknowledged
        if fresh > 0 or self._sent == self._acknowledged:
            self._timer.failures = 0
        has_progressed = fresh > 0 or segment.limit > self._limit
        self._limit = max(self._limit, segment.limit)
        if fresh > 0:
            was_writable = self.is_writable
            self._end_acknowledged = fresh > len(self._unacknowledged)
            del self._unacknowledged[:fresh]
            self._acknowledged = segment.acknowledged
            self._sent = max(self._sent, self._acknowledged)
            self._timer.acknowledged(self._acknowledged)
            if self.is_writable and not was_writable:
                self.on_change()
        if has_progressed:
            self._timer.progressed()
        self._push()
        self._settle()

    # -- sending -----------------------------------------------------------------------------

    def _open(self, kind: Kind) -> None:
        """Send the first segment of this end, and again until it is answered."""
        self._promised = self._buffer_bytes
        self._kernel.emit(
            Segment(kind, self.local, self.remote, self.connection, limit=self._promised)
        )
        self._timer.sent(0)
        self._timer.start()

    def accept(self, segment: Segment) -> None:
        """Answer the first segment of a new connection."""
        self._limit = segment.limit
        self._open(Kind.ACCEPT)

    def _push(self) -> None:
        """Send what the peer's window has room for, and the end after the last byte."""
        if self.state is not State.OPEN:
            return
        end = self._acknowledged + len(self._unacknowledged)
        while self._sent < min(end, self._limit):
            at = self._sent - self._acknowledged
            count = min(SEGMENT_BYTES, self._limit - self._sent)
            data = bytes(self._unacknowledged[at : at + count])
            sequence = self._sent
            self._sent += len(data)
            is_last = self._ends and self._sent == end
            self._sent += is_last
            self._timer.sent(self._sent)
            self._send_data(sequence, data, is_last=is_last)
        if self._ends and self._sent == end and not self._end_acknowledged:
            self._sent += 1
            self._send_data(end, is_last=True)
        self._timer.start()

    def _send_data(
        self, sequence: int, data: bytes = b"", *, is_last: bool = False, is_probe: bool = False
    ) -> None:
        """Send a segment, which always acknowledges what was received."""
        # A window is never taken back, and closes only as bytes arrive.
        self._promised = max(
            self._promised, self._expected + self._buffer_bytes - len(self.received)
        )
        self._kernel.emit(
            Segment(
                Kind.DATA,
                self.local,
                self.remote,
                self.connection,
                sequence,
                data,
                is_last,
                is_probe,
                self._expected,
                self._promised,
            )
        )

    # -- retransmission ----------------------------------------------------------------------

    def _is_waiting(self) -> bool:
        """Whether the peer must still answer something."""
        if self.state is State.CLOSED:
            return False
        if self.state is not State.OPEN or self._unacknowledged:
            return True
        return self._ends and not self._end_acknowledged

    def _answered(self) -> None:
        """The peer has answered the first segment."""
        self._timer.acknowledged(0)
        self._timer.failures = 0
        self._timer.progressed()

    def _retry(self) -> None:
        if self._timer.failures > self._retries_max:
            self._die(errno.ETIMEDOUT)
        elif self.state is State.CONNECTING:
            self._open(Kind.CONNECT)
        elif self.state is State.ACCEPTING:
            self._open(Kind.ACCEPT)
        else:
            self._sent = self._acknowledged
            if self._unacknowledged and self._limit <= self._sent:
                self._send_data(self._sent, is_probe=True)
            self._push()

    @property
    def _retries_max(self) -> int:
        if self.state is State.CONNECTING:
            return CONNECT_RETRIES_MAX
        if self.state is State.ACCEPTING:
            return ACCEPT_RETRIES_MAX
        return ORPHAN_RETRIES_MAX if self._is_orphan else RETRIES_MAX

    # -- the end -----------------------------------------------------------------------------

    def _settle(self) -> None:
        """Close the connection when both ends are done, or are to be: the peer of an orphan."""
        if self.state is not State.OPEN or not self._end_acknowledged:
            return
        if self.is_ended:
            self.state = State.CLOSED
            self._timer.stop()
            # The acknowledgement of the peer's end may be lost.
            self._kernel.retire(self, LINGER_SECONDS if self._closes_first else 0)
            self.on_change()
        elif self._is_orphan and not self._retires:
            self._retires = True
            self._kernel.retire(self, LINGER_SECONDS)

    def _die(self, error: int) -> None:
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self._error = error
        self._unacknowledged.clear()
        self._timer.stop()
        self._kernel.retire(self, 0)
        self.on_change()
