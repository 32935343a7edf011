"""The kernel of a simulated host: its ports, listeners and connections.

It runs whether or not the programs of the host do. It accepts connections up to a listener's
backlog, acknowledges and buffers bytes, sends again what was lost, and resets what nothing listens
to.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING

from support.simulated_network.segments import Address, Kind, Segment
from support.simulated_network.tcp import Endpoint, State

if TYPE_CHECKING:
    from support.simulated_network.network import Network

EPHEMERAL_PORTS = range(32_768, 61_000)
BACKLOG_MAX = 4096
"""As `net.core.somaxconn`."""


def _ignore() -> None:
    """No program waits for this listener."""


class Listener:
    """The connections to one port that no program has accepted yet."""

    def __init__(self, local: Address, backlog: int) -> None:
        self.local = local
        self.on_change: Callable[[], None] = _ignore
        self.opened: deque[Endpoint] = deque()
        self.opening: dict[Endpoint, None] = {}
        self.backlog = min(max(0, backlog), BACKLOG_MAX)

    @property
    def is_full(self) -> bool:
        return len(self.opened) + len(self.opening) > self.backlog


class Kernel:
    """Sends and receives for one host."""

    def __init__(self, network: Network, address: str, buffer_bytes: int) -> None:
        self.address = address
        self.is_off = False  # no power: it receives and sends nothing
        self._network = network
        self._buffer_bytes = buffer_bytes
        self._listeners: dict[int, Listener] = {}
        self._endpoints: dict[tuple[int, Address], Endpoint] = {}
        self._port = EPHEMERAL_PORTS.start

    # -- called by sockets -------------------------------------------------------------------

    def free_port(self) -> int:
        """Return a port for a socket that asks for none. Ports are reused as late as possible."""
        used = {port for port, _ in self._endpoints} | self._listeners.keys()
        for _ in EPHEMERAL_PORTS:
            port = self._port
            self._port += 1
            if self._port not in EPHEMERAL_PORTS:
                self._port = EPHEMERAL_PORTS.start
            if port not in used:
                return port
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))

    def listen(self, local: Address, backlog: int) -> Listener:
        """Accept connections to a port. Raises OSError if something listens there."""
        if local.port in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = self._listeners[local.port] = Listener(local, backlog)
        return listener

    def stop_listening(self, listener: Listener) -> None:
        """Refuse further connections, and reset those that no program has accepted."""
        if self._listeners.get(listener.local.port) is listener:
            del self._listeners[listener.local.port]
        for endpoint in [*listener.opened, *listener.opening]:
            endpoint.abandon()

    def connect(self, local: Address, remote: Address) -> Endpoint:
        """Begin to open a connection."""
        connection = self._network.new_connection()
        endpoint = Endpoint(self, local, remote, connection, State.CONNECTING, self._buffer_bytes)
        self._endpoints[local.port, remote] = endpoint
        return endpoint

    def drop_everything(self, *, reset: bool) -> None:
        """Lose all listeners and connections. The peers get resets, or hear nothing."""
        self._listeners.clear()
        for endpoint in list(self._endpoints.values()):
            if reset:
                endpoint.abandon()
            else:
                endpoint.vanish()
        self._endpoints.clear()

    # -- called by endpoints -----------------------------------------------------------------

    def emit(self, segment: Segment) -> None:
        self._network.send(segment)

    def now(self) -> float:
        return self._network.loop.time()

    def later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._network.loop.call_later(seconds, callback, context=self.context)

    @property
    def context(self) -> Context:
        """The context of no program: a paused one does not stop the kernel."""
        return self._network.context

    def opened(self, endpoint: Endpoint) -> None:
        listener = self._listeners.get(endpoint.local.port)
        if listener is None or endpoint not in listener.opening:
            endpoint.abandon()
            return
        del listener.opening[endpoint]
        listener.opened.append(endpoint)
        listener.on_change()

    def retire(self, endpoint: Endpoint, seconds: float) -> None:
        if seconds:
            self.later(seconds, lambda: self.retire(endpoint, 0))
            return
        key = (endpoint.local.port, endpoint.remote)
        if self._endpoints.get(key) is endpoint:
            del self._endpoints[key]
        listener = self._listeners.get(endpoint.local.port)
        if listener is not None:
            listener.opening.pop(endpoint, None)

    # -- called by the network ---------------------------------------------------------------

    def receive(self, segment: Segment) -> None:
        """Handle a segment that has arrived."""
        endpoint = self._endpoints.get((segment.target.port, segment.source))
        if endpoint is not None and endpoint.connection == segment.connection:
            endpoint.receive(segment)
        elif segment.kind is Kind.CONNECT:
            if endpoint is not None:  # of an earlier life of the peer
                endpoint.receive(segment._replace(kind=Kind.RESET))
            self._welcome(segment)
        elif segment.kind is not Kind.RESET:
            self._refuse(segment)

    def _welcome(self, segment: Segment) -> None:
        local, remote = segment.target, segment.source
        listener = self._listeners.get(local.port)
        if listener is None:
            self._refuse(segment)
        elif not listener.is_full:  # the peer asks again
            endpoint = Endpoint(
                self, local, remote, segment.connection, State.ACCEPTING, self._buffer_bytes
            )
            self._endpoints[local.port, remote] = endpoint
            listener.opening[endpoint] = None
            endpoint.accept(segment)

    def _refuse(self, segment: Segment) -> None:
        self.emit(Segment(Kind.RESET, segment.target, segment.source, segment.connection))
