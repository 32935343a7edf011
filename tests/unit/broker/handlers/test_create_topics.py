from __future__ import annotations

from typing import Any

import pytest

from neve.broker.handlers import create_topics
from neve.cluster.topic_config import CONFIGS
from neve.errors import UnavailableError
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.create_topics import CREATE_TOPICS
from support.broker_world import NO_ID, StandIn, ask, start_broker, versions

LOWEST, HIGHEST = CREATE_TOPICS.min_version, CREATE_TOPICS.max_version
_Request = CREATE_TOPICS.Request


def wanted(name: str = "t", *, configs: dict[str, str | None] | None = None, **more: Any) -> Any:
    given = {"num_partitions": 1, "replication_factor": 1, **more}
    rows = [_Request.Config(name=key, value=value) for key, value in (configs or {}).items()]
    return _Request.Topic(name=name, configs=rows, **given)


def assigned(*partitions: tuple[int, list[int]]) -> Any:
    return [_Request.Assignment(partition_index=at, broker_ids=ids) for at, ids in partitions]


async def told(
    broker: StandIn, *topics: Any, version: int = HIGHEST, validate_only: bool = False
) -> list[Any]:
    answer = await ask(
        broker,
        create_topics,
        CREATE_TOPICS,
        version,
        topics=list(topics),
        validate_only=validate_only,
    )
    rows: list[Any] = answer.topics
    return rows


@pytest.mark.parametrize("version", versions(CREATE_TOPICS))
async def test_a_topic_is_created_in_every_version(version: int) -> None:
    broker = await start_broker()
    (row,) = await told(broker, wanted(num_partitions=2), version=version)
    topic = broker.topic("t")
    assert (row.name, row.error_code) == ("t", 0)
    assert len(topic.partitions) == 2
    assert broker.node.leader_of(topic.id_bytes, 1) is not None
    if version >= 1:
        assert row.error_message is None
    if version >= 5:
        assert (row.num_partitions, row.replication_factor) == (2, 1)
        assert {config.name for config in row.configs} == set(CONFIGS)
    if version >= 7:
        assert row.topic_id == topic.id_bytes
    await broker.node.abort()


async def test_configs_are_kept_and_told_with_their_source() -> None:
    broker = await start_broker()
    (row,) = await told(broker, wanted(configs={"retention.ms": "1000"}))
    assert broker.topic("t").configs == {"retention.ms": "1000"}
    configs = {config.name: config for config in row.configs}
    given, left = configs["retention.ms"], configs["retention.bytes"]
    assert (given.value, given.config_source, given.read_only) == ("1000", 1, False)
    assert (left.value, left.config_source) == ("-1", 5)
    # The broker's own setting differs from what is shipped.
    assert configs["segment.bytes"].config_source == 4
    await broker.node.abort()


async def test_a_number_of_partitions_left_open_is_the_broker_s() -> None:
    broker = await start_broker(default_partitions=5)
    (row,) = await told(broker, wanted(num_partitions=-1, replication_factor=-1))
    assert (row.error_code, row.num_partitions) == (0, 5)
    assert len(broker.topic("t").partitions) == 5
    await broker.node.abort()


@pytest.mark.parametrize("factor", [-1, 1, 3, 32_767])
async def test_any_replication_factor_is_taken_and_told_as_1(factor: int) -> None:
    broker = await start_broker()
    (row,) = await told(broker, wanted(replication_factor=factor))
    assert (row.error_code, row.replication_factor) == (0, 1)
    await broker.node.abort()


async def test_an_assignment_gives_the_partitions_and_the_brokers_that_should_lead_them() -> None:
    broker = await start_broker()
    topic = wanted(
        num_partitions=-1,
        replication_factor=-1,
        assignments=assigned((1, [7]), (0, [7]), (2, [7])),
    )
    (row,) = await told(broker, topic)
    assert (row.error_code, row.num_partitions) == (0, 3)
    assert broker.topic("t").preferred == {0: (7,), 1: (7,), 2: (7,)}
    await broker.node.abort()


