"""How long clients wait for changes of the cluster while the store hangs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import pytest

from neve import runtime
from neve.broker.admin import changes
from neve.broker.handlers import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    init_producer_id,
    metadata,
)
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.alter_configs import ALTER_CONFIGS
from neve.protocol.messages.create_partitions import CREATE_PARTITIONS
from neve.protocol.messages.create_topics import CREATE_TOPICS
from neve.protocol.messages.delete_records import DELETE_RECORDS
from neve.protocol.messages.delete_topics import DELETE_TOPICS
from neve.protocol.messages.init_producer_id import INIT_PRODUCER_ID
from neve.protocol.messages.metadata import METADATA
from neve.store.memory import MemoryStore
from neve.store.port import Buffer
from support.broker_world import StandIn, ask, produce, start_broker

TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
Asking = Callable[[StandIn], Awaitable[int]]


@asynccontextmanager
async def hanging(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[StandIn, asyncio.Event]]:
    """A broker whose store keeps every create waiting until the event is set."""
    broker = await start_broker({"t": 1})
    await produce(broker, "t", 3)
    released = asyncio.Event()
    create = MemoryStore.create

    async def held(store: MemoryStore, key: str, data: Buffer) -> None:
        await released.wait()
        await create(store, key, data)

    monkeypatch.setattr(MemoryStore, "create", held)
    monkeypatch.setattr(changes, "WAIT_MS_LEAST", 20)
    try:
        yield broker, released
    finally:
        released.set()
        await broker.changing.join()
        await broker.node.close()


async def creating(broker: StandIn, *names: str, timeout_ms: int = 50) -> list[int]:
    topics = [
        CREATE_TOPICS.Request.Topic(name=name, num_partitions=1, replication_factor=1)
        for name in names
    ]
    answer = await ask(
        broker, create_topics, CREATE_TOPICS, 7, topics=topics, timeout_ms=timeout_ms
    )
    return [row.error_code for row in answer.topics]


async def growing(broker: StandIn) -> int:
    topic = CREATE_PARTITIONS.Request.Topic(name="t", count=2, assignments=None)
    return await _code(broker, create_partitions, CREATE_PARTITIONS, "results", topic)


async def deleting(broker: StandIn) -> int:
    topic = DELETE_TOPICS.Request.Topic(name="t")
    return await _code(broker, delete_topics, DELETE_TOPICS, "responses", topic)


async def trimming(broker: StandIn) -> int:
    request = DELETE_RECORDS.Request
    topic = request.Topic(name="t", partitions=[request.Partition(partition_index=0, offset=2)])
    answer = await ask(broker, delete_records, DELETE_RECORDS, 2, topics=[topic], timeout_ms=50)
    return int(answer.topics[0].partitions[0].error_code)


async def altering(broker: StandIn) -> int:
    request = ALTER_CONFIGS.Request
    config = request.Config(name="retention.ms", value="1000")
    resource = request.Resource(resource_type=2, resource_name="t", configs=[config])
    answer = await ask(broker, alter_configs, ALTER_CONFIGS, 2, resources=[resource])
    return int(answer.responses[0].error_code)


async def _code(broker: StandIn, handler: ModuleType, api: Any, rows: str, topic: Any) -> int:
    answer = await ask(broker, handler, api, api.max_version, topics=[topic], timeout_ms=50)
    return int(getattr(answer, rows)[0].error_code)


@pytest.mark.parametrize("asking", [growing, deleting, trimming, altering])
async def test_a_change_takes_no_longer_than_its_client_waits(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with hanging(monkeypatch) as (broker, _), runtime.deadline(5):
        assert await asking(broker) == TIMED_OUT


async def test_a_change_that_timed_out_may_yet_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    async with hanging(monkeypatch) as (broker, released):
        async with runtime.deadline(5):
            assert await creating(broker, "late", "unbegun") == [TIMED_OUT, TIMED_OUT]
        released.set()
        await broker.changing.join()
        assert broker.node.cluster.state.topic("late") is not None
        assert broker.node.cluster.state.topic("unbegun") is None
        assert await creating(broker, "next") == [ErrorCode.NONE]


async def test_a_timer_that_rings_early_begins_no_further_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deadline = runtime.deadline
    async with hanging(monkeypatch) as (broker, released):
        monkeypatch.setattr(runtime, "deadline", lambda seconds: deadline(seconds / 2))
        assert await creating(broker, "late", "unbegun") == [TIMED_OUT, TIMED_OUT]
        monkeypatch.setattr(runtime, "deadline", deadline)
        released.set()
        await broker.changing.join()
        assert broker.node.cluster.state.topic("unbegun") is None


async def test_changes_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "CHANGES_MAX", 2)
    async with hanging(monkeypatch) as (broker, _):
        for name in ("a", "b", "c", "d"):
            assert await creating(broker, name) == [TIMED_OUT]
        assert len(broker.changing) == 2


async def test_metadata_of_other_topics_does_not_wait_for_one_that_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with hanging(monkeypatch) as (broker, released):
        topics = [METADATA.Request.Topic(name=name) for name in ("new", "t")]
        async with runtime.deadline(5):
            answer = await ask(broker, metadata, METADATA, 9, topics=topics)
        codes = [(row.name, row.error_code) for row in answer.topics]
        assert codes == [("new", ErrorCode.LEADER_NOT_AVAILABLE), ("t", ErrorCode.NONE)]
        released.set()
        await broker.changing.join()
        answer = await ask(broker, metadata, METADATA, 9, topics=topics)
        assert [row.error_code for row in answer.topics] == [ErrorCode.NONE, ErrorCode.NONE]


async def test_who_asks_for_a_producer_id_is_told_to_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with hanging(monkeypatch) as (broker, released):

        async def asked() -> int:
            answer = await ask(broker, init_producer_id, INIT_PRODUCER_ID, 4, transactional_id=None)
            return int(answer.error_code)

        async with runtime.deadline(5):
            assert await asked() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        released.set()
        await broker.changing.join()
        assert await asked() == ErrorCode.NONE
