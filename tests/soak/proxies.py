"""Loopback proxies in front of brokers, which tell brokers from clients and can cut them apart.

A broker advertises its proxy's address, so clients and other brokers reach it through the proxy
only. Each broker connects from a loopback address of its own (`host_of`), clients from 127.0.0.1:
the protocol is not looked at. A cut loses nothing, as TCP does not: bytes wait until it is healed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

CHUNK_BYTES = 64 * 1024
CONNECTING_PAUSE_SECONDS = 0.02
START_SECONDS = 10.0
ACCEPTED_SECONDS = 0.1
"""Until then what was accepted before a server closed has become a task."""


@dataclass(frozen=True)
class Route:
    """Where a proxy listens, and the broker behind it."""

    node: int
    port: int
    listens: int


def host_of(node: int) -> str:
    """The address from which a broker opens connections."""
    return f"127.0.1.{node}"


@dataclass
class _Cuts:
    """Pairs of nodes that cannot talk to each other."""

    pairs: set[frozenset[int]] = field(default_factory=set)
    healed: asyncio.Event = field(default_factory=asyncio.Event)

    async def passable(self, source: int | None, target: int) -> None:
        """Wait until bytes from a node, or a client (None), pass."""
        while source is not None and frozenset((source, target)) in self.pairs:
            await self.healed.wait()


class Proxies:
    """One proxy for each broker, in a thread of their own. Use as `with`."""

    def __init__(self, routes: list[Route]) -> None:
        self._routes = routes
        self._nodes = {host_of(route.node): route.node for route in routes}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._cuts = _Cuts()
        self._servers: dict[int, asyncio.Server] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections: dict[tuple[int | None, int], int] = {}

    def __enter__(self) -> Proxies:
        self._thread.start()
        self._call(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS)

    async def _start(self) -> None:
        for route in self._routes:
            await self._listen(route)

    async def _listen(self, route: Route) -> None:
        if route.node not in self._servers:
            self._servers[route.node] = await asyncio.start_server(
                self._accept(route), "127.0.0.1", route.port
            )

    def up(self, node: int) -> None:
        """Accept connections to a node."""
        self._call(self._listen(next(each for each in self._routes if each.node == node)))

    def down(self, node: int) -> None:
        """Refuse connections to a node, as a machine does on which no process listens."""

        async def refuse() -> None:
            if (server := self._servers.pop(node, None)) is not None:
                server.close()

        self._call(refuse())

    async def _close(self) -> None:
        for server in self._servers.values():
            server.close()
        await asyncio.sleep(ACCEPTED_SECONDS)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # One whose other end reads nothing would not close by itself.
        writers = list(self._writers)
        for writer in writers:
            writer.transport.abort()
        await asyncio.gather(*(each.wait_closed() for each in writers), return_exceptions=True)

    @contextlib.contextmanager
    def _closing(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        self._open(writer)
        with contextlib.closing(writer):
            yield

    def _open(self, writer: asyncio.StreamWriter) -> None:
        self._writers = {each for each in self._writers if not _is_closed(each)} | {writer}

    def cut(self, one: int, *others: int) -> None:
        """From now on nothing passes between a node and each of the others."""

        async def change() -> None:
            self._cuts.pairs |= {frozenset((one, other)) for other in others}

        self._call(change())

    def heal(self) -> None:
        async def change() -> None:
            self._cuts.pairs.clear()
            self._cuts.healed.set()
            self._cuts.healed = asyncio.Event()

        self._call(change())

    def _accept(self, route: Route) -> Callable[..., None]:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._open(writer)
            source = self._nodes.get(writer.get_extra_info("peername")[0])
            pair = source, route.node
            self.connections[pair] = self.connections.get(pair, 0) + 1
            task = self._loop.create_task(self._relay(route, source, reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return accepted

    async def _relay(
        self,
        route: Route,
        source: int | None,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            await self._cuts.passable(source, route.node)
            there, back = await asyncio.open_connection("127.0.0.1", route.listens)
            with self._closing(back):
                ways = [
                    asyncio.ensure_future(self._copy(reader, back, source, route.node)),
                    asyncio.ensure_future(self._copy(there, writer, source, route.node)),
                ]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)

    async def _copy(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        source: int | None,
        target: int,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                await self._cuts.passable(source, target)
                writer.write(data)
                await writer.drain()


def _is_closed(writer: asyncio.StreamWriter) -> bool:
    return writer.get_extra_info("socket").fileno() < 0
