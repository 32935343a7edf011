"""The listener for Kafka clients, and the state that all connections share."""

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
from neve.broker.invalid_records import UNPACKED_AT_ONCE_MAX
from neve.broker.receive_queue import ReceiveQueue
from neve.broker.recompression import Recompression
from neve.broker.response_queue import UNREAD
from neve.broker.router import Router
from neve.errors import NeveError

if TYPE_CHECKING:
    from neve.broker.broker import Broker

log = logging.getLogger("neve.broker")

# How late a time-out may be noticed.
SWEEP_SECONDS = 0.25
_BACKLOG = 512


class Server:
    """The connections of one broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.settings = broker.settings.broker
        self.metrics = broker.metrics
        self.router = Router()
        self.unsent = broker.unsent
        self.scratch = Scratch(
            BufferPool(self.settings.receive_pool_bytes), self.settings.receiving_bytes_max
        )
        self.scratch.on_room = self._buffers_freed
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
        self._waiting_for_wal: deque[Connection] = deque()
        self._wal_waiter: asyncio.Task[None] | None = None

    async def listen(self, where: socket.socket) -> None:
        """Start to accept clients on a bound socket."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(
            lambda: Connection(self), sock=where, backlog=_BACKLOG
        )
        self.tasks.start(self._sweep(), name="sweep")

    # -- connections -------------------------------------------------------------------------

    def admit(self, connection: Connection) -> bool:
        """Add a new connection. Returns False if it is over a limit, or the broker is stopping."""
        if self._is_stopping:
            return False
        address, count = connection.address, len(self._connections)
        from_address = self._by_address.get(address, 0)
        if self._listener is None or count >= self._connections_max:
            self._refuse(address, f"{count} connections are open", "broker.connections.max")
            return False
        if from_address >= self.settings.address_connections_max:
            limit = "broker.connections.per.address.max"
            self._refuse(address, f"{from_address} connections from it are open", limit)
            return False
        self.metrics.connections_accepted += 1
        self.metrics.connections_open += 1
        self._connections[connection] = None
        self._by_address[address] = from_address + 1
        return True

    def _refuse(self, address: str, reason: str, limit: str) -> None:
        self.metrics.connections_refused += 1
        self.broker.limited_log.warning(address, limit, f"refused: {reason} ({limit})")

    def remove(self, connection: Connection) -> None:
        """Remove a connection that is closed."""
        self.receiving.remove(connection)
        if self._connections.pop(connection, False) is None:
            self.metrics.connections_open -= 1
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def log_refusal(self, peer: str, error: NeveError) -> None:
        """Log that a connection closes because of a request that cannot be answered."""
        self._warn(peer, "bad request", f"closed: {error}")

    def log_abort(self, peer: str, reason: str) -> None:
        """Log that a connection was aborted, if its client does not read its responses."""
        if reason == UNREAD:
            self._warn(
                peer,
                "unread responses",
                "closed: it does not read its responses (fetch.unsent.bytes limits the unread "
                f"bytes of all clients to {self.unsent.share.bytes_max})",
            )

    def _warn(self, peer: str, subject: str, message: str) -> None:
        self.broker.limited_log.warning(peer.rpartition(":")[0], subject, message)

    # -- back pressure -----------------------------------------------------------------------

    def wait_for_wal(self, connection: Connection) -> None:
        """Call `connection.wal_has_room` when the WAL buffer has room, first come, first served."""
        self._waiting_for_wal.append(connection)
        if self._wal_waiter is None:
            self._wal_waiter = self.tasks.start(self._resume_producers(), name="room")

    async def _resume_producers(self) -> None:
        try:
            while self._waiting_for_wal:
                # If the stream has ended, resumed producers get an error at once.
                with contextlib.suppress(NeveError):
                    await self.broker.node.writer.room()
                self._waiting_for_wal.popleft().wal_has_room()
        finally:
            self._wal_waiter = None

    def _buffers_freed(self) -> None:
        # Not in this call: the connection that freed a buffer is using the scratch.
        if self.receiving:
            asyncio.get_running_loop().call_soon(self.receiving.admit)

    # -- time-outs ---------------------------------------------------------------------------

    async def _sweep(self) -> None:
        expired_at = runtime.monotonic()
        while True:
            await runtime.sleep(SWEEP_SECONDS)
            now = runtime.monotonic()
            self.unsent.free_for_waiting()
            self._time_out_produces(now)
            if self.receiving:
                self._check_receive_rates(now)
            if now - expired_at >= 1:
                expired_at = now
                self._expire(now)

    # Not in the loop above: its variables would keep the last connection after it has closed.

    def _time_out_produces(self, now: float) -> None:
        for connection in list(self._connections):
            connection.time_out_produces(now)

    def _expire(self, now: float) -> None:
        idle_seconds = self.settings.connection_idle_ms / 1000
        for connection in list(self._connections):
            connection.expire(now, idle_seconds)

    def _check_receive_rates(self, now: float) -> None:
        """Close connections that send a large request slowly while others wait for its memory."""
        self.receiving.admit()
        bytes_per_second = self.receiving.minimum_rate(now)
        for connection in list(self._connections):
            connection.check_receive_rate(now, bytes_per_second)

    # -- stopping ----------------------------------------------------------------------------

    async def stop_accepting(self) -> None:
        """Accept no new connection and no new request. Requests already taken are served."""
        self._is_stopping = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.stop_reading()

    async def drain(self, seconds: float) -> bool:
        """Wait until all taken requests have responses. Returns False if `seconds` were too few.

        Requests that wait for other members of a group, or for records, are not waited for.
        """
        ends_at = runtime.monotonic() + seconds
        # The producer of a batch that is being recompressed may have closed its connection.
        while self.recompression.is_busy or any(
            connection.owes_response for connection in list(self._connections)
        ):
            if runtime.monotonic() >= ends_at:
                return False
            await runtime.sleep(0.01)
        return True

    def close_all(self, reason: str) -> None:
        """Stop listening and close all connections."""
        self._is_stopping = True
        if self._listener is not None:
            self._listener.close()
        for connection in list(self._connections):
            connection.close(reason)

    async def close(self, seconds: float) -> None:
        """Close all connections. Clients have at most `seconds` to read the last responses."""
        self.close_all("stopped")
        ends_at = runtime.monotonic() + min(seconds, LINGER_SECONDS)
        while self._connections and runtime.monotonic() < ends_at:
            await runtime.sleep(0.01)
        for connection in list(self._connections):
            connection.abort()
        await self.tasks.close()
        self.unpacking.close()
