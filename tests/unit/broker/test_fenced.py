"""A broker that was superseded answers nothing more, so that its clients look for another."""

from __future__ import annotations

import asyncio

import pytest

from neve.cluster.node import Node
from neve.errors import FencedError
from neve.protocol.messages.find_coordinator import FIND_COORDINATOR
from neve.protocol.messages.offset_fetch import OFFSET_FETCH
from neve.settings import Settings
from neve.store.memory import MemoryBucket, MemoryStore
from support.node_world import take_over
from support.wire import Wire, running_broker

COORDINATOR = FIND_COORDINATOR.Request(key="g")


def offsets_of(group_id: str) -> object:
    request = OFFSET_FETCH.Request
    return request(group_id=group_id, topics=[request.Topic(name="t", partition_indexes=[0])])


async def test_a_superseded_broker_closes_its_connections_instead_of_answering() -> None:
    """librdkafka never fetches a partition again whose offset was answered NOT_COORDINATOR."""
    bucket = MemoryBucket()
    async with (
        running_broker(MemoryStore(bucket)) as broker,
        Wire.to(broker) as asking,
        Wire.to(broker) as idle,
    ):
        await broker.node.topics.create("t", 1)
        assert (await asking.ask(FIND_COORDINATOR, 0, COORDINATOR)).error_code == 0
        assert (await asking.ask(OFFSET_FETCH, 3, offsets_of("g"))).error_code == 0
        other = await Node.start(MemoryStore(bucket), Settings(), node_id=8)
        await take_over(other)
        asking.send(OFFSET_FETCH, 3, offsets_of("g"))
        asking.send(FIND_COORDINATOR, 0, COORDINATOR)
        for wire in (asking, idle):
            with pytest.raises(asyncio.IncompleteReadError) as ended:
                async with asyncio.timeout(5):
                    await wire.reader.readexactly(1)
            assert ended.value.partial == b""
        assert isinstance(await broker.ended, FencedError)
        with pytest.raises(OSError, match="Connect"):
            await asyncio.open_connection(*broker.advertised)
        await other.abort()
