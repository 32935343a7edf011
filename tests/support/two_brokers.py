"""Two live brokers on one bucket, each of which leads some partitions."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

from neve import runtime
from neve.broker.broker import Broker
from neve.broker.offsets_topic import OffsetsTopic
from neve.cluster.node import Node
from neve.protocol.messages import APIS
from neve.serving.addresses import Address
from neve.settings import GroupSettings, Settings
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.port import Store
from support.broker_world import StandIn, ask
from support.node_world import small_settings
from support.wire import running_broker

GROUPS = GroupSettings(partitions=2, initial_rebalance_delay_ms=0)
SETTINGS = dataclasses.replace(small_settings(), groups=GROUPS)
NEVER_MS = 3_600_000
RACKS = {1: "rack-a", 2: "rack-b"}


class GroupBroker(StandIn):
    """A stand-in that coordinates groups."""

    offsets_topic: OffsetsTopic

    @property
    def groups(self) -> Any:
        return self.offsets_topic.groups


@asynccontextmanager
async def draining(node: Node, other: int) -> AsyncIterator[None]:
    """While this lasts, what `node` creates is not led by the node with the id `other`."""
    await node.cluster.set_draining(other, draining=True)
    yield
    await node.cluster.set_draining(other, draining=False)


@asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[GroupBroker, GroupBroker]]:
    """Brokers 1 and 2 lead partitions 0 and 1 of topic `t`; broker 1 leads all groups."""
    bucket = MemoryBucket()
    brokers = []
    for node_id in (1, 2):
        address = Address(f"host{node_id}", 9092)
        node = await Node.start(
            MemoryStore(bucket),
            SETTINGS,
            node_id=node_id,
            probe=False,
            host=address.host,
            port=address.port,
            rack=RACKS[node_id],
        )
        broker = GroupBroker(node, SETTINGS, bucket, node_id=node_id, advertised=address)
        broker.offsets_topic = OffsetsTopic(node, GROUPS)
        await broker.offsets_topic.load()
        brokers.append(broker)
    one, two = brokers
    async with draining(one.node, 2):
        await one.node.topics.create("t", 1)
        await one.offsets_topic.ensure()
    async with draining(two.node, 1):
        await two.node.topics.add_partitions("t", 2)
    await refresh(one, two)
    try:
        yield one, two
    finally:
        for broker in brokers:
            await broker.offsets_topic.close()
            await broker.node.close()


@asynccontextmanager
async def two_running_brokers(
    store: Store | None = None, *, idle: bool = True
) -> AsyncIterator[tuple[Broker, Broker]]:
    """Brokers 1 and 2, which clients reach. Broker 1 leads topic `t` with two partitions.

    They have no background loops, and take nothing over by themselves: the test decides. Unless
    they are not `idle`: then they only do not balance the load in time for a test to see it.
    """
    store = store or MemoryStore(MemoryBucket())
    async with contextlib.AsyncExitStack() as stack:
        brokers = []
        for node_id, rack in RACKS.items():
            given = dataclasses.replace(Settings().broker, node_id=node_id, rack=rack)
            cluster = dataclasses.replace(Settings().cluster, rebalance_delay_ms=NEVER_MS)
            settings = dataclasses.replace(Settings(), broker=given, cluster=cluster)
            broker = await stack.enter_async_context(running_broker(store, settings))
            if idle:
                await broker.background.close()
            brokers.append(broker)
        one, two = brokers
        async with draining(one.node, 2):
            await one.node.topics.create("t", 2)
        await refresh(one, two)
        yield one, two


@asynccontextmanager
async def racked_brokers(racks: Sequence[str], settings: Settings) -> AsyncIterator[list[Broker]]:
    """Brokers 1, 2 and so on in these racks. Broker 1 leads topic `t` with two partitions.

    They follow each other's streams, but have no background loops, and take nothing over and move
    nothing by themselves: the test decides.
    """
    bucket = MemoryBucket()
    async with contextlib.AsyncExitStack() as stack:
        brokers = []
        for node_id, rack in enumerate(racks, 1):
            given = dataclasses.replace(settings.broker, node_id=node_id, rack=rack)
            own = dataclasses.replace(settings, broker=given)
            broker = await stack.enter_async_context(running_broker(MemoryStore(bucket), own))
            await broker.background.close()
            await broker.membership.close()
            brokers.append(broker)
        log = brokers[0].node.cluster
        await refresh(*brokers)
        for broker in brokers[1:]:
            await log.set_draining(broker.node_id, draining=True)
        await brokers[0].node.topics.create("t", 2)
        for broker in brokers[1:]:
            await log.set_draining(broker.node_id, draining=False)
        await refresh(*brokers)
        yield brokers


async def refresh(*brokers: Broker | GroupBroker) -> None:
    """Let each broker read the cluster log to its end."""
    for broker in brokers:
        await broker.node.cluster.refresh()


async def until_loaded(broker: GroupBroker) -> None:
    async with runtime.deadline(10):
        while not broker.offsets_topic.is_loaded:
            await runtime.sleep(0.001)


async def call(
    broker: GroupBroker, handler: ModuleType, version: int | None = None, **content: Any
) -> Any:
    """What a client gets for a request, in the newest version unless another is given."""
    name = handler.__name__.rpartition(".")[2].title().replace("_", "")
    api = next(api for api in APIS.values() if api.name == name)
    return await ask(
        broker, handler, api, api.max_version if version is None else version, **content
    )


def groups_by_partition(broker: GroupBroker) -> dict[int, str]:
    """A group for each partition of the internal topic."""
    names = [f"g{at}" for at in range(50)]
    return {broker.groups.partition_of(name): name for name in names}
