"""Two connected ends, on the loopback interface or on the simulated network."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Protocol

from neve import runtime
from support.simulated_network import Network

Factory = Callable[[], asyncio.BaseProtocol]


class Place(Protocol):
    """Where a scenario runs."""

    async def listen(self, factory: Factory) -> asyncio.Server: ...

    async def connect(self, factory: Factory, address: Any) -> asyncio.Transport: ...

    def bound(self) -> Any: ...


class Loopback:
    async def listen(self, factory: Factory) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(factory, "127.0.0.1", 0)

    async def connect(self, factory: Factory, address: Any) -> asyncio.Transport:
        return (await asyncio.get_running_loop().create_connection(factory, *address))[0]

    def bound(self) -> socket.socket:
        found = socket.socket()
        found.bind(("127.0.0.1", 0))
        found.setblocking(False)
        return found


class Simulated:
    def __init__(self, network: Network) -> None:
        self.server, self.client = network.host("server"), network.host("client")

    async def listen(self, factory: Factory) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        return await self.server.run(loop.create_server(factory, "server", 0))

    async def connect(self, factory: Factory, address: Any) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        return (await self.client.run(loop.create_connection(factory, *address)))[0]

    def bound(self) -> Any:
        return self.server.socket()


class Peer(asyncio.Protocol):
    """One end. It notes what happens to it."""

    def __init__(self, *, keeps_open: bool = False) -> None:
        self.keeps_open = keeps_open
        self.data = bytearray()
        self.events: list[str] = []
        self.lost: list[Exception | None] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.events.append("end")
        return self.keeps_open

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class BufferedPeer(asyncio.BufferedProtocol):
    """One end that receives into a buffer of its own."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.buffer = memoryview(bytearray(100))
        self.sizes: list[int] = []
        self.lost: list[Exception | None] = []
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.sizes.append(nbytes)
        self.data += self.buffer[:nbytes]


class Pair:
    """Two connected ends."""

    def __init__(self, client: Peer, server: Any, listener: asyncio.Server) -> None:
        self.client, self.server, self.listener = client, server, listener

    async def __aenter__(self) -> Pair:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.listener.close()
        for peer in (self.client, self.server):
            if not peer.lost:
                peer.transport.abort()
        await runtime.sleep(0.01)


async def pair(
    place: Place, *, server: Any = None, keeps_open: bool = False, client: Peer | None = None
) -> Pair:
    server = server or Peer(keeps_open=keeps_open)
    client = client or Peer(keeps_open=keeps_open)
    listener = await place.listen(lambda: server)
    await place.connect(lambda: client, address_of(listener))
    await until(lambda: server.transport is not None)
    return Pair(client, server, listener)


def address_of(listener: asyncio.Server) -> Any:
    return listener.sockets[0].getsockname()


async def until(condition: Callable[[], object]) -> None:
    for _ in range(4_000):
        if condition():
            return
        await runtime.sleep(0.005)
    raise AssertionError("this never came true")
