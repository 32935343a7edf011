"""A store on a host of its own.

What a process has sent is on its way: it lands even if the process is paused, killed, or waits no
more. A call that a cut delays is sent again, as TCP does, and given up after some time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from neve import runtime
from neve.errors import UnavailableError
from neve.store.port import Store
from neve.store.wrapper import Call, Wrapper
from support.simulated_network.network import Network

T = TypeVar("T")
RETRY_SECONDS = 0.2
GIVE_UP_SECONDS = 100.0


class RemoteStore(Wrapper):
    """Forwards the calls of all hosts of a network. `name` is the store's host, for cuts."""

    def __init__(self, inner: Store, network: Network, name: str = "store") -> None:
        super().__init__(inner)
        self._network = network
        self._name = network.host(name).name
        self._serving: dict[asyncio.Task[None], None] = {}

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        answer: asyncio.Future[T] = self._network.loop.create_future()
        source = self._network.here().name
        task = self._network.loop.create_task(
            self._serve(source, call.key, work, answer), context=self._network.context
        )
        self._serving[task] = None
        task.add_done_callback(self._serving.pop)
        return await answer

    async def _serve(
        self, source: str, key: str, work: Callable[[], Awaitable[T]], answer: asyncio.Future[T]
    ) -> None:
        try:
            await self._cross(source, self._name, key)
            result = await work()
            await self._cross(self._name, source, key)
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # the process that asked may be gone
        else:
            if not answer.done():
                answer.set_result(result)

    async def _cross(self, source: str, target: str, key: str) -> None:
        """Wait until a message has gone from one host to the other."""
        seconds, given_up_at = RETRY_SECONDS, runtime.monotonic() + GIVE_UP_SECONDS
        while (latency := self._network.latency(source, target)) is None:
            if runtime.monotonic() >= given_up_at:
                raise UnavailableError(key, f"the network between {source} and {target} is cut")
            await runtime.sleep(seconds)
            seconds *= 2
        await runtime.sleep(latency)
