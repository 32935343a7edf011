from __future__ import annotations

import asyncio
from typing import Any

import pytest

from neve.broker.handlers import delete_topics
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.delete_topics import DELETE_TOPICS
from support.broker_world import (
    NO_ID,
    StandIn,
    ask,
    delay_next_refresh,
    produce,
    start_broker,
    versions,
)

LOWEST, HIGHEST = DELETE_TOPICS.min_version, DELETE_TOPICS.max_version


async def told(broker: StandIn, version: int, *names: str) -> list[Any]:
    topics = [DELETE_TOPICS.Request.Topic(name=name) for name in names]
    rows: list[Any] = (
        await ask(
            broker, delete_topics, DELETE_TOPICS, version, topics=topics, topic_names=list(names)
        )
    ).responses
    return rows


async def told_by_id(broker: StandIn, *ids: bytes, name: str | None = None) -> list[Any]:
    topics = [DELETE_TOPICS.Request.Topic(name=name, topic_id=each) for each in ids]
    rows: list[Any] = (
        await ask(broker, delete_topics, DELETE_TOPICS, HIGHEST, topics=topics)
    ).responses
    return rows


@pytest.mark.parametrize("version", versions(DELETE_TOPICS))
async def test_topics_are_deleted_by_name_in_every_version(version: int) -> None:
    broker = await start_broker({"a": 1, "b": 1, "kept": 1})
    topic_id = broker.topic("a").id_bytes
    first, second = await told(broker, version, "a", "b")
    assert [(row.name, row.error_code) for row in (first, second)] == [("a", 0), ("b", 0)]
    assert first.topic_id == (topic_id if version >= 6 else NO_ID)
    assert broker.node.cluster.state.topic("a") is None
    assert broker.node.leader_of(topic_id, 0) is None
    assert broker.node.cluster.state.topic("kept") is not None
    await broker.node.abort()


async def test_a_topic_is_deleted_by_its_id() -> None:
    broker = await start_broker({"t": 1})
    topic_id = broker.topic("t").id_bytes
    (row,) = await told_by_id(broker, topic_id)
    assert (row.error_code, row.name, row.topic_id) == (0, "t", topic_id)
    assert broker.node.cluster.state.topic("t") is None
    await broker.node.abort()


async def test_deleting_by_id_spares_a_topic_that_took_the_name_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = await start_broker({"t": 1})
    topic_id = broker.topic("t").id_bytes
    release = delay_next_refresh(broker.node.cluster, monkeypatch)
    deleting = asyncio.ensure_future(told_by_id(broker, topic_id))
    await asyncio.sleep(0.01)
    await told(broker, HIGHEST, "t")
    await broker.node.topics.create("t", 1)
    release.set()
    (row,) = await deleting
    assert (row.error_code, row.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, topic_id)
    assert broker.topic("t").id_bytes != topic_id
    await broker.node.abort()


async def test_a_topic_created_again_is_another_and_empty() -> None:
    broker = await start_broker({"t": 1})
    await produce(broker, "t", 3)
    topic_id = broker.topic("t").id_bytes
    await told(broker, HIGHEST, "t")
    await broker.node.topics.create("t", 1)
    assert broker.topic("t").id_bytes != topic_id
    assert await produce(broker, "t", 1) == 0
    (row,) = await told_by_id(broker, topic_id)
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert broker.node.cluster.state.topic("t") is not None
    await broker.node.abort()


@pytest.mark.parametrize("version", [LOWEST, HIGHEST])
async def test_what_cannot_be_deleted_is_told_beside_what_can(version: int) -> None:
    broker = await start_broker({"t": 1, "__consumer_offsets": 1})
    rows = await told(broker, version, "none", "__consumer_offsets", "a b", "t")
    assert {row.name: row.error_code for row in rows} == {
        "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "__consumer_offsets": ErrorCode.INVALID_REQUEST,
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "t": 0,
    }
    if version >= 5:
        assert all(row.error_message for row in rows if row.error_code)
    assert broker.node.cluster.state.topic("__consumer_offsets") is not None
    await broker.node.abort()


async def test_an_unknown_id_is_told_without_a_name() -> None:
    broker = await start_broker()
    (row,) = await told_by_id(broker, b"\x05" * 16)
    assert (row.error_code, row.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    assert row.topic_id == b"\x05" * 16
    await broker.node.abort()


async def test_a_topic_is_named_in_one_way_and_once() -> None:
    broker = await start_broker({"t": 1})
    topic_id = broker.topic("t").id_bytes
    (both,) = await told_by_id(broker, topic_id, name="t")
    (neither,) = await told_by_id(broker, NO_ID)
    (twice,) = await told(broker, HIGHEST, "t", "t")
    (twice_by_id,) = await told_by_id(broker, topic_id, topic_id)
    for row in (both, neither, twice, twice_by_id):
        assert row.error_code == ErrorCode.INVALID_REQUEST
    assert broker.node.cluster.state.topic("t") is not None
    await broker.node.abort()


async def test_a_topic_named_by_its_name_and_its_id_is_refused() -> None:
    broker = await start_broker({"t": 1, "other": 1})
    row = DELETE_TOPICS.Request.Topic
    topics = [
        row(name="t"),
        row(name="other"),
        row(name=None, topic_id=broker.topic("t").id_bytes),
    ]
    answer = await ask(broker, delete_topics, DELETE_TOPICS, HIGHEST, topics=topics)
    twice = ErrorCode.INVALID_REQUEST
    assert [each.error_code for each in answer.responses] == [twice, 0, twice]
    assert broker.node.cluster.state.topic("t") is not None
    assert broker.node.cluster.state.topic("other") is None
    await broker.node.abort()
