"""Hosts, the links between them, and the faults of links."""

from __future__ import annotations

import errno
import hashlib
import ipaddress
import itertools
import os
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from neve import runtime
from support.simulated_network.host import Host
from support.simulated_network.kernel import Kernel
from support.simulated_network.loop import NetworkLoop, current
from support.simulated_network.segments import Address, Segment

T = TypeVar("T")
LATENCY_SECONDS = (0.000_1, 0.001)
LOOPBACK_SECONDS = (0.000_01, 0.000_02)
BUFFER_BYTES = 256 * 1024
HISTORY_MAX = 2_000
_LOCAL = ("", "localhost", "127.0.0.1")


@dataclass
class Flow:
    """The packets of one connection on one link. They arrive in their order."""

    segments: deque[Segment] = field(default_factory=deque)
    last_arrival: float = 0.0


@dataclass
class Link:
    """The way from one host to another. The way back is another link."""

    latency_seconds: tuple[float, float]
    """The least and the greatest; each packet's is drawn between them."""
    bytes_per_second: float = 0.0
    """0: no limit."""
    loss: float = 0.0
    """The share of packets that are lost."""
    is_cut: bool = False
    free_at: float = 0.0
    flows: dict[int, Flow] = field(default_factory=dict)


class Network:
    """Made by `simulate`. Hosts are made by naming them."""

    def __init__(
        self,
        *,
        latency_seconds: tuple[float, float] = LATENCY_SECONDS,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self.loop = NetworkLoop(self)
        self.context: Context  # of no process
        self.history: deque[str] = deque(maxlen=HISTORY_MAX)
        self.packets = 0
        self._digest = hashlib.sha256()
        self._latency_seconds = latency_seconds
        self._buffer_bytes = buffer_bytes
        self._hosts: dict[str, Host] = {}
        self._by_address: dict[str, Host] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._deaf: dict[str, None] = {}  # hosts that no packet reaches
        self._mute: dict[str, None] = {}  # hosts whose packets reach no other
        self._connections = itertools.count(1)
        self._is_over = False

    # -- hosts -------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        """Return the host of this name. It is made when it is first named."""
        found = self._hosts.get(name)
        if found is None:
            address = str(ipaddress.IPv4Address("10.0.0.1") + len(self._hosts))
            found = Host(self, name, Kernel(self, address, self._buffer_bytes))
            self._hosts[name] = self._by_address[address] = found
        return found

    def here(self) -> Host:
        """Return the host on which the caller runs."""
        process = current.get()
        if process is None:
            raise RuntimeError("this runs on no host of the network: use Host.run or Host.spawn")
        return process.host

    def resolve(self, name: str, port: int) -> Address:
        """Return the address of a host's port, as seen from the host on which the caller runs."""
        if name in _LOCAL:
            return Address(self.here().kernel.address, port)
        found = self._hosts.get(name) or self._by_address.get(name)
        if found is None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return Address(found.kernel.address, port)

    # -- faults ------------------------------------------------------------------------------

    def link(self, source: str, target: str) -> Link:
        """Return the way from one host to another. Its attributes may be set at any time."""
        found = self._links.get((source, target))
        if found is None:
            found = Link(LOOPBACK_SECONDS if source == target else self._latency_seconds)
            self._links[source, target] = found
        return found

    def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Lose all packets between two hosts; or only those from the first to the second."""
        self.link(source, target).is_cut = True
        if not one_way:
            self.link(target, source).is_cut = True

    def isolate(self, name: str, *, incoming: bool = True, outgoing: bool = True) -> None:
        """Lose all packets between a host and all others; or only those to it, or from it."""
        if incoming:
            self._deaf[name] = None
        if outgoing:
            self._mute[name] = None

    def slow(
        self,
        source: str,
        target: str,
        latency_seconds: tuple[float, float] | None = None,
        *,
        bytes_per_second: float = 0.0,
        loss: float = 0.0,
    ) -> None:
        """Make the links between two hosts slow or lossy."""
        for each in (self.link(source, target), self.link(target, source)):
            each.latency_seconds = latency_seconds or self._latency_seconds
            each.bytes_per_second, each.loss = bytes_per_second, loss

    def heal(self, *names: str) -> None:
        """End all faults of links; or those of one host, or those between two.

        What was lost is sent again when TCP next tries: the longer the fault was, the later.
        """
        for (source, target), each in self._links.items():
            if set(names) <= {source, target}:
                each.is_cut = False
                each.bytes_per_second = each.loss = 0.0
                if source != target:
                    each.latency_seconds = self._latency_seconds
        for isolated in (self._deaf, self._mute):
            for name in list(isolated):
                if not names or names == (name,):
                    del isolated[name]

    def _is_cut(self, source: Host, target: Host, link: Link) -> bool:
        if target.kernel.is_off:
            return True
        if source is target:
            return False
        return link.is_cut or source.name in self._mute or target.name in self._deaf

    def _is_lost(self, source: Host, target: Host, link: Link) -> bool:
        """Return whether a packet that is sent now is lost."""
        if source.kernel.is_off or self._is_cut(source, target, link):
            return True
        return link.loss > 0 and runtime.chance().random() < link.loss

    def latency(self, source: str, target: str) -> float | None:
        """Return how long a message takes now, or None if it is lost: for what does not use TCP."""
        link = self.link(source, target)
        if self._is_lost(self.host(source), self.host(target), link):
            return None
        return runtime.chance().uniform(*link.latency_seconds)

    # -- packets -----------------------------------------------------------------------------

    def new_connection(self) -> int:
        """Return the number of a new connection."""
        if self._is_over:
            raise OSError(errno.ENETDOWN, os.strerror(errno.ENETDOWN))
        return next(self._connections)

    def send(self, segment: Segment) -> None:
        """Take a packet from a kernel."""
        source = self._by_address[segment.source.host]
        target = self._by_address[segment.target.host]
        link = self.link(source.name, target.name)
        self.packets += 1
        if self._is_lost(source, target, link):
            self._note("lost", segment)
            return
        self._note("sent", segment)
        leaves_at = self.loop.time()
        if link.bytes_per_second:
            leaves_at = max(leaves_at, link.free_at) + segment.wire_bytes / link.bytes_per_second
            link.free_at = leaves_at
        flow = link.flows.get(segment.connection)
        if flow is None:
            flow = link.flows[segment.connection] = Flow()
        latency_seconds = runtime.chance().uniform(*link.latency_seconds)
        arrives_at = max(flow.last_arrival, leaves_at + latency_seconds)
        flow.last_arrival = arrives_at
        flow.segments.append(segment)
        # Not with the segment: of two timers for one instant, the later one may fire first.
        self.loop.call_at(arrives_at, self._arrive, link, segment.connection, context=self.context)

    def _arrive(self, link: Link, connection: int) -> None:
        flow = link.flows[connection]
        segment = flow.segments.popleft()
        if not flow.segments:
            del link.flows[connection]
        source = self._by_address[segment.source.host]
        target = self._by_address[segment.target.host]
        if self._is_cut(source, target, link):
            self._note("lost on its way", segment)
        else:
            target.kernel.receive(segment)

    def _note(self, event: str, segment: Segment) -> None:
        line = f"{self.loop.time():.9f} {event} {segment}"
        self.history.append(line)
        self._digest.update(line.encode())

    @property
    def digest(self) -> str:
        """A hash of all packets so far, with their times and contents."""
        return self._digest.hexdigest()

    # -- the life of the network -------------------------------------------------------------

    def begin(self) -> None:
        """Take the world of the simulation from the caller's context."""
        self.context = copy_context()

    async def end(self) -> None:
        """Close all transports, and let stopped processes run, so that tasks can be cancelled."""
        self._is_over = True
        for host in self._hosts.values():
            for process in host.processes:
                process.resume()
        for transport in self.loop.transports:
            transport.abort()
        await runtime.sleep(0)


def simulate(
    scenario: Callable[[Network], Coroutine[Any, Any, T]], *, seed: int, **about: Any
) -> T:
    """Run a scenario on a network of its own, in virtual time, with all chance from `seed`."""
    network = Network(**about)

    async def main() -> T:
        network.begin()
        try:
            return await scenario(network)
        finally:
            await network.end()

    return runtime.simulate(main(), seed=seed, loop=network.loop)
