"""One client's connection: frames in, answers out, in order.

Everything that can be answered at once is, within the event that brought it; all answers of one
event leave in one write. Produce and fetch never hold up what comes behind them; every other
request that takes its time does, as Kafka's clients expect. A connection that cannot go on (its
client does not read, the WAL's buffer is full, too many or too large answers are due, its turn is
over: see fair_queue.py) is simply not read. One whose client leaves half a request or an unread
answer for too long is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, cast

from neve import runtime
from neve.broker.answers import PlainAnswer
from neve.broker.client_timeouts import ClientTimeouts, Waiting
from neve.broker.context import Context
from neve.broker.fair_queue import TURN_SECONDS, Paced, Usage
from neve.broker.framing import Frame, Framing
from neve.broker.outbox import UNREAD, Outbox
from neve.broker.peers import is_gone
from neve.broker.produce import Moment
from neve.broker.produce_requests import ProduceRequests
from neve.broker.router import Handler, Route, Router
from neve.errors import InvalidError, NeveError
from neve.protocol.compiler import Message
from neve.protocol.errors import MalformedError
from neve.protocol.frames import RequestHeader, decode_request_header

if TYPE_CHECKING:
    from neve.broker.server import Server

log = logging.getLogger("neve.broker.connection")

# Clients ask for more records when they have got some. One that asks far ahead and takes nothing
# must not keep many large answers in memory: beyond these it is not read.
FETCHES_MAX = 4
HELD_BYTES_MAX = 1024 * 1024


class Connection(asyncio.BufferedProtocol):
    """Made by the server for each client it accepts."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._router: Router = server.router
        self._framing = Framing(server.scratch, server.settings.request_bytes_max)
        self._out = Outbox(server.metrics, server.unsent, self._abort)
        self._answers = self._out.answers
        self._produces = ProduceRequests(server, self, self._out)
        self._answers_max = server.settings.connection_requests_max
        self._reads: dict[asyncio.Task[None], None] = {}
        self._fetching = 0
        self._busy = False  # a request runs that nothing may overtake
        self._waits_for_buffer = False
        self._waits_for_turn = False
        self._stopped = False  # the broker stops: no more requests
        self._corked = False
        self._reading = True
        self._closing = False
        self.usage = Usage()
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.peer = self.address = ""
        self._now = Moment(runtime.monotonic(), runtime.now_ms())
        self._patience = ClientTimeouts(self._now.monotonic)

    # -- the transport's side ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = self._out.to = cast(asyncio.Transport, transport)
        # Written at once, and not after whatever else became ready: we gather answers ourselves.
        self._transport.set_write_buffer_limits(high=0)
        name = transport.get_extra_info("peername")
        self.address, port = name[:2] if name else ("a client that is gone", 0)
        self.peer = f"{self.address}:{port}"
        if not self._server.opened(self):
            self._closing = True
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if not self._closing:
            self._closing = True
            self._server.metrics.closed("by-client")
        self._server.closed(self)
        self._framing.close()
        self._out.clear()
        for task in list(self._reads):
            task.cancel()  # nobody is left to read what it waits for

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._framing.space(self._server.turns.receive_bytes_max)

    def buffer_updated(self, nbytes: int) -> None:
        if not self._framing.pending:
            self._patience.request_since = runtime.monotonic()
        self._server.metrics.bytes_in += nbytes
        if self._framing.received(nbytes):
            self._serve()
        else:
            self._patience.active_at = runtime.monotonic()

    def eof_received(self) -> bool:
        return False  # nobody is there to read an answer

    def pause_writing(self) -> None:
        self._out.full = True

    def resume_writing(self) -> None:
        self._out.full = False
        self._out.note_unsent(0)
        self._go_on()

    # -- requests ----------------------------------------------------------------------------

    @property
    def _blocked(self) -> bool:
        return bool(
            self._busy
            or self._out.full
            or self._produces.blocked
            or self._waits_for_buffer
            or self._waits_for_turn
            or self._stopped
            or self._closing
            or len(self._answers) >= self._answers_max
            or (self._fetching and self._asks_enough)
            or self._out.held_bytes >= HELD_BYTES_MAX
        )

    @property
    def _asks_enough(self) -> bool:
        """Whether one more fetch would be too much, now that there are some."""
        room = self._server.unsent.room_bytes(is_reader=self._out.is_reader)
        return self._fetching >= FETCHES_MAX or not room

    def _serve(self, turn_ends_at: float | None = None) -> None:
        """Cut frames and handle them, as far as this connection may go."""
        self._now = Moment(runtime.monotonic(), runtime.now_ms())
        self._patience.active_at = self._now.monotonic
        if turn_ends_at is None:
            turn_ends_at = self._server.turns.begin(self._now.monotonic)
        if turn_ends_at is None:
            self._wait_for_turn()
            turn_ends_at = 0.0
        # What held us up may be over as soon as the answers are on their way.
        while self._serve_some(turn_ends_at) and not self._blocked:
            self._framing.resume()
        if turn_ends_at:
            self.usage.add(runtime.monotonic() - self._now.monotonic)
        self._read_as_allowed()

    def _serve_some(self, turn_ends_at: float) -> bool:
        """Handle frames and send what is ready; whether there may be more to handle."""
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
                self._patience.request_since = self._patience.active_at
                self._request(frame)
                if (late_seconds := runtime.monotonic() - turn_ends_at) > 0:
                    self._wait_for_turn(late_seconds)
        except NeveError as error:
            self._refuse(error)
        except Exception:
            self.fail("a request")
        finally:
            self._framing.settle()
            self._corked = False
        self._flush()
        return held_up and self._framing.pending

    def _wait_for_turn(self, late_seconds: float = 0.0) -> None:
        self._waits_for_turn = True
        self._server.turns.wait(self, late_seconds)

    def _go_on(self, turn_ends_at: float | None = None) -> None:
        """Handle what had to wait, if it need not any more."""
        if not self._closing and not self._blocked and not self._corked:
            self._framing.resume()
            self._serve(turn_ends_at)

    def _read_as_allowed(self) -> None:
        if self._closing:
            return
        if self._blocked and self._reading:
            self._reading = False
            self._transport.pause_reading()
        elif not self._blocked and not self._reading:
            self._reading = True
            self._patience.request_since = self._now.monotonic  # it could send nothing before
            self._transport.resume_reading()

    def _request(self, frame: Frame) -> None:
        keeps_frame = False
        try:
            header = decode_request_header(frame.data)
            route = self._router.find(header)
            if route is None:
                self._unsupported(header)
            elif route.handle is not None:
                self._handle(frame, header, route, route.handle)
            else:
                keeps_frame = True
        finally:
            if not keeps_frame:
                self._server.scratch.release(frame)
        if keeps_frame:
            self._produces.take(frame, header, self._now)

    def _unsupported(self, header: RequestHeader) -> None:
        """Kafka closes the connection; only the question for versions has an answer to all."""
        parts = self._router.versions_for_unknown(header)
        if parts is None:
            raise MalformedError(
                f"api {header.api_key} in version {header.api_version} is not supported"
            )
        self._out.add_made(parts)

    def _handle(self, frame: Frame, header: RequestHeader, route: Route, handle: Handler) -> None:
        context = Context(
            header.api_version, header.client_id, self.peer, is_reader=self._out.is_reader
        )
        request = route.api.Request.decode(frame.data, header.api_version, header.end)
        started = runtime.monotonic()
        result = handle(self._server.broker, request, context)
        if isinstance(result, Message):
            self._out.add_made(route.frame(header, result))
            self._answered_by(route, result, started)
            return
        answer = PlainAnswer(owed=not route.waits_for_others)
        self._answers.append(answer)
        self._busy = not route.may_be_overtaken
        self._fetching += route.may_be_overtaken
        task = self._server.tasks.start(self._finish(answer, result, route, header, started))
        # Cancelled before its first step, a task does not even begin what it was to wait for.
        task.add_done_callback(lambda _: result.close())
        if route.only_reads:
            self._reads[task] = None
            task.add_done_callback(self._reads.pop)

    async def _finish(
        self,
        answer: PlainAnswer,
        work: Coroutine[object, None, Message],
        route: Route,
        header: RequestHeader,
        started: float,
    ) -> None:
        paced = Paced(route.finish(header, work), self._server.turns, self)
        try:
            response, parts = await paced
        except Exception:
            self.fail(route.api.name)
            return
        self._answered_by(route, response, started)
        if self._closing:
            return
        self._out.complete(answer, parts)
        if route.may_be_overtaken:
            self._fetching -= 1
            throttle_ms: int = getattr(response, "throttle_time_ms", 0)
            if throttle_ms and not self._waits_for_turn:
                self._waits_for_turn = True  # as in Kafka, since clients need not heed it
                self._server.turns.mute(self, throttle_ms / 1000)
        else:
            self._busy = False
            if (late_seconds := paced.seconds - TURN_SECONDS) > 0 and not self._waits_for_turn:
                self._wait_for_turn(late_seconds)
        self.answered()

    def _answered_by(self, route: Route, response: Message, started: float) -> None:
        seconds, error = runtime.monotonic() - started, getattr(response, "error_code", 0)
        self._server.metrics.answered(route.api.key, seconds, error)

    def fail(self, what: str) -> None:
        """A mistake of ours: the client is told by a closed connection, we by the log."""
        log.exception("%s: %s failed: closing the connection", self.peer, what)
        self._close("handler-failed")

    # -- going on ----------------------------------------------------------------------------

    def room_again(self) -> None:
        """The WAL's buffer has room."""
        self._produces.room_again()
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
        """Answer what waits for a commit beyond its time-out."""
        if self._out.give_up_late(now):
            self.answered()

    def answered(self, _: object = None) -> None:
        """Send what is ready, and go on with what had to wait for it."""
        if self._closing or self._corked:
            return
        self._flush()
        self._go_on()
        self._read_as_allowed()

    def _flush(self) -> None:
        if self._closing:
            return
        try:
            self._out.flush()
        except Exception:
            self.fail("an answer")

    # -- the end -----------------------------------------------------------------------------

    def expire(self, now: float, idle_seconds: float) -> None:
        """Close it if its client has kept us waiting for too long, or is gone."""
        if not self._reading and not self._closing and is_gone(self._transport):
            self._abort("by-client")
            return
        unsent = self._transport.get_write_buffer_size()
        if self._patience.saw_unsent(unsent, now) and self._out.full:
            self._out.note_unsent(unsent)
        waiting = self._waiting
        if not self._patience.is_over(waiting, now, idle_seconds):
            return
        if waiting is Waiting.REST_OF_REQUEST:
            self._refuse(InvalidError(f"half a request after {idle_seconds:.0f} s"))
        elif waiting is Waiting.A_REQUEST:
            self.close("idle")
        else:
            self._abort(UNREAD)

    def judge_pace(self, now: float, bytes_per_second: float) -> None:
        """Close it if a large request comes in more slowly than this: others wait for its room.

        One that is not read for a reason of ours is not to blame.
        """
        received_bytes = self._framing.receiving_bytes
        if received_bytes is None or (self._blocked and not self._out.full):
            return
        if self._patience.is_too_slow(received_bytes, now, bytes_per_second):
            self._refuse(InvalidError("a large request came too slowly while others waited"))

    @property
    def _waiting(self) -> Waiting:
        if self._closing:
            return Waiting.CLOSE
        if self._out.full:
            return Waiting.TAKE_ANSWERS
        if self._answers or self._blocked:
            return Waiting.NOTHING
        return Waiting.REST_OF_REQUEST if self._framing.pending else Waiting.A_REQUEST

    @property
    def owes(self) -> bool:
        """Whether a request was taken that has to be answered before the end, and is not."""
        return any(answer.owed for answer in self._answers)

    def _refuse(self, error: NeveError) -> None:
        self._server.complain(self.peer, error)
        self._flush()
        self._close("bad-request")

    def _close(self, reason: str) -> None:
        if not self._closing:
            self._closing = True
            self._patience.active_at = runtime.monotonic()
            self._server.metrics.closed(reason)
            self._transport.close()

    def _abort(self, reason: str) -> None:
        self._server.aborted(self.peer, reason)
        self._close(reason)
        self._transport.abort()

    def close(self, reason: str) -> None:
        """End it from our side, after what is answered has been sent."""
        self._flush()
        self._close(reason)

    def stop_reading(self) -> None:
        """Take no further requests; those that were taken are answered."""
        self._stopped = True
        self._read_as_allowed()
