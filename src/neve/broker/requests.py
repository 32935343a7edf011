"""The requests of one connection, from frame to response.

A request passes these stages: decode its header and find its route, authorize, decode, handle,
encode, throttle. ProduceRequests handles produce requests, and encodes the response once the
batches are committed. A stage that raises a NeveError closes the connection.

A message of another broker is authenticated before it is decoded.

Requests behind a produce or fetch request do not wait for it. Requests behind any other wait until
it is done, as Kafka's clients expect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from neve import runtime
from neve.broker.access import authorize
from neve.broker.context import Context
from neve.broker.error_codes import code_of
from neve.broker.fair_queue import TURN_SECONDS, Paced
from neve.broker.peer_channel import PeerChannel
from neve.broker.produce import ReceiveTime
from neve.broker.produce_requests import ProduceRequests
from neve.broker.response_queue import HandlerResponse, ResponseQueue
from neve.broker.router import Handler, Route
from neve.cluster.peer_auth import PeerAuthenticationError
from neve.protocol.compiler import Message
from neve.protocol.errors import MalformedError
from neve.protocol.frames import RequestHeader, decode_request_header

if TYPE_CHECKING:
    from neve.broker.connection import Connection
    from neve.broker.framing import Frame
    from neve.broker.server import Server

# A client that sends many fetches ahead and reads no response must not keep many large responses
# in memory. Beyond these limits its connection is not read.
FETCHES_MAX = 4
HELD_BYTES_MAX = 1024 * 1024


class Requests:
    """The requests of a connection that are not finished.

    It keeps no reference to its connection. With a reference cycle, closed connections would live
    until the garbage collector runs, which then stops the broker while it frees thousands of them.
    """

    def __init__(self, server: Server, responses: ResponseQueue) -> None:
        self._server = server
        self._responses = responses
        self._router = server.router
        self._produces = ProduceRequests(server, responses)
        self._requests_max = server.settings.connection_requests_max
        self._reads: dict[asyncio.Task[None], None] = {}
        self._peer = PeerChannel()
        self._fetching = 0
        self._busy = False  # a request is running that is not pipelined

    @property
    def blocked(self) -> bool:
        """Whether the next request must wait."""
        return (
            self._busy
            or self._produces.blocked
            or len(self._responses.pending) >= self._requests_max
            or (self._fetching > 0 and self._fetches_enough)
            or self._responses.held_bytes >= HELD_BYTES_MAX
        )

    @property
    def _fetches_enough(self) -> bool:
        """Whether the running fetches are as many as this connection may have."""
        room = self._server.unsent.room_bytes(client_keeps_up=self._responses.client_keeps_up)
        return self._fetching >= FETCHES_MAX or not room

    def wal_has_room(self) -> None:
        """Note that the WAL buffer has room again."""
        self._produces.wal_has_room()

    def cancel_reads(self) -> None:
        """Cancel the requests that only read: their client is gone."""
        for task in list(self._reads):
            task.cancel()

    def take(self, connection: Connection, frame: Frame, received: ReceiveTime) -> None:
        """Handle one request, at once or in a task of its own.

        Takes ownership of the frame. Raises NeveError if the connection must be closed.
        """
        is_produce = False
        try:
            header = decode_request_header(frame.data)
            route = self._router.find(header)
            if route is None:
                self._respond_unsupported(header)
                return
            authorize(route, connection.client.principal)
            if route.handle is None:
                is_produce = True
            else:
                self._handle(connection, frame, header, route, route.handle)
        finally:
            if not is_produce:
                self._server.scratch.release(frame)
        if is_produce:
            self._produces.take(connection, frame, header, received)

    def _respond_unsupported(self, header: RequestHeader) -> None:
        """Respond to ApiVersions in an unknown version, or raise MalformedError as Kafka would."""
        parts = self._router.versions_for_unknown(header)
        if parts is None:
            raise MalformedError(
                f"api {header.api_key} in version {header.api_version} is not supported"
            )
        self._responses.add_ready(parts)

    def _handle(
        self,
        connection: Connection,
        frame: Frame,
        header: RequestHeader,
        route: Route,
        handle: Handler,
    ) -> None:
        version = header.api_version
        keeps_up = self._responses.client_keeps_up
        context = Context(version, header.client_id, connection.client, keeps_up, self._peer)
        data = frame.data
        if route.sealed:
            try:
                data = self._peer.open(data)
            except PeerAuthenticationError as error:
                self._refuse_peer(connection, header, route, error)
                return
        request = route.api.Request.decode(data, version, header.end)
        started = runtime.monotonic()
        result = handle(self._server.broker, request, context)
        if isinstance(result, Message):
            self._responses.add_ready(route.reply(header, result, self._peer))
            self._count(route, result, started)
            return
        pending = HandlerResponse(owed=not route.long_poll)
        self._responses.pending.append(pending)
        self._busy = not route.pipelined
        self._fetching += route.pipelined
        task = self._server.tasks.start(
            self._finish(connection, pending, result, route, header, started=started)
        )
        # A task that is cancelled before its first step never awaits the handler's coroutine.
        task.add_done_callback(lambda _: result.close())
        if route.only_reads:
            self._reads[task] = None
            task.add_done_callback(self._reads.pop)

    def _refuse_peer(
        self,
        connection: Connection,
        header: RequestHeader,
        route: Route,
        error: PeerAuthenticationError,
    ) -> None:
        """Answer a message that no other broker is proven to have sent."""
        self._server.broker.log_not_authentic(connection.address, error)
        response = route.api.Response(error_code=code_of(PeerAuthenticationError))
        self._responses.add_ready(route.frame(header, response))
        self._count(route, response, runtime.monotonic())

    async def _finish(
        self,
        connection: Connection,
        pending: HandlerResponse,
        work: Coroutine[object, None, Message],
        route: Route,
        header: RequestHeader,
        *,
        started: float,
    ) -> None:
        paced = Paced(route.finish(header, work, self._peer), self._server.turns, connection)
        try:
            response, parts = await paced
        except Exception:
            connection.fail(route.api.name)
            return
        self._count(route, response, started)
        if connection.is_closing:
            return
        self._responses.complete(pending, parts)
        if route.pipelined:
            self._fetching -= 1
            throttle(connection, response)
        else:
            self._busy = False
            if (late_seconds := paced.seconds - TURN_SECONDS) > 0:
                connection.wait_for_turn(late_seconds)
        connection.response_ready()

    def _count(self, route: Route, response: Message, started: float) -> None:
        seconds, error = runtime.monotonic() - started, getattr(response, "error_code", 0)
        self._server.metrics.request_completed(route.api.key, seconds, error)


def throttle(connection: Connection, response: Message) -> None:
    """Do not read the connection for as long as the response asks its client to wait.

    Kafka does the same, because clients may ignore the throttle time.
    """
    throttle_ms: int = getattr(response, "throttle_time_ms", 0)
    if throttle_ms:
        connection.throttle(throttle_ms / 1000)
