"""The transport of one client connection: when it is read, what it sends, and how it closes.

The connection handles the requests of one read event at once, and sends all responses that are
ready in one write. It stops reading while it is blocked: the client does not read its responses,
the WAL buffer is full, too many or too large responses are pending, or its turn is over (see
fair_queue.py). It closes if the client leaves half a request or an unread response for too long.
requests.py handles the requests.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from neve import runtime
from neve.broker.client_timeouts import ClientTimeouts, Waiting
from neve.broker.context import Client
from neve.broker.fair_queue import Usage
from neve.broker.framing import Framing
from neve.broker.produce import ReceiveTime
from neve.broker.requests import Requests
from neve.broker.response_queue import UNREAD, ResponseQueue
from neve.broker.tcp_state import is_gone
from neve.errors import InvalidError, NeveError

if TYPE_CHECKING:
    from neve.broker.server import Server

log = logging.getLogger("neve.broker.connection")

LINGER_BYTES_MAX = 8 * 1024 * 1024
"""Bytes that are read and discarded while a connection closes: more than a client usually has in
flight, in the kernel's buffers included."""


class Connection(asyncio.BufferedProtocol):
    """The protocol object that the server creates for each accepted client."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._framing = Framing(server.scratch, server.settings.request_bytes_max)
        self._responses = ResponseQueue(server.metrics, server.unsent, self._abort)
        self._requests = Requests(server, self._responses)
        self.client = Client("a client that is gone", 0)
        self._waits_for_buffer = False
        self._waits_for_turn = False
        self._stopped = False  # the broker is stopping: it takes no more requests
        self._corked = False
        self._reading = True
        self.is_closing = False
        self._discarded_bytes = 0  # received after the connection began to close
        self.usage = Usage()
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._now = ReceiveTime(runtime.monotonic(), runtime.now_ms())
        self._timeouts = ClientTimeouts(self._now.monotonic)

    @property
    def peer(self) -> str:
        """The client's host and port, for log lines."""
        return self.client.peer

    @property
    def address(self) -> str:
        """The client's host."""
        return self.client.host

    # -- called by the transport -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._responses.to = cast(asyncio.Transport, transport)
        # Responses are joined before they are written, so the transport need not collect them.
        self._transport.set_write_buffer_limits(high=0)
        name = transport.get_extra_info("peername")
        if name:
            self.client = Client(*name[:2])
        if not self._server.admit(self):
            self.is_closing = True
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if not self.is_closing:
            self.is_closing = True
            self._server.metrics.closed("by-client")
        self._server.remove(self)
        self._framing.close()
        self._responses.clear()
        self._requests.cancel_reads()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        if self.is_closing:
            return self._server.scratch.view
        return self._framing.receive_space(self._server.turns.receive_bytes_max)

    def buffer_updated(self, nbytes: int) -> None:
        if self.is_closing:
            self._discard(nbytes)
            return
        if not self._framing.pending:
            self._timeouts.request_since = runtime.monotonic()
        self._server.metrics.bytes_in += nbytes
        if self._framing.received(nbytes):
            self._serve()
        else:
            self._timeouts.active_at = runtime.monotonic()

    def eof_received(self) -> bool:
        return False  # the transport closes: clients close both directions at once

    def pause_writing(self) -> None:
        self._responses.full = True

    def resume_writing(self) -> None:
        self._responses.full = False
        self._responses.note_unsent(0)
        if self.is_closing:
            # Not in this call: asyncio still uses the transport after it.
            asyncio.get_running_loop().call_soon(self._end_output)
        else:
            self._resume()

    # -- requests ----------------------------------------------------------------------------

    @property
    def _blocked(self) -> bool:
        return (
            self._responses.full
            or self._waits_for_buffer
            or self._waits_for_turn
            or self._stopped
            or self.is_closing
            or self._requests.blocked
        )

    def _serve(self, turn_ends_at: float | None = None) -> None:
        """Handle the received frames until something blocks the connection."""
        self._now = ReceiveTime(runtime.monotonic(), runtime.now_ms())
        self._timeouts.active_at = self._now.monotonic
        if turn_ends_at is None:
            turn_ends_at = self._server.turns.begin(self._now.monotonic)
        if turn_ends_at is None:
            self.wait_for_turn()
            turn_ends_at = 0.0
        # Sending the responses may unblock the connection.
        while self._serve_some(turn_ends_at) and not self._blocked:
            self._framing.resume()
        if turn_ends_at:
            self.usage.add(runtime.monotonic() - self._now.monotonic)
        self._update_reading()

    def _serve_some(self, turn_ends_at: float) -> bool:
        """Handle frames and send the ready responses. Returns True if frames may be left."""
        self._corked = True
        was_blocked = False
        try:
            while not (was_blocked := self._blocked):
                frame = self._framing.next()
                if frame is None:
                    if request_bytes := self._framing.awaited_bytes:
                        self._waits_for_buffer = True
                        self._server.receiving.wait(self, request_bytes)
                    break
                self._timeouts.request_since = self._timeouts.active_at
                self._requests.take(self, frame, self._now)
                if (late_seconds := runtime.monotonic() - turn_ends_at) > 0:
                    self.wait_for_turn(late_seconds)
        except NeveError as error:
            self._refuse(error)
        except Exception:
            self.fail("a request")
        finally:
            self._framing.settle()
            self._corked = False
        self._flush()
        return was_blocked and self._framing.pending

    def wait_for_turn(self, late_seconds: float = 0.0) -> None:
        """Handle no more requests until this connection's next turn."""
        if not self._waits_for_turn:
            self._waits_for_turn = True
            self._server.turns.wait(self, late_seconds)

    def throttle(self, seconds: float) -> None:
        """Handle no more requests for `seconds`."""
        if not self._waits_for_turn:
            self._waits_for_turn = True
            self._server.turns.wait_later(self, seconds)

    def _resume(self, turn_ends_at: float | None = None) -> None:
        """Handle the frames that had to wait, unless the connection is still blocked."""
        if not self.is_closing and not self._blocked and not self._corked:
            self._framing.resume()
            self._serve(turn_ends_at)

    def _update_reading(self) -> None:
        """Read from the socket unless the connection is blocked."""
        if self.is_closing:
            return
        if self._blocked and self._reading:
            self._reading = False
            self._transport.pause_reading()
        elif not self._blocked and not self._reading:
            self._reading = True
            self._timeouts.request_since = self._now.monotonic  # nothing was read before
            self._transport.resume_reading()

    def fail(self, what: str) -> None:
        """Log the current exception, a bug in the broker, and close the connection."""
        log.exception("%s: %s failed: closing the connection", self.peer, what)
        self._close("handler-failed")

    # -- resuming ----------------------------------------------------------------------------

    def wal_has_room(self) -> None:
        """Resume after the WAL buffer was full."""
        self._requests.wal_has_room()
        self._resume()

    def receive_buffer_free(self) -> None:
        """Resume after the next request waited for a receive buffer."""
        self._waits_for_buffer = False
        self._resume()

    def take_turn(self, ends_at: float) -> None:
        """Handle the requests that waited for this connection's turn."""
        self._waits_for_turn = False
        self._resume(ends_at)

    def time_out_produces(self, now: float) -> None:
        """Respond to the produce requests whose batches were not committed in time."""
        if self._responses.time_out_produces(now):
            self.response_ready()

    def response_ready(self, _: object = None) -> None:
        """Send the ready responses, and resume if they blocked the connection."""
        if self.is_closing or self._corked:
            return
        self._flush()
        self._resume()
        self._update_reading()

    def _flush(self) -> None:
        if self.is_closing:
            return
        try:
            self._responses.flush()
        except Exception:
            self.fail("a response")

    # -- closing -----------------------------------------------------------------------------

    def expire(self, now: float, idle_seconds: float) -> None:
        """Close the connection if its client is gone, or has kept the broker waiting too long."""
        if not self._reading and not self.is_closing and is_gone(self._transport):
            self._abort("by-client")
            return
        unsent = self._transport.get_write_buffer_size()
        if self._timeouts.saw_unsent(unsent, now) and self._responses.full:
            self._responses.note_unsent(unsent)
        waiting = self._waiting
        if not self._timeouts.is_over(waiting, now, idle_seconds):
            return
        if waiting is Waiting.REST_OF_REQUEST:
            self._refuse(InvalidError(f"a request was not complete after {idle_seconds:.0f} s"))
        elif waiting is Waiting.A_REQUEST:
            self.close("idle")
        elif waiting is Waiting.CLOSE:
            self.abort()
        else:
            self._abort(UNREAD)

    def check_receive_rate(self, now: float, bytes_per_second: float) -> None:
        """Close the connection if a large request arrives more slowly than this.

        Only a client that could send counts: not while the broker does not read the connection.
        """
        received_bytes = self._framing.receiving_bytes
        if received_bytes is None or (self._blocked and not self._responses.full):
            return
        if self._timeouts.is_too_slow(received_bytes, now, bytes_per_second):
            self._refuse(
                InvalidError(
                    "a large request arrived too slowly while others waited for its memory"
                )
            )

    @property
    def _waiting(self) -> Waiting:
        if self.is_closing:
            return Waiting.READ_LAST_RESPONSES if self._responses.full else Waiting.CLOSE
        if self._responses.full:
            return Waiting.READ_RESPONSES
        if self._responses.pending or self._blocked:
            return Waiting.NOTHING
        return Waiting.REST_OF_REQUEST if self._framing.pending else Waiting.A_REQUEST

    @property
    def owes_response(self) -> bool:
        """Whether the broker must respond to a request of this client before it stops."""
        return any(response.owed for response in self._responses.pending)

    def _refuse(self, error: NeveError) -> None:
        self._server.log_refusal(self.peer, error)
        self._flush()
        self._close("bad-request")

    def _close(self, reason: str) -> None:
        """Close the connection without resetting it.

        The kernel resets a connection that is closed with unread bytes, and the client may then
        lose responses that were sent. So the writing side is shut down first, and what the client
        still sends is discarded until it closes its end: for at most `LINGER_SECONDS`, and at most
        `LINGER_BYTES_MAX`.
        """
        if self.is_closing:
            return
        self._begin_close(reason)
        self._framing.close()
        self._end_output()
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()

    def _begin_close(self, reason: str) -> None:
        self.is_closing = True
        self._timeouts.active_at = runtime.monotonic()
        self._server.metrics.closed(reason)

    def _end_output(self) -> None:
        """Shut down the writing side, once the last response has left."""
        if self._responses.full or self._transport.is_closing():
            return
        try:
            self._transport.write_eof()
        except OSError:  # the client has reset the connection
            self.abort()

    def _discard(self, count: int) -> None:
        self._discarded_bytes += count
        if self._discarded_bytes > LINGER_BYTES_MAX:
            self.abort()

    def _abort(self, reason: str) -> None:
        self._server.log_abort(self.peer, reason)
        if not self.is_closing:
            self._begin_close(reason)
        self.abort()

    def abort(self) -> None:
        """Close the connection at once, and drop what was not sent."""
        self._transport.abort()

    def close(self, reason: str) -> None:
        """Send the ready responses, then close the connection."""
        self._flush()
        self._close(reason)

    def stop_reading(self) -> None:
        """Take no further requests. Requests already taken get their responses."""
        self._stopped = True
        self._update_reading()
