"""The socket of one client: bounded reads, writes with back pressure, upgrade to TLS."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Any, cast

from neve import runtime

READ_AHEAD_BYTES = 64 * 1024
"""Bytes buffered beyond the current read; the rest stays in the kernel's buffers."""
WRITE_BUFFER_BYTES = 256 * 1024
_SEND_BYTES = 64 * 1024


class Disconnected(Exception):  # noqa: N818 (an ordinary end, not a failure)
    """The client has disconnected."""


class ClientTransport(asyncio.Protocol):
    """The transport of one client. Calls `on_made` when the client has connected."""

    def __init__(self, on_made: Callable[[ClientTransport], None]) -> None:
        self._on_made = on_made
        self._transport: asyncio.Transport
        self._received = bytearray()
        self._wanted = 0
        self._more = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._reading_paused = False
        self.ended = False
        self._gone = asyncio.Event()
        self.secure = False
        self.on_lost: Callable[[], None] = lambda: None

    # --- called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._use(cast(asyncio.Transport, transport))
        connected = transport.get_extra_info("socket")
        if connected is not None and connected.family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._on_made(self)

    def _use(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) >= self._wanted:
            self._more.set()
        if len(self._received) > self._wanted + READ_AHEAD_BYTES and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._end()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self._gone.set()
            self._more.set()
            self._writable.set()
            self.on_lost()

    # --- called by the connection

    async def read(self, size: int) -> bytes:
        """Read exactly `size` bytes. Raises Disconnected if the client closes before."""
        self._wanted = size
        while len(self._received) < size:
            if self.ended:
                raise Disconnected
            self._more.clear()
            if self._reading_paused:
                self._reading_paused = False
                self._transport.resume_reading()
            await self._more.wait()
        self._wanted = 0
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def write(self, data: bytes) -> None:
        if not self.ended:
            self._transport.write(data)

    async def drain(self, seconds: float) -> None:
        """Wait until the write buffer has room. Raises Disconnected after `seconds`."""
        if not self._writable.is_set():
            try:
                async with runtime.deadline(seconds):
                    await self._writable.wait()
            except TimeoutError:
                self.abort()
                raise Disconnected from None
        if self.ended:
            raise Disconnected

    async def sleep(self, seconds: float) -> None:
        """Sleep. Raises Disconnected if the client disconnects meanwhile."""
        with contextlib.suppress(TimeoutError):
            async with runtime.deadline(seconds):
                await self._gone.wait()
            raise Disconnected

    async def start_tls(self, context: ssl.SSLContext) -> None:
        """Upgrade to TLS. Disconnects if bytes came before the handshake: they may be injected."""
        if self._received:
            self.abort()
            raise Disconnected
        loop = asyncio.get_running_loop()
        try:
            upgraded = await loop.start_tls(self._transport, self, context, server_side=True)
        except (OSError, ssl.SSLError) as error:
            self.abort()
            raise Disconnected from error
        if upgraded is None:
            raise Disconnected
        self._use(upgraded)
        self.secure = True

    def address(self) -> str:
        """The client's address without its port."""
        peer: Any = self._transport.get_extra_info("peername")
        return str(peer[0]) if isinstance(peer, tuple) and peer else ""

    def close(self) -> None:
        """Close after sending what was written."""
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()
        self._end()


class SendBuffer:
    """Collects messages and sends them together."""

    def __init__(self, transport: ClientTransport, stall_seconds: float) -> None:
        self._transport = transport
        self._stall_seconds = stall_seconds
        self._parts: list[bytes] = []
        self._bytes = 0

    def add(self, message: bytes) -> None:
        self._parts.append(message)
        self._bytes += len(message)

    async def flush_if_large(self) -> None:
        """Send if at least 64 KiB have been collected."""
        if self._bytes >= _SEND_BYTES:
            await self.flush()

    async def flush(self) -> None:
        if self._parts:
            parts, self._parts, self._bytes = self._parts, [], 0
            self._transport.write(b"".join(parts))
        await self._transport.drain(self._stall_seconds)
