"""The produce requests of one connection: decode, recompress if needed, append, await commits.

Requests behind a produce request wait only while its batches are recompressed, so that batches of
one connection are appended in the order in which they were sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from neve.broker.error_codes import error_name
from neve.broker.produce import ReceiveTime, Refusals, produce
from neve.broker.recompression import BatchToRecompress, batches_to_recompress
from neve.broker.response_queue import ResponseQueue
from neve.errors import InvalidError, NeveError
from neve.protocol.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from neve.broker.connection import Connection
    from neve.broker.framing import Frame
    from neve.broker.produce_response import PendingProduce
    from neve.broker.server import Server
    from neve.log.wal.pending import Commit
    from neve.protocol.frames import RequestHeader


class ProduceRequests:
    """Appends the batches of one connection. While `blocked`, it must get no more requests."""

    def __init__(self, server: Server, responses: ResponseQueue) -> None:
        self._server = server
        self._responses = responses
        self._recompressing = False
        self._waits_for_wal = False  # the WAL buffer is full
        self._awaited: Commit | None = None
        self.blocked = False  # while it recompresses, or waits for the WAL

    def take(
        self, connection: Connection, frame: Frame, header: RequestHeader, received: ReceiveTime
    ) -> None:
        """Append the batches of a request, at once unless some must be recompressed.

        Takes ownership of the frame. Raises MalformedError if it does not hold a produce request.
        """
        buffer = frame.buffer
        # Batches are patched in place and kept until they are committed. The scratch is reused.
        data = frame.data if buffer is not None else memoryview(bytearray(frame.data))
        try:
            request = ProduceRequest.decode(data, header.api_version, header.end)
        except NeveError:
            self._server.scratch.release(frame)
            raise
        node = self._server.broker.node
        if node.led.codecs and (batches := batches_to_recompress(node, request)):
            self.blocked = self._recompressing = True

            def append(refused: Refusals) -> None:
                self._append(connection, request, header, received, buffer, refused=refused)

            self._server.tasks.start(self._recompress(connection, batches, append))
        else:
            self._append(connection, request, header, received, buffer)

    async def _recompress(
        self,
        connection: Connection,
        batches: list[BatchToRecompress],
        append: Callable[[Refusals], None],
    ) -> None:
        """Recompress, then append, even if the client has closed the connection by then."""
        try:
            append(await self._server.recompression.run(batches))
        except Exception:
            connection.fail("a produce request")
        self._recompressing = False
        self.blocked = self._waits_for_wal
        connection.response_ready()

    def _append(
        self,
        connection: Connection,
        request: ProduceRequest,
        header: RequestHeader,
        received: ReceiveTime,
        buffer: bytearray | None,
        *,
        refused: Refusals | None = None,
    ) -> None:
        response = produce(self._server.broker, request, header, received, refused)
        if buffer is not None:
            self._server.scratch.pool.give_once_decided(buffer, response.appended)
        if not response.silent:
            self._await_commit(connection, response)
        else:
            self._responses.count_silent(response)
            if response.closes:  # a producer with acks=0 learns of an error in no other way
                failure = f"a request with acks=0 failed: {error_name(response.error)}"
                self._server.log_refusal(connection.peer, InvalidError(failure))
                connection.close("produce-without-acks-failed")
        if self._server.broker.is_full:
            self.blocked = self._waits_for_wal = True
            self._server.wait_for_wal(connection)

    def _await_commit(self, connection: Connection, response: PendingProduce) -> None:
        self._responses.pending.append(response)
        for commit in response.commits:
            # One callback for all requests of this connection whose batches share a WAL object.
            if commit is not self._awaited:
                self._awaited = commit
                commit.then(connection.response_ready)

    def wal_has_room(self) -> None:
        """Note that the WAL buffer has room again."""
        self._waits_for_wal = False
        self.blocked = self._recompressing
