from __future__ import annotations

from typing import Any

import pytest

from neve.broker.handlers import create_partitions
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.create_partitions import CREATE_PARTITIONS
from support.broker_world import StandIn, ask, produce, start_broker, versions

LOWEST, HIGHEST = CREATE_PARTITIONS.min_version, CREATE_PARTITIONS.max_version
_Request = CREATE_PARTITIONS.Request


def wanted(name: str, count: int, assignments: list[list[int]] | None = None) -> Any:
    rows = None
    if assignments is not None:
        rows = [_Request.Assignment(broker_ids=ids) for ids in assignments]
    return _Request.Topic(name=name, count=count, assignments=rows)


async def told(
    broker: StandIn, *topics: Any, version: int = HIGHEST, validate_only: bool = False
) -> list[Any]:
    rows: list[Any] = (
        await ask(
            broker,
            create_partitions,
            CREATE_PARTITIONS,
            version,
            topics=list(topics),
            validate_only=validate_only,
        )
    ).results
    return rows


@pytest.mark.parametrize("version", versions(CREATE_PARTITIONS))
async def test_a_topic_grows_and_its_new_partitions_are_led(version: int) -> None:
    broker = await start_broker({"t": 1})
    (row,) = await told(broker, wanted("t", 3), version=version)
    assert (row.name, row.error_code, row.error_message) == ("t", 0, None)
    assert len(broker.topic("t").partitions) == 3
    assert await produce(broker, "t", 1, partition=2) == 0
    await broker.node.abort()


async def test_assignments_are_for_the_new_partitions_alone() -> None:
    broker = await start_broker({"t": 1})
    (row,) = await told(broker, wanted("t", 3, [[7], [7]]))
    assert row.error_code == 0
    assert len(broker.topic("t").partitions) == 3
    assert broker.topic("t").preferred == {1: (7,), 2: (7,)}
    await broker.node.abort()


async def test_validate_only_changes_nothing() -> None:
    broker = await start_broker({"t": 1})
    (fine,) = await told(broker, wanted("t", 3), validate_only=True)
    (wrong,) = await told(broker, wanted("t", 1), validate_only=True)
    assert (fine.error_code, wrong.error_code) == (0, ErrorCode.INVALID_PARTITIONS)
    assert len(broker.topic("t").partitions) == 1
    await broker.node.abort()


REFUSED = {
    "as many": (wanted("t", 2), ErrorCode.INVALID_PARTITIONS),
    "fewer": (wanted("t", 1), ErrorCode.INVALID_PARTITIONS),
    "below none": (wanted("t", -1), ErrorCode.INVALID_PARTITIONS),
    "too many": (wanted("t", 2**31 - 1), ErrorCode.INVALID_PARTITIONS),
    "unknown": (wanted("none", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "illegal": (wanted("a b", 3), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "internal": (wanted("__consumer_offsets", 3), ErrorCode.INVALID_REQUEST),
    "too few assignments": (wanted("t", 4, [[7]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    "assigned to an unknown broker": (
        wanted("t", 3, [[99]]),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    "assigned to nobody": (wanted("t", 3, [[]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
}


@pytest.mark.parametrize("version", [LOWEST, HIGHEST])
@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_is_refused_beside_what_can(case: str, version: int) -> None:
    broker = await start_broker({"t": 2, "fine": 1, "__consumer_offsets": 1})
    topic, code = REFUSED[case]
    refused, fine = await told(broker, topic, wanted("fine", 2), version=version)
    assert ErrorCode(refused.error_code) is code
    assert refused.error_message
    assert fine.error_code == 0
    assert len(broker.topic("t").partitions) == 2
    assert len(broker.topic("fine").partitions) == 2
    await broker.node.abort()


async def test_a_topic_named_twice_is_refused_once() -> None:
    broker = await start_broker({"t": 1})
    (row,) = await told(broker, wanted("t", 2), wanted("t", 3))
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert len(broker.topic("t").partitions) == 1
    await broker.node.abort()
