"""The produce requests of one connection: decode, recompress where needed, append, await commits.

Produce never holds up the requests behind it, except while its batches are recompressed: batches of
one connection are appended in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from neve.broker.error_codes import name_of
from neve.broker.produce import Moment, Refusals, produce
from neve.broker.recompression import ForeignBatch, batches_to_recompress
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
    """What a connection produces. While it is `blocked`, the connection takes no more requests."""

    def __init__(self, server: Server, connection: Connection, responses: ResponseQueue) -> None:
        self._server = server
        self._connection = connection
        self._responses = responses
        self._recompressing = False
        self._waits_for_room = False  # the buffer of the WAL is full
        self._awaited: Commit | None = None

    @property
    def blocked(self) -> bool:
        return self._recompressing or self._waits_for_room

    def take(self, frame: Frame, header: RequestHeader, came: Moment) -> None:
        """Append the batches of a request, at once unless some must be recompressed.

        Takes over the frame. Raises MalformedError if it does not hold a produce request.
        """
        buffer = frame.buffer
        # Batches are patched in place and live until they are committed: not in the scratch.
        data = frame.data if buffer is not None else memoryview(bytearray(frame.data))
        try:
            request = ProduceRequest.decode(data, header.api_version, header.end)
        except NeveError:
            self._server.scratch.release(frame)
            raise
        append = partial(self._append, request, header, came, buffer)
        node = self._server.broker.node
        if node.led.codecs and (foreign := batches_to_recompress(node, request)):
            self._recompressing = True
            self._server.tasks.start(self._recompress(foreign, append))
        else:
            append()

    async def _recompress(
        self, foreign: list[ForeignBatch], append: Callable[[Refusals], None]
    ) -> None:
        """Append once it is done, also if the client has closed the connection meanwhile."""
        try:
            append(await self._server.recompression.run(foreign))
        except Exception:
            self._connection.fail("a produce request")
        self._recompressing = False
        self._connection.answered()

    def _append(
        self,
        request: ProduceRequest,
        header: RequestHeader,
        came: Moment,
        buffer: bytearray | None,
        refused: Refusals | None = None,
    ) -> None:
        answer = produce(self._server.broker, request, header, came, refused)
        if buffer is not None:
            self._server.scratch.pool.give_once_decided(buffer, answer.appended)
        if not answer.silent:
            self._await_commit(answer)
        else:
            self._responses.count_silent(answer)
            if answer.closes:  # the only way to report it to a producer that wants no answers
                failure = f"a request with acks=0 failed: {name_of(answer.error)}"
                self._server.complain(self._connection.peer, InvalidError(failure))
                self._connection.close("produce-without-acks-failed")
        if self._server.broker.is_full:
            self._waits_for_room = True
            self._server.wait_for_room(self._connection)

    def _await_commit(self, answer: PendingProduce) -> None:
        self._responses.pending.append(answer)
        for commit in answer.commits:
            # One call back for all requests of this connection that share an object.
            if commit is not self._awaited:
                self._awaited = commit
                commit.then(self._connection.answered)

    def room_again(self) -> None:
        """The buffer of the WAL has room."""
        self._waits_for_room = False
