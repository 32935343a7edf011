"""Listening for Kafka's clients, and what all their connections share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import deque
from typing import TYPE_CHECKING

from neve import runtime
from neve.broker.buffers import BufferPool
from neve.broker.client_timeouts import LINGER_SECONDS
from neve.broker.connection import Connection
from neve.broker.descriptors import connections_allowed
from neve.broker.fair_queue import FairQueue
from neve.broker.framing import Scratch
from neve.broker.receive_queue import ReceiveQueue
from neve.broker.recompression import Recompression
from neve.broker.refused_records import UNPACKED_AT_ONCE_MAX
from neve.broker.response_queue import UNREAD
from neve.broker.router import Router
from neve.errors import NeveError

if TYPE_CHECKING:
    from neve.broker.broker import Broker

log = logging.getLogger("neve.broker")

# How late a time-out may be.
SWEEP_SECONDS = 0.25
_BACKLOG = 512


class Server:
    """Every connection of one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.settings = broker.settings.broker
        self.metrics = broker.metrics
        self.router = Router()
        self.unsent = broker.unsent
        self.scratch = Scratch(
            BufferPool(self.settings.receive_pool_bytes), self.settings.receiving_bytes_max
        )
        self.scratch.on_room = self._buffers_came_back
        self.unpacking = runtime.ThreadPool(UNPACKED_AT_ONCE_MAX, "unpack")
        self.recompression = Recompression(broker.node.writer, self.unpacking)
        self.turns = FairQueue()
        self.tasks = runtime.Tasks()
        self._connections: dict[Connection, None] = {}
        self._connections_max = connections_allowed(broker.settings)
        self._by_address: dict[str, int] = {}
        self._listener: asyncio.Server | None = None
        self._is_stopping = False
        self.receiving = ReceiveQueue(self.scratch)
        self._room_wanted: deque[Connection] = deque()
        self._room: asyncio.Task[None] | None = None

    async def listen(self, where: socket.socket) -> None:
        """Accept clients on a bound socket from now on."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: Connection(self), sock=where, backlog=_BACKLOG
        )
        self.tasks.start(self._sweep(), name="sweep")

    # -- connections -------------------------------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        """Whether one more is welcome."""
        if self._is_stopping:
            return False
        address, count = connection.address, len(self._connections)
        of_address = self._by_address.get(address, 0)
        if self._listener is None or count >= self._connections_max:
            self._refuse(address, f"{count} connections are open", "broker.connections.max")
            return False
        if of_address >= self.settings.address_connections_max:
            bound = "broker.connections.per.address.max"
            self._refuse(address, f"{of_address} connections from it are open", bound)
            return False
        self.metrics.connections_accepted += 1
        self.metrics.connections_open += 1
        self._connections[connection] = None
        self._by_address[address] = of_address + 1
        return True

    def _refuse(self, address: str, reason: str, bound: str) -> None:
        self.metrics.connections_refused += 1
        self.broker.complaints.warning(address, bound, f"refused: {reason} ({bound})")

    def closed(self, connection: Connection) -> None:
        self.receiving.forget(connection)
        if self._connections.pop(connection, False) is None:
            self.metrics.connections_open -= 1
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def complain(self, peer: str, error: NeveError) -> None:
        """A client sent what cannot be answered."""
        self._complain(peer, "bad request", f"closed: {error}")

    def aborted(self, peer: str, reason: str) -> None:
        """A connection is closed at once, with what was not sent."""
        if reason == UNREAD:
            self._complain(
                peer,
                "unread answers",
                "closed: it does not read its answers (fetch.unsent.bytes bounds all that clients "
                f"have yet to take: {self.unsent.share.bytes_max})",
            )

    def _complain(self, peer: str, subject: str, message: str) -> None:
        self.broker.complaints.warning(peer.rpartition(":")[0], subject, message)

    # -- back pressure -----------------------------------------------------------------------

    def wait_for_room(self, connection: Connection) -> None:
        """Tell this connection when the WAL's buffer has room again, in its turn."""
        self._room_wanted.append(connection)
        if self._room is None:
            self._room = self.tasks.start(self._hand_out_room(), name="room")

    async def _hand_out_room(self) -> None:
        try:
            while self._room_wanted:
                # Once the stream has ended, what they send is refused at once.
                with contextlib.suppress(NeveError):
                    await self.broker.node.writer.room()
                self._room_wanted.popleft().room_again()
        finally:
            self._room = None

    def _buffers_came_back(self) -> None:
        # Not now: the connection that gave one back is using the scratch.
        if self.receiving:
            asyncio.get_running_loop().call_soon(self.receiving.hand_out)

    # -- time --------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        idle_looked_at = runtime.monotonic()
        while True:
            await runtime.sleep(SWEEP_SECONDS)
            now = runtime.monotonic()
            self.unsent.press()
            for connection in list(self._connections):
                connection.give_up_late(now)
            if self.receiving:
                self._judge_pace(now)
            if now - idle_looked_at >= 1:
                idle_looked_at = now
                idle_seconds = self.settings.connection_idle_ms / 1000
                for connection in list(self._connections):
                    connection.expire(now, idle_seconds)

    def _judge_pace(self, now: float) -> None:
        """Close those that are slow to send what others wait for the room of."""
        self.receiving.hand_out()
        bytes_per_second = self.receiving.minimum_rate(now)
        for connection in list(self._connections):
            connection.judge_pace(now, bytes_per_second)

    # -- the end -----------------------------------------------------------------------------

    async def stop_accepting(self) -> None:
        """No new connection and no new request; what was taken is answered."""
        self._is_stopping = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.stop_reading()

    async def drain(self, seconds: float) -> bool:
        """Wait until every request that was taken is answered, or time is up; whether all are.

        Not for those that wait for other members of a group, or for records.
        """
        ends_at = runtime.monotonic() + seconds
        # A producer may have closed its connection behind what is being recompressed.
        while self.recompression.is_busy or any(each.owes for each in list(self._connections)):
            if runtime.monotonic() >= ends_at:
                return False
            await runtime.sleep(0.01)
        return True

    def close_all(self, reason: str) -> None:
        """Accept and answer nothing more from now on."""
        self._is_stopping = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.close(reason)

    async def close(self, seconds: float) -> None:
        """Close all connections. Clients have up to `seconds` to read the last responses."""
        self.close_all("stopped")
        ends_at = runtime.monotonic() + min(seconds, LINGER_SECONDS)
        while self._connections and runtime.monotonic() < ends_at:
            await runtime.sleep(0.01)
        for connection in list(self._connections):
            connection.abort()
        await self.tasks.close()
        self.unpacking.close()
