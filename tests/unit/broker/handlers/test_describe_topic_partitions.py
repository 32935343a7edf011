from __future__ import annotations

from typing import Any

import pytest

from neve.broker.access import TOPIC_OPERATIONS
from neve.broker.handlers import describe_topic_partitions
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.describe_topic_partitions import DESCRIBE_TOPIC_PARTITIONS as API
from support.broker_world import NODE_ID, StandIn, ask, start_broker

_Request = API.Request


async def told(broker: StandIn, *names: str, **more: Any) -> Any:
    topics = [_Request.Topic(name=name) for name in names]
    return await ask(broker, describe_topic_partitions, API, 0, topics=topics, **more)


def cursor(name: str, number: int) -> Any:
    return _Request.Cursor(topic_name=name, partition_index=number)


def shown(answer: Any) -> list[tuple[str, list[int]]]:
    return [
        (topic.name, [part.partition_index for part in topic.partitions]) for topic in answer.topics
    ]


async def test_a_topic_is_told_whole() -> None:
    broker = await start_broker({"t": 1})
    answer = await told(broker, "t")
    (topic,) = answer.topics
    assert (topic.error_code, topic.topic_id) == (0, broker.topic("t").id_bytes)
    assert topic.topic_authorized_operations == TOPIC_OPERATIONS
    (part,) = topic.partitions
    assert (part.leader_id, part.leader_epoch, part.isr_nodes) == (NODE_ID, 0, [NODE_ID])
    assert (part.eligible_leader_replicas, part.last_known_elr) == ([], [])
    assert answer.next_cursor is None
    await broker.node.abort()


async def test_pages_hold_so_many_partitions_and_say_where_the_next_begins() -> None:
    broker = await start_broker({"b": 3, "a": 2})
    first = await told(broker, response_partition_limit=3)
    assert shown(first) == [("a", [0, 1]), ("b", [0])]
    assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == ("b", 1)
    rest = await told(broker, response_partition_limit=3, cursor=cursor("b", 1))
    assert shown(rest) == [("b", [1, 2])]
    assert rest.next_cursor is None
    await broker.node.abort()


async def test_a_page_that_ends_with_a_topic_points_to_the_next_one() -> None:
    broker = await start_broker({"a": 2, "b": 1})
    answer = await told(broker, response_partition_limit=2)
    assert shown(answer) == [("a", [0, 1])]
    assert (answer.next_cursor.topic_name, answer.next_cursor.partition_index) == ("b", 0)
    await broker.node.abort()


@pytest.mark.parametrize("limit", [0, -5])
async def test_every_page_holds_at_least_one_partition(limit: int) -> None:
    broker = await start_broker({"a": 2})
    answer = await told(broker, response_partition_limit=limit)
    assert shown(answer) == [("a", [0])]
    await broker.node.abort()


async def test_a_cursor_at_a_topic_that_is_gone_goes_on_behind_it() -> None:
    broker = await start_broker({"a": 1, "c": 2})
    answer = await told(broker, cursor=cursor("b", 1))
    assert shown(answer) == [("c", [0, 1])]
    beyond = await told(broker, cursor=cursor("c", 9))
    assert shown(beyond) == [("c", [])]
    await broker.node.abort()


async def test_a_negative_cursor_is_refused() -> None:
    broker = await start_broker({"a": 1})
    answer = await told(broker, cursor=cursor("a", -1))
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_REQUEST]
    await broker.node.abort()


async def test_what_is_not_there_is_told_beside_what_is_and_never_created() -> None:
    broker = await start_broker({"t": 1})
    answer = await told(broker, "t", "none", "a b")
    codes = {topic.name: topic.error_code for topic in answer.topics}
    assert codes == {
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "t": 0,
    }
    assert broker.node.cluster.state.topic("none") is None
    await broker.node.abort()
