"""One client's connection: frames in, answers out, in order.

Everything that can be answered at once is, within the event that brought it; all answers of one
event leave in one write. Produce and fetch never hold up what comes behind them; every other
request that takes its time does, as Kafka's clients expect. A connection that cannot go on (its
client does not read, the WAL's buffer is full, too many answers are due) is simply not read.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from neve import runtime
from neve.broker.answers import Answer, PlainAnswer
from neve.broker.framing import Frame, Framing
from neve.broker.produce import ProduceAnswer, produce
from neve.broker.router import PRODUCE, Context, Route, Router
from neve.errors import NeveError
from neve.protocol.errors import MalformedError
from neve.protocol.frames import RequestHeader, decode_request_header, response_frame
from neve.store.port import Buffer

if TYPE_CHECKING:
    from neve.broker.server import Server
    from neve.log.wal.pending import Commit

log = logging.getLogger("neve.broker.connection")

# Small answers are joined into one write; records go out from where they lie.
JOIN_BYTES_MAX = 64 * 1024
# A gather write of more parts is slower than joining them.
PARTS_MAX = 256


class Connection(asyncio.BufferedProtocol):
    """Made by the server for each client it accepts."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._router: Router = server.router
        self._framing = Framing(server.scratch, server.settings.request_bytes_max)
        self._answers: deque[Answer] = deque()
        self._answers_max = server.settings.connection_requests_max
        self._fetches: dict[asyncio.Task[None], None] = {}
        self._busy = False  # a request runs that nothing may overtake
        self._full = False  # its client does not read what we answer
        self._waits_for_room = False
        self._stopped = False  # the broker stops: no more requests
        self._corked = False
        self._reading = True
        self._closing = False
        self._awaited: Commit | None = None
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.peer = ""
        self.active_at = 0.0

    # -- the transport's side ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.active_at = runtime.monotonic()
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if name else "?"
        if not self._server.opened(self):
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if not self._closing:
            self._closing = True
            self._server.metrics.closed("by-client")
        self._server.closed(self)
        self._framing.close()
        self._answers.clear()
        for task in list(self._fetches):
            task.cancel()  # nobody is left to read what it waits for

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._framing.space()

    def buffer_updated(self, nbytes: int) -> None:
        self._framing.received(nbytes)
        self._server.metrics.bytes_in += nbytes
        self._serve()

    def eof_received(self) -> bool:
        return False  # nobody is there to read an answer

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._go_on()

    # -- requests ----------------------------------------------------------------------------

    @property
    def _blocked(self) -> bool:
        return (
            self._busy
            or self._full
            or self._waits_for_room
            or self._stopped
            or self._closing
            or len(self._answers) >= self._answers_max
        )

    def _serve(self) -> None:
        """Cut frames and handle them, as far as this connection may go."""
        self._corked = True
        self.active_at = runtime.monotonic()
        try:
            while not self._blocked:
                frame = self._framing.next()
                if frame is None:
                    break
                self._request(frame)
        except NeveError as error:
            self._refuse(error)
        except Exception:
            self._fail("a request")
        finally:
            self._framing.settle()
            self._corked = False
        self._flush()
        self._read_as_allowed()

    def _go_on(self) -> None:
        """Handle what had to wait, if it need not any more."""
        if not self._closing and not self._blocked and not self._corked:
            self._framing.resume()
            self._serve()

    def _read_as_allowed(self) -> None:
        if self._closing:
            return
        if self._blocked and self._reading:
            self._reading = False
            self._transport.pause_reading()
        elif not self._blocked and not self._reading:
            self._reading = True
            self._transport.resume_reading()

    def _request(self, frame: Frame) -> None:
        header = decode_request_header(frame.data)
        route = self._router.find(header)
        if route is None:
            self._unsupported(header)
        elif route.is_produce:
            self._produce(frame, header, route)
        else:
            try:
                self._handle(frame, header, route)
            finally:
                self._release(frame)

    def _release(self, frame: Frame) -> None:
        if frame.buffer is not None:
            self._server.scratch.pool.give(frame.buffer)

    def _unsupported(self, header: RequestHeader) -> None:
        """Kafka closes the connection; only the question for versions has an answer to all."""
        parts = self._router.versions_for_unknown(header)
        if parts is None:
            raise MalformedError(
                f"api {header.api_key} in version {header.api_version} is not supported"
            )
        self._answers.append(_Ready(parts))

    def _handle(self, frame: Frame, header: RequestHeader, route: Route) -> None:
        context = Context(header.api_version, header.client_id, self.peer)
        request = route.api.Request.decode(frame.data, header.api_version, header.end)
        started = runtime.monotonic()
        result = route.handle(self._server.broker, request, context)
        if not inspect.iscoroutine(result):
            parts = route.api.Response.encode(result, header.api_version)
            frame_parts = response_frame(
                route.api, header.api_version, header.correlation_id, parts
            )
            self._answers.append(_Ready(frame_parts))
            self._answered_by(route, result, started)
            return
        answer = PlainAnswer(route.api, header.api_version, header.correlation_id)
        self._answers.append(answer)
        self._busy = not route.may_be_overtaken
        task = self._server.tasks.start(self._finish(answer, result, route, started))
        if route.may_be_overtaken:
            self._fetches[task] = None
            task.add_done_callback(self._fetches.pop)

    async def _finish(self, answer: PlainAnswer, work: Any, route: Route, started: float) -> None:
        try:
            response = await work
        except Exception:
            self._fail(route.api.name)
            return
        answer.complete(response)
        self._answered_by(route, response, started)
        if not route.may_be_overtaken:
            self._busy = False
        self._answered()

    def _answered_by(self, route: Route, response: Any, started: float) -> None:
        error = getattr(response, "error_code", 0)
        self._server.metrics.answered(route.api.key, runtime.monotonic() - started, error)

    def _fail(self, what: str) -> None:
        """A mistake of ours: the client is told by a closed connection, we by the log."""
        log.exception("%s: %s failed: closing the connection", self.peer, what)
        self._close("handler-failed")

    # -- producing ---------------------------------------------------------------------------

    def _produce(self, frame: Frame, header: RequestHeader, route: Route) -> None:
        buffer = frame.buffer
        # Batches are patched in place and live until they are committed: not in the scratch.
        data = frame.data if buffer is not None else memoryview(bytearray(frame.data))
        request = route.api.Request.decode(data, header.api_version, header.end)
        answer = produce(self._server.broker, request, header)
        if buffer is not None:
            self._give_back_when_committed(buffer, answer)
        if not answer.silent:
            self._await_commit(answer)
        else:
            self._count(answer)
            if answer.closes:
                self._close("produce-without-acks-failed")
        if self._server.broker.is_full:
            self._waits_for_room = True
            self._server.wait_for_room(self)

    def _await_commit(self, answer: ProduceAnswer) -> None:
        self._answers.append(answer)
        for commit in answer.commits:
            # One call back for all requests of this connection that share an object.
            if commit is not self._awaited:
                self._awaited = commit
                commit.then(self._decided)

    def _give_back_when_committed(self, buffer: bytearray, answer: ProduceAnswer) -> None:
        pool = self._server.scratch.pool
        left = len(answer.appended)
        if not left:
            pool.give(buffer)

        def decided(_: object) -> None:
            nonlocal left
            left -= 1
            if not left:
                pool.give(buffer)

        for commit in answer.appended:
            commit.then(decided)

    def _decided(self, _: object) -> None:
        self._answered()

    def room_again(self) -> None:
        """The WAL's buffer has room."""
        self._waits_for_room = False
        self._go_on()

    def give_up_late(self, now: float) -> None:
        """Answer what waits for a commit beyond its time-out. Only the first holds others up."""
        late = False
        while self._answers:
            answer = self._answers[0]
            if not isinstance(answer, ProduceAnswer) or answer.ready or answer.deadline > now:
                break
            answer.give_up()
            late = True
            self._flush()
        if late:
            self._answered()

    # -- answers -----------------------------------------------------------------------------

    def _answered(self) -> None:
        if self._closing or self._corked:
            return
        self._flush()
        self._go_on()
        self._read_as_allowed()

    def _flush(self) -> None:
        answers = self._answers
        if self._closing:
            return
        parts: list[Buffer] = []
        while answers and answers[0].ready:
            answer = answers.popleft()
            parts += answer.frame()
            if type(answer) is ProduceAnswer:
                self._count(answer)
        if not parts:
            return
        size = sum(map(len, parts))
        self._server.metrics.bytes_out += size
        if size <= JOIN_BYTES_MAX or len(parts) > PARTS_MAX:
            self._transport.write(b"".join(parts))
        else:
            self._transport.writelines(parts)

    def _count(self, answer: ProduceAnswer) -> None:
        metrics = self._server.metrics
        seconds = runtime.monotonic() - answer.started
        metrics.answered(PRODUCE, seconds, answer.error)
        if answer.commits and not answer.error:
            metrics.ack.add(seconds)

    # -- the end -----------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        return not self._answers and not self._framing.pending

    @property
    def owes(self) -> bool:
        """Whether a produce request was taken and is not answered."""
        return any(isinstance(answer, ProduceAnswer) for answer in self._answers)

    def _refuse(self, error: NeveError) -> None:
        self._server.complain(self.peer, error)
        self._flush()
        self._close("bad-request")

    def _close(self, reason: str) -> None:
        if not self._closing:
            self._closing = True
            self._server.metrics.closed(reason)
            self._transport.close()

    def close(self, reason: str) -> None:
        """End it from our side, after what is answered has been sent."""
        self._flush()
        self._close(reason)

    def stop_reading(self) -> None:
        """Take no further requests; those that were taken are answered."""
        self._stopped = True
        self._read_as_allowed()


class _Ready:
    """An answer that was there at once."""

    __slots__ = ("_parts",)
    ready = True

    def __init__(self, parts: list[Buffer]) -> None:
        self._parts = parts

    def frame(self) -> list[Buffer]:
        return self._parts