@pytest.mark.parametrize("version", [1, HIGHEST])
async def test_validate_only_checks_and_creates_nothing(version: int) -> None:
    broker = await start_broker({"there": 1})
    fine, taken = await told(broker, wanted(), wanted("there"), version=version, validate_only=True)
    assert (fine.error_code, fine.topic_id) == (0, NO_ID)
    assert taken.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert broker.node.cluster.state.topic("t") is None
    if version >= 5:
        assert fine.num_partitions == 1
    await broker.node.abort()


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (wanted(configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (wanted(num_partitions=2**31 - 1), ErrorCode.INVALID_PARTITIONS),
    ],
)
async def test_validate_only_finds_what_creating_would(topic: Any, code: ErrorCode) -> None:
    broker = await start_broker()
    (row,) = await told(broker, topic, validate_only=True)
    assert ErrorCode(row.error_code) is code
    await broker.node.abort()


# --- refusals


REFUSED = {
    "illegal": (wanted("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "empty": (wanted(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "taken": (wanted("there.is"), ErrorCode.TOPIC_ALREADY_EXISTS),
    "too like": (wanted("there_is"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "internal": (wanted("__consumer_offsets"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "reserved": (wanted("__transaction_state"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "no partitions": (wanted(num_partitions=0), ErrorCode.INVALID_PARTITIONS),
    "fewer than none": (wanted(num_partitions=-2), ErrorCode.INVALID_PARTITIONS),
    "too many": (wanted(num_partitions=2**31 - 1), ErrorCode.INVALID_PARTITIONS),
    "factor 0": (wanted(replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
    "factor -2": (wanted(replication_factor=-2), ErrorCode.INVALID_REPLICATION_FACTOR),
    "assignment and count": (
        wanted(replication_factor=-1, assignments=assigned((0, [7]))),
        ErrorCode.INVALID_REQUEST,
    ),
    "assignment and factor": (
        wanted(num_partitions=-1, assignments=assigned((0, [7]))),
        ErrorCode.INVALID_REQUEST,
    ),
    "assignment with a hole": (
        wanted(num_partitions=-1, replication_factor=-1, assignments=assigned((0, [7]), (2, [7]))),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    "assignment twice": (
        wanted(num_partitions=-1, replication_factor=-1, assignments=assigned((0, [7]), (0, [7]))),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    "assignment to an unknown broker": (
        wanted(num_partitions=-1, replication_factor=-1, assignments=assigned((0, [99]))),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    "assignment to nobody": (
        wanted(num_partitions=-1, replication_factor=-1, assignments=assigned((0, []))),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
    "unknown config": (wanted(configs={"retention.mss": "1"}), ErrorCode.INVALID_CONFIG),
    "bad value": (wanted(configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
    "null value": (wanted(configs={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
}


@pytest.mark.parametrize("version", [LOWEST, HIGHEST])
@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_is_refused_beside_what_can(case: str, version: int) -> None:
    broker = await start_broker({"there.is": 1})
    topic, code = REFUSED[case]
    refused, fine = await told(broker, topic, wanted("fine"), version=version)
    assert (refused.name, ErrorCode(refused.error_code)) == (topic.name, code)
    assert fine.error_code == 0
    assert sorted(each.name for each in broker.node.cluster.state.topics.values()) == [
        "fine",
        "there.is",
    ]
    if version >= 1:
        assert refused.error_message
        for config in topic.configs:
            assert config.name in refused.error_message
    await broker.node.abort()


async def test_a_topic_named_twice_is_refused_once() -> None:
    broker = await start_broker()
    rows = await told(broker, wanted(), wanted("other"), wanted())
    codes = {row.name: row.error_code for row in rows}
    assert codes == {"t": ErrorCode.INVALID_REQUEST, "other": 0}
    assert len(rows) == 2
    assert broker.node.cluster.state.topic("t") is None
    await broker.node.abort()


async def test_a_store_that_fails_is_told_so_that_the_client_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = await start_broker()

    async def fails(*_: object) -> None:
        raise UnavailableError("meta/log", "it is down")

    monkeypatch.setattr(broker.node.topics, "create", fails)
    (row,) = await told(broker, wanted())
    assert ErrorCode(row.error_code).retriable
    await broker.node.abort()
