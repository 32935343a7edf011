"""A host of a simulated network, and the processes that run on it one after another."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from support.simulated_network.kernel import Kernel
from support.simulated_network.loop import current
from support.simulated_network.sockets import SimulatedSocket

if TYPE_CHECKING:
    from support.simulated_network.network import Network

T = TypeVar("T")


class KilledError(Exception):
    """The process that ran this was killed."""


class Process:
    """All code that runs on a host until the host is killed. It can be stopped at any time."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.is_stopped = False
        self.is_killed = False
        self.held: list[asyncio.Handle] = []
        self.sockets: dict[SimulatedSocket, None] = {}
        self.killed: asyncio.Future[None] = host.network.loop.create_future()

    def resume(self) -> None:
        """Run from where it was stopped. What was due meanwhile is late."""
        self.is_stopped = False
        held, self.held = self.held, []
        self.host.network.loop.run_held(held)
        for each in self.sockets:
            each.changed()

    def kill(self) -> None:
        """Run no more code of it, not even of the tasks that are cancelled by this."""
        self.is_stopped = self.is_killed = True
        if not self.killed.done():
            self.killed.set_result(None)


class Host:
    """A machine with a name, an address and one process at a time. Made by `Network.host`."""

    def __init__(self, network: Network, name: str, kernel: Kernel) -> None:
        self.network = network
        self.name = name
        self.kernel = kernel
        self.processes = [Process(self)]

    @property
    def process(self) -> Process:
        """The process that runs now."""
        return self.processes[-1]

    # -- running code ------------------------------------------------------------------------

    def context(self) -> Context:
        """Return a copy of the current context in which code runs on this host."""
        context = copy_context()
        context.run(current.set, self.process)
        return context

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
        """Start a task on this host."""
        return self.network.loop.create_task(work, name=name, context=self.context())

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on this host. Raises KilledError if the host is killed before it ends."""
        killed = self.process.killed
        task = self.spawn(work)
        try:
            either: list[asyncio.Future[Any]] = [task, killed]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise KilledError(f"{self.name} was killed")
            return task.result()
        finally:
            task.cancel()

    def open_socket(self) -> SimulatedSocket:
        """Return a socket that is neither bound nor connected."""
        return SimulatedSocket(self.process)

    def socket(self, port: int = 0) -> Any:
        """Return a socket bound to a port, for a server to listen on."""
        bound = self.open_socket()
        bound.bind(("", port))
        return bound

    # -- faults ------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        return self.process.is_stopped

    def pause(self) -> None:
        """Stop the process as SIGSTOP does: no task and no timer of it runs.

        The kernel goes on: it accepts connections up to the backlog, acknowledges and keeps bytes
        up to its buffers, and sends what was written.
        """
        self.process.is_stopped = True

    def resume(self) -> None:
        """Let a paused process run again."""
        if self.process.is_stopped:
            self.process.resume()

    def kill(self) -> None:
        """End the process as SIGKILL does.

        The kernel closes its sockets: it still sends what was written, then the end; or resets the
        peer if there are bytes that the process had not read. New connections are refused.
        `run` starts the next process.
        """
        for each in list(self.process.sockets):
            each.close()
        self._end_process()

    def crash(self) -> None:
        """End the process, and reset all its connections. What is not yet sent is lost."""
        self.sever()
        self._end_process()

    def power_off(self) -> None:
        """Lose everything without a word. Packets to this host are lost until `power_on`."""
        self.kernel.drop_everything(reset=False)
        self.kernel.is_off = True
        self._end_process()

    def power_on(self) -> None:
        """Refuse connections, and reset the old ones whose peers still send."""
        self.kernel.is_off = False

    def sever(self) -> None:
        """Reset all connections and stop listening. The code runs on."""
        self.kernel.drop_everything(reset=True)

    def _end_process(self) -> None:
        self.process.kill()
        self.processes.append(Process(self))
