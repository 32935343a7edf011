"""Sockets of a simulated host, as asyncio's selector loop uses them."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import struct
from typing import TYPE_CHECKING, NoReturn

from support.simulated_network.kernel import Listener
from support.simulated_network.segments import Address
from support.simulated_network.tcp import Endpoint

if TYPE_CHECKING:
    from support.simulated_network.host import Process

WILDCARDS = ("", "0.0.0.0", "localhost", "127.0.0.1")
_LINGER = struct.Struct("ii")


def _fail(number: int) -> NoReturn:
    raise OSError(number, os.strerror(number))


class SimulatedSocket:
    """A TCP socket. It never blocks. After its process was killed, nothing happens to it."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __init__(self, process: Process, endpoint: Endpoint | None = None) -> None:
        self.process = process
        self._selector = process.host.network.loop.selector
        self._kernel = process.host.kernel
        self._descriptor = self._selector.add(self)
        self._local: Address | None = None
        self._listener: Listener | None = None
        self._endpoint: Endpoint | None = None
        self._resets = False  # SO_LINGER with no time
        process.sockets[self] = None
        if endpoint is not None:
            self._attach(endpoint)

    def _attach(self, endpoint: Endpoint) -> None:
        self._local = endpoint.local
        self._endpoint = endpoint
        endpoint.on_change = self.changed

    def changed(self) -> None:
        """Let the event loop look at this socket."""
        self._selector.changed(self._descriptor)

    def events(self) -> int:
        """Return what would not block now."""
        if self.process.is_stopped or self.process.is_killed:
            return 0
        if self._listener is not None:
            return selectors.EVENT_READ if self._listener.opened else 0
        if self._endpoint is None:
            return 0
        return (
            selectors.EVENT_READ * self._endpoint.is_readable
            | selectors.EVENT_WRITE * self._endpoint.is_writable
        )

    # -- a socket's methods ------------------------------------------------------------------

    def fileno(self) -> int:
        return self._descriptor

    def setblocking(self, flag: bool) -> None:
        """Do nothing: it never blocks."""

    def gettimeout(self) -> float:
        return 0.0

    def bind(self, address: tuple[str | None, int]) -> None:
        host, port = address
        if (host or "") not in (*WILDCARDS, self.process.host.name, self._kernel.address):
            _fail(errno.EADDRNOTAVAIL)
        self._local = Address(self._kernel.address, port or self._kernel.free_port())

    def listen(self, backlog: int = 128) -> None:
        if self.process.is_killed:
            return
        if self._local is None:
            _fail(errno.EDESTADDRREQ)
        if self._listener is None:
            self._listener = self._kernel.listen(self._local, backlog)
            self._listener.on_change = self.changed

    def accept(self) -> tuple[SimulatedSocket, tuple[str, int]]:
        if self._listener is None:
            _fail(errno.EINVAL)
        if self.process.is_killed or not self._listener.opened:
            _fail(errno.EAGAIN)
        endpoint = self._listener.opened.popleft()
        return SimulatedSocket(self.process, endpoint), tuple(endpoint.remote)  # type: ignore[return-value]

    def connect(self, address: tuple[str, int]) -> None:
        if not self.process.is_killed:
            remote = self.process.host.network.resolve(*address)
            local = self._local or Address(self._kernel.address, self._kernel.free_port())
            self._attach(self._kernel.connect(local, remote))
        _fail(errno.EINPROGRESS)

    def recv(self, size: int) -> bytes:
        return self._working().read(size)

    def recv_into(self, buffer: memoryview | bytearray, size: int = 0) -> int:
        data = self._working().read(size or len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def send(self, data: bytes | bytearray | memoryview) -> int:
        return self._working().write(data)

    def sendmsg(self, buffers: list[bytes | bytearray | memoryview]) -> int:
        return self._working().write(b"".join(buffers))

    def shutdown(self, how: int) -> None:
        if how != socket.SHUT_WR:
            _fail(errno.EOPNOTSUPP)
        if not self.process.is_killed:
            self._connected().end()

    def close(self) -> None:
        if self._descriptor == -1:
            return
        self._selector.remove(self._descriptor)
        self._descriptor = -1
        self.process.sockets.pop(self, None)
        if self.process.is_killed:
            return
        if self._listener is not None:
            self._kernel.stop_listening(self._listener)
        if self._endpoint is not None:
            self._endpoint.close(reset=self._resets)

    def _connected(self) -> Endpoint:
        if self._endpoint is None:
            _fail(errno.ENOTCONN)
        return self._endpoint

    def _working(self) -> Endpoint:
        if self.process.is_killed:
            _fail(errno.EAGAIN)
        return self._connected()

    # -- names and options -------------------------------------------------------------------

    def getsockname(self) -> tuple[str, int]:
        return tuple(self._local or Address("0.0.0.0", 0))  # type: ignore[return-value]

    def getpeername(self) -> tuple[str, int]:
        return tuple(self._connected().remote)  # type: ignore[return-value]

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        if (level, option) == (socket.SOL_SOCKET, socket.SO_LINGER):
            assert isinstance(value, bytes)
            self._resets = _LINGER.unpack(value) == (1, 0)

    def getsockopt(self, level: int, option: int, size: int = 0) -> int | bytes:
        if (level, option) == (socket.SOL_SOCKET, socket.SO_ERROR):
            return self._connected().take_error()
        if (level, option) == (socket.IPPROTO_TCP, socket.TCP_INFO):
            return self._connected().tcp_info()[:size]
        return bytes(size) if size else 0
