"""A broker as its handlers see it, without a socket: a real node in memory and a small stand-in."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import pytest

from neve import runtime
from neve.broker.admin.cluster import ClusterAdmin
from neve.broker.admin.configs import ConfigAdmin
from neve.broker.admin.offsets import OffsetAdmin
from neve.broker.admin.partitions import PartitionAdmin
from neve.broker.admin.topics import TopicAdmin
from neve.broker.context import Client, Context
from neve.cluster.log import ClusterLog
from neve.cluster.node import Node
from neve.cluster.state import ClusterState, Topic
from neve.protocol.codes import ErrorCode
from neve.protocol.compiler import AnyApi
from neve.serving.addresses import Address
from neve.settings import Settings, TopicSettings
from neve.store.memory import MemoryBucket, MemoryStore
from support.node_world import batch_of, small_settings, take_over

NODE_ID = 7
ADVERTISED = Address("broker.test", 9092)
STORE_URL = "memory://"
NO_ID = bytes(16)
# Of a broker whose topic "t" has one partition: what every API tells of a partition, by its name.
NOT_THERE = [
    ("none", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ("t", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ("t", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ("no/name", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ("a b", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
]


CLIENT = Client("127.0.0.1", 50_000)


@dataclass
class StandIn:
    """The part of a broker that handlers use."""

    node: Node
    settings: Settings
    bucket: MemoryBucket = field(default_factory=MemoryBucket)
    node_id: int = NODE_ID
    advertised: Address = ADVERTISED
    store_url: str = STORE_URL
    changing: runtime.Tasks = field(default_factory=runtime.Tasks)
    searching: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(4))

    @property
    def topics(self) -> TopicAdmin:
        return TopicAdmin(self.node, self.settings)

    @property
    def partitions(self) -> PartitionAdmin:
        return PartitionAdmin(self.node, self.topics, self.still_leading)

    @property
    def offsets(self) -> OffsetAdmin:
        return OffsetAdmin(getattr(self, "reader", None))  # type: ignore[arg-type]

    @property
    def cluster(self) -> ClusterAdmin:
        return ClusterAdmin(self.node, self.advertised)

    @property
    def configs(self) -> ConfigAdmin:
        return ConfigAdmin(
            self.node,
            self.topics,
            self.settings,
            advertised=self.advertised,
            store_url=self.store_url,
        )

    async def still_leading(self) -> bool:
        return await self.node.writer.still_leading()

    def topic(self, name: str) -> Topic:
        found = self.node.cluster.state.topic(name)
        assert found is not None
        return found


async def start_broker(
    topics: dict[str, int] | None = None, *, auto_create: bool = True, default_partitions: int = 1
) -> StandIn:
    """A broker that leads these topics, by their numbers of partitions."""
    bucket = MemoryBucket()
    given = TopicSettings(auto_create=auto_create, default_partitions=default_partitions)
    settings = replace(small_settings(), topics=given)
    host, port = ADVERTISED
    node = await Node.start(
        MemoryStore(bucket), settings, node_id=NODE_ID, probe=False, host=host, port=port
    )
    for name, partitions in (topics or {}).items():
        await node.topics.create(name, partitions)
    return StandIn(node, settings, bucket)


def delay_next_refresh(cluster: ClusterLog, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let the next read of the cluster log wait until the returned event is set."""
    gate, refresh = asyncio.Event(), cluster.refresh
    waiting = [gate]

    async def delayed() -> ClusterState:
        while waiting:
            await waiting.pop().wait()
        return await refresh()

    monkeypatch.setattr(cluster, "refresh", delayed)
    return gate


async def ask(
    broker: StandIn, handler: ModuleType, api: AnyApi, version: int, **content: Any
) -> Any:
    """What a client of this version gets for such a request: over the wire and back."""
    request = api.Request(**content)
    received = api.Request.decode(_joined(api.Request.encode(request, version)), version)
    response = handler.handle(broker, received, Context(version, "test", CLIENT))
    if inspect.isawaitable(response):
        response = await response
    return api.Response.decode(_joined(api.Response.encode(response, version)), version)


async def alter(
    handler: ModuleType,
    api: AnyApi,
    broker: StandIn,
    *resources: Any,
    version: int | None = None,
    validate_only: bool = False,
) -> list[Any]:
    """What is told of each resource whose configs are to be changed."""
    version = api.max_version if version is None else version
    content = {"resources": list(resources), "validate_only": validate_only}
    rows: list[Any] = (await ask(broker, handler, api, version, **content)).responses
    return rows


def _joined(parts: list[Any]) -> memoryview:
    return memoryview(b"".join(bytes(part) for part in parts))


def versions(api: AnyApi) -> list[int]:
    """Every version that is advertised."""
    return list(range(api.min_version, api.max_version + 1))


async def produce(broker: StandIn, topic: str, count: int, partition: int = 0, **about: int) -> int:
    """Append one batch of so many records and wait for its commit; its base offset."""
    values = [f"{topic}-{at}" for at in range(count)]
    batch = batch_of(values, **about)
    appended = broker.node.leader(topic, partition).append(batch)
    await appended.commit.wait()
    return appended.base_offset


async def second_epoch() -> StandIn:
    """A broker under epoch 1 of a log whose epoch 0 ended at offset 5."""
    broker = await start_broker({"t": 1})
    await produce(broker, "t", 5)
    await broker.node.abort()
    host, port = ADVERTISED
    broker.node = await Node.start(
        MemoryStore(broker.bucket), broker.settings, node_id=NODE_ID, host=host, port=port
    )
    await take_over(broker.node)
    return broker
