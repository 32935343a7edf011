"""One broker process in a simulated world: all of it but its sockets.

It can be killed, paused and resumed, its wall clock can jump, and its store can be slow, fail, deny
it for good or be full. A paused process sends nothing and learns nothing; what it had sent before
may still land.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from typing import Any, TypeVar

from neve import runtime
from neve.broker.broker import Broker
from neve.cluster.node import Node
from neve.log.index_cache import IndexCache
from neve.log.remote import BucketRemoteStorage
from neve.runtime.context import world
from neve.serving.addresses import Address
from neve.settings import Settings
from neve.store.faults import Fault, Faults, FaultyStore, Latencies, Rule
from neve.store.port import Store
from neve.store.url import stack
from neve.store.wrapper import Call, Wrapper

T = TypeVar("T")
ALWAYS = 10**9


class Pausable(Wrapper):
    """A store that its process does not reach while it is paused, and hears nothing from."""

    def __init__(self, inner: Store, running: asyncio.Event, *, answers: bool) -> None:
        super().__init__(inner)
        self._running = running
        self._answers = answers

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        del call
        await self._running.wait()
        try:
            return await work()
        finally:
            if self._answers:
                await self._running.wait()


async def declare_others_dead(node: Node) -> None:
    """Let a process take over from all others, as if their watchers had found them dead."""
    for incarnation, broker in (await node.cluster.refresh()).brokers.items():
        if broker.live and incarnation != node.incarnation:
            await node.cluster.expire(incarnation)


class Process:
    """Made by `start`. `broker` is what clients would speak to."""

    def __init__(
        self, raw: Store, settings: Settings, faults: Faults, latencies: Latencies
    ) -> None:
        self._settings = settings
        self._running = asyncio.Event()
        self._running.set()
        self._wall_offset = 0.0
        # What was sent is on its way when the process is paused; what was not is not sent.
        self.faulty = FaultyStore(
            Pausable(raw, self._running, answers=False), faults, latencies=latencies
        )
        whole = stack(self.faulty, settings.store)
        self._stack = dataclasses.replace(
            whole, store=Pausable(whole.store, self._running, answers=True)
        )
        self.broker: Broker
        self.hindered = False  # paused, denied or full at some time: not to be measured

    async def start(self, node_id: int) -> None:
        await self.within(self._start(node_id))

    async def within(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on this process's clock."""
        base = world.get()
        own = dataclasses.replace(base, wall=lambda: base.wall() + self._wall_offset)
        context = copy_context()
        context.run(world.set, own)
        task = asyncio.get_running_loop().create_task(work, context=context)
        try:
            return await task
        finally:
            task.cancel()

    async def _start(self, node_id: int) -> None:
        node = await Node.start(self._stack.store, self._settings, node_id=node_id, probe=False)
        indexes = await IndexCache.open(
            BucketRemoteStorage(self._stack.store), self._settings.cache
        )
        self.broker = Broker(
            self._stack,
            self._settings,
            node,
            indexes,
            store_url="memory://",
            advertised=Address("localhost", 9092),
        )
        node.on_end(self.broker._node_ended)
        try:
            await declare_others_dead(node)
            await self.broker._lead_all()
            await self.broker.offsets_topic.load()
            self.broker.background.start()
        except BaseException:
            await self.kill()
            raise

    @property
    def node(self) -> Node:
        return self.broker.node

    @property
    def is_over(self) -> bool:
        return self.node.ended is not None

    @property
    def is_paused(self) -> bool:
        return not self._running.is_set()

    def pause(self) -> None:
        self.hindered = True
        self._running.clear()

    def resume(self) -> None:
        self._running.set()

    def set_clock(self, seconds: float) -> None:
        """Make its wall clock wrong by so much from now on."""
        self._wall_offset = seconds

    def fail_for_good(self, fault: Fault) -> None:
        """Its credentials are revoked, or its disk is full."""
        self.hindered = True
        self.faulty.script.append(Rule(fault, times=ALWAYS))

    def heal(self) -> None:
        """The store is well from now on."""
        self.faulty.script.clear()
        self.faulty.faults = Faults()

    async def kill(self) -> None:
        """End it as a crash would. What is still on its way may land."""
        self.resume()
        with contextlib.suppress(Exception):
            await self.broker.changing.close()
        await self.broker.background.close()
        await self.broker.offsets_topic.close()
        await self.broker.node.abort()
        await self.broker.reader.aclose()
        await self.broker.indexes.aclose()
        await runtime.sleep(0)
