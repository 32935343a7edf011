"""The event loop of a simulated network: asyncio's own, on sockets in memory.

asyncio's transports, servers and streams are used as they are. Only what a kernel does is
simulated: the sockets, which of them are ready, and names.

A callback belongs to the process in whose context it was scheduled. It does not run while that
process is paused, and never after it was killed.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, cast

from neve.runtime.simulation import VirtualLoop, VirtualSelector
from support.simulated_network.sockets import SimulatedSocket

if TYPE_CHECKING:
    from support.simulated_network.host import Process
    from support.simulated_network.network import Network

current: ContextVar[Process | None] = ContextVar("simulated_process", default=None)
"""The process in which code runs; None outside all hosts."""


class NetworkSelector(VirtualSelector):
    """Knows which sockets in memory are ready."""

    def __init__(self) -> None:
        super().__init__()
        self._sockets: dict[int, SimulatedSocket] = {}
        self._changed: dict[int, None] = {}  # descriptors that may be ready
        self._next_descriptor = -2

    def add(self, added: SimulatedSocket) -> int:
        """Return a descriptor for a socket: a negative one, which no system call takes."""
        descriptor = self._next_descriptor
        self._next_descriptor -= 1
        self._sockets[descriptor] = added
        return descriptor

    def remove(self, descriptor: int) -> None:
        """Forget a socket that is closed."""
        self._sockets.pop(descriptor, None)

    def changed(self, descriptor: int) -> None:
        """Note that a socket may have become ready."""
        self._changed[descriptor] = None

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        self._changed[fileobj] = None
        return super().register(fileobj, events, data)

    def ready(self) -> list[tuple[selectors.SelectorKey, int]]:
        if not self._changed:
            return []
        ready = []
        for descriptor in list(self._changed):
            key, found = self._keys.get(descriptor), self._sockets.get(descriptor)
            events = key.events & found.events() if key is not None and found is not None else 0
            if key is not None and events:
                ready.append((key, events))
            else:
                del self._changed[descriptor]
        return ready


class _Step:
    """A callback of a process."""

    __slots__ = ("_callback", "_process", "handle")

    def __init__(self, process: Process, callback: Callable[..., object]) -> None:
        self._process = process
        self._callback = callback
        self.handle: asyncio.Handle

    def __call__(self, *args: object) -> None:
        if self._process.is_stopped:
            self._process.held.append(self.handle)
        else:
            self._callback(*args)


class NetworkLoop(VirtualLoop):
    """Opens sockets of the network that it belongs to, on the host of the code that asks."""

    def __init__(self, network: Network) -> None:
        self.selector = NetworkSelector()
        super().__init__(self.selector)
        self._network = network

    @property
    def transports(self) -> list[asyncio.Transport]:
        """The transports whose sockets are open."""
        known = self._transports.values()  # type: ignore[attr-defined]
        return [each for each in known if each._sock is not None]

    # -- processes ---------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        process = current.get() if context is None else context.get(current)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        step = _Step(process, callback)
        step.handle = super().call_soon(step, *args, context=context)
        return step.handle

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        process = current.get() if context is None else context.get(current)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        step = _Step(process, callback)
        timer = step.handle = super().call_at(when, step, *args, context=context)
        return timer

    def run_held(self, handles: list[asyncio.Handle]) -> None:
        """Run the callbacks that a paused process has not run, in their order.

        Timers run after the sockets that are ready, as they do in any iteration.
        """
        for handle in handles:
            if isinstance(handle, asyncio.TimerHandle):
                super().call_soon(self._add_callback, handle)  # type: ignore[attr-defined]
            else:
                self._add_callback(handle)  # type: ignore[attr-defined]

    # -- sockets -----------------------------------------------------------------------------

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        sock: Any = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        if sock is None:
            sock = await self._connected(cast(str, host), cast(int, port))
            if options.get("ssl"):
                options.setdefault("server_hostname", host)
        for name in ("family", "proto", "flags", "happy_eyeballs_delay", "interleave"):
            options.pop(name, None)  # there is one address and one way to it
        return await super().create_connection(protocol_factory, sock=sock, **options)

    async def _connected(self, host: str, port: int) -> SimulatedSocket:
        found = self._network.here().open_socket()
        try:
            await self.sock_connect(cast(Any, found), self._network.resolve(host, port))
        except BaseException:
            found.close()
            raise
        return found

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        sock: Any = None,
        **options: Any,
    ) -> asyncio.Server:
        if sock is None:
            sock = self._network.here().open_socket()
            sock.bind((host, port))
        for name in ("family", "flags", "reuse_address", "reuse_port"):
            options.pop(name, None)
        return await super().create_server(protocol_factory, sock=sock, **options)

    async def getaddrinfo(  # type: ignore[override]
        self, host: str, port: int, **_: object
    ) -> list[tuple[Any, ...]]:
        address = self._network.resolve(host, port)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", tuple(address))]
