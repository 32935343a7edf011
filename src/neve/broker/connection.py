"""One client's connection: what it reads and when, what it sends, and how it ends.

Everything that can be answered at once is, within the event that brought it. All responses of one
event leave in one write. A connection that cannot go on is not read: its client does not read, the
buffer of the WAL is full, too many or too large responses are due, or its turn is over (see
fair_queue.py). A connection whose client leaves half a request or an unread response for too long
is closed. requests.py has what happens to a request.
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
from neve.broker.peers import is_gone
from neve.broker.produce import Moment
from neve.broker.requests import Requests
from neve.broker.response_queue import UNREAD, ResponseQueue
from neve.errors import InvalidError, NeveError

if TYPE_CHECKING:
    from neve.broker.server import Server

log = logging.getLogger("neve.broker.connection")

LINGER_BYTES_MAX = 8 * 1024 * 1024
"""Bytes that are read and discarded while a connection closes: more than a client usually has in
flight, in the kernel's buffers included."""


class Connection(asyncio.BufferedProtocol):
    """Made by the server for each client it accepts."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._framing = Framing(server.scratch, server.settings.request_bytes_max)
        self._responses = ResponseQueue(server.metrics, server.unsent, self._abort)
        self._requests = Requests(server, self, self._responses)
        self._waits_for_buffer = False
        self._waits_for_turn = False
        self._stopped = False  # the broker stops: no more requests
        self._corked = False
        self._reading = True
        self.is_closing = False
        self._discarded_bytes = 0  # since it is closing
        self.usage = Usage()
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._now = Moment(runtime.monotonic(), runtime.now_ms())
        self._timeouts = ClientTimeouts(self._now.monotonic)

    @property
    def peer(self) -> str:
        """The client's host and port, for log lines."""
        return self._requests.client.peer

    @property
    def address(self) -> str:
        """The client's host."""
        return self._requests.client.host

    # -- the transport's side ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._responses.to = cast(asyncio.Transport, transport)
        # Written at once, and not after whatever else became ready: we gather answers ourselves.
        self._transport.set_write_buffer_limits(high=0)
        name = transport.get_extra_info("peername")
        if name:
            self._requests.client = Client(*name[:2])
        if not self._server.opened(self):
            self.is_closing = True
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if not self.is_closing:
            self.is_closing = True
            self._server.metrics.closed("by-client")
        self._server.closed(self)
        self._framing.close()
        self._responses.clear()
        self._requests.cancel_reads()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        if self.is_closing:
            return self._server.scratch.view
        return self._framing.space(self._server.turns.receive_bytes_max)

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
        return False  # the client does not read any more

    def pause_writing(self) -> None:
        self._responses.full = True

    def resume_writing(self) -> None:
        self._responses.full = False
        self._responses.note_unsent(0)
        if self.is_closing:
            # Not within this call: asyncio goes on to use the transport.
            asyncio.get_running_loop().call_soon(self._end_output)
        else:
            self._go_on()

    # -- requests ----------------------------------------------------------------------------

    @property
    def _blocked(self) -> bool:
        return bool(
            self._responses.full
            or self._waits_for_buffer
            or self._waits_for_turn
            or self._stopped
            or self.is_closing
            or self._requests.blocked
        )

    def _serve(self, turn_ends_at: float | None = None) -> None:
        """Handle the frames that have come, until something blocks the connection."""
        self._now = Moment(runtime.monotonic(), runtime.now_ms())
        self._timeouts.active_at = self._now.monotonic
        if turn_ends_at is None:
            turn_ends_at = self._server.turns.begin(self._now.monotonic)
        if turn_ends_at is None:
            self.wait_for_turn()
            turn_ends_at = 0.0
        # What blocked the connection may be over once the responses are on their way.
        while self._serve_some(turn_ends_at) and not self._blocked:
            self._framing.resume()
        if turn_ends_at:
            self.usage.add(runtime.monotonic() - self._now.monotonic)
        self._read_as_allowed()

    def _serve_some(self, turn_ends_at: float) -> bool:
        """Handle frames and send what is ready. Returns whether there may be more to handle."""
        self._corked = True
        held_up = False
        try:
            while not (held_up := self._blocked):
                frame = self._framing.next()
                if frame is None:
                    if wanted_bytes := self._framing.wanted_bytes:
                        self._waits_for_buffer = True
                        self._server.receiving.wait(self, wanted_bytes)
                    break
                self._timeouts.request_since = self._timeouts.active_at
                self._requests.take(frame, self._now)
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
        return held_up and self._framing.pending

    def wait_for_turn(self, late_seconds: float = 0.0) -> None:
        """Handle no more requests until the event loop has time for this connection."""
        if not self._waits_for_turn:
            self._waits_for_turn = True
            self._server.turns.wait(self, late_seconds)

    def mute(self, seconds: float) -> None:
        """Handle no more requests for so long."""
        if not self._waits_for_turn:
            self._waits_for_turn = True
            self._server.turns.mute(self, seconds)

    def _go_on(self, turn_ends_at: float | None = None) -> None:
        """Handle what had to wait, unless something still blocks the connection."""
        if not self.is_closing and not self._blocked and not self._corked:
            self._framing.resume()
            self._serve(turn_ends_at)

    def _read_as_allowed(self) -> None:
        if self.is_closing:
            return
        if self._blocked and self._reading:
            self._reading = False
            self._transport.pause_reading()
        elif not self._blocked and not self._reading:
            self._reading = True
            self._timeouts.request_since = self._now.monotonic  # it could send nothing before
            self._transport.resume_reading()

    def fail(self, what: str) -> None:
        """Close the connection after a bug in the broker, which is logged."""
        log.exception("%s: %s failed: closing the connection", self.peer, what)
        self._close("handler-failed")

    # -- going on ----------------------------------------------------------------------------

    def room_again(self) -> None:
        """The WAL's buffer has room."""
        self._requests.room_again()
        self._go_on()

    def buffer_again(self) -> None:
        """Less is being received than was: there may be a buffer for our request."""
        self._waits_for_buffer = False
        self._go_on()

    def take_turn(self, ends_at: float) -> None:
        """The event loop has time for this connection again."""
        self._waits_for_turn = False
        self._go_on(ends_at)

    def give_up_late(self, now: float) -> None:
        """Answer the requests whose commit has taken longer than their time-out."""
        if self._responses.give_up_late(now):
            self.answered()

    def answered(self, _: object = None) -> None:
        """Send what is ready, and go on with what had to wait for it."""
        if self.is_closing or self._corked:
            return
        self._flush()
        self._go_on()
        self._read_as_allowed()

    def _flush(self) -> None:
        if self.is_closing:
            return
        try:
            self._responses.flush()
        except Exception:
            self.fail("an answer")

    # -- the end -----------------------------------------------------------------------------

    def expire(self, now: float, idle_seconds: float) -> None:
        """Close it if its client has kept us waiting for too long, or is gone."""
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
            self._refuse(InvalidError(f"half a request after {idle_seconds:.0f} s"))
        elif waiting is Waiting.A_REQUEST:
            self.close("idle")
        elif waiting is Waiting.CLOSE:
            self.abort()
        else:
            self._abort(UNREAD)

    def judge_pace(self, now: float, bytes_per_second: float) -> None:
        """Close it if a large request comes in more slowly than this: others wait for its room.

        One that is not read for a reason of ours is not to blame.
        """
        received_bytes = self._framing.receiving_bytes
        if received_bytes is None or (self._blocked and not self._responses.full):
            return
        if self._timeouts.is_too_slow(received_bytes, now, bytes_per_second):
            self._refuse(InvalidError("a large request came too slowly while others waited"))

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
    def owes(self) -> bool:
        """Whether the broker must not stop before it has responded to a request of this client."""
        return any(response.owed for response in self._responses.pending)

    def _refuse(self, error: NeveError) -> None:
        self._server.complain(self.peer, error)
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
        self._server.aborted(self.peer, reason)
        if not self.is_closing:
            self._begin_close(reason)
        self.abort()

    def abort(self) -> None:
        """Close the connection at once, with what was not sent."""
        self._transport.abort()

    def close(self, reason: str) -> None:
        """End it from our side, after what is answered has been sent."""
        self._flush()
        self._close(reason)

    def stop_reading(self) -> None:
        """Take no further requests; those that were taken are answered."""
        self._stopped = True
        self._read_as_allowed()
