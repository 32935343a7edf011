from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neve.broker.handlers import alter_configs
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.alter_configs import ALTER_CONFIGS
from support.broker_world import NODE_ID, alter, start_broker, versions

LOWEST, HIGHEST = ALTER_CONFIGS.min_version, ALTER_CONFIGS.max_version
_Request = ALTER_CONFIGS.Request
TOPIC, BROKER = 2, 4
told = partial(alter, alter_configs, ALTER_CONFIGS)


def wanted(configs: dict[str, str | None], name: str = "t", kind: int = TOPIC) -> Any:
    rows = [_Request.Config(name=key, value=value) for key, value in configs.items()]
    return _Request.Resource(resource_type=kind, resource_name=name, configs=rows)


@pytest.mark.parametrize("version", versions(ALTER_CONFIGS))
async def test_what_is_given_replaces_what_was_there(version: int) -> None:
    broker = await start_broker({"t": 1})
    await broker.node.topics.set_configs("t", {"retention.ms": "1", "retention.bytes": "2"}, ())
    (row,) = await told(
        broker, wanted({"retention.bytes": "3", "segment.ms": "4"}), version=version
    )
    assert (row.error_code, row.error_message) == (0, None)
    assert (row.resource_type, row.resource_name) == (TOPIC, "t")
    assert broker.topic("t").configs == {"retention.bytes": "3", "segment.ms": "4"}
    await broker.node.abort()


async def test_nothing_given_leaves_nothing() -> None:
    broker = await start_broker({"t": 1})
    await broker.node.topics.set_configs("t", {"retention.ms": "1"}, ())
    (row,) = await told(broker, wanted({}))
    assert row.error_code == 0
    assert broker.topic("t").configs == {}
    await broker.node.abort()


async def test_validate_only_changes_nothing() -> None:
    broker = await start_broker({"t": 1})
    (fine,) = await told(broker, wanted({"retention.ms": "5"}), validate_only=True)
    (wrong,) = await told(broker, wanted({"retention.ms": "x"}), validate_only=True)
    assert (fine.error_code, wrong.error_code) == (0, ErrorCode.INVALID_CONFIG)
    assert broker.topic("t").configs == {}
    await broker.node.abort()


REFUSED = {
    "unknown config": (wanted({"retention.mss": "1"}), ErrorCode.INVALID_CONFIG),
    "bad value": (wanted({"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
    "null": (wanted({"retention.ms": None}), ErrorCode.INVALID_REQUEST),
    "unknown topic": (wanted({}, "none"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "illegal topic": (wanted({}, "a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "internal topic": (wanted({}, "__consumer_offsets"), ErrorCode.INVALID_REQUEST),
    "another broker": (wanted({}, str(NODE_ID + 1), BROKER), ErrorCode.INVALID_REQUEST),
    "setting": (wanted({"broker.rack": "a"}, str(NODE_ID), BROKER), ErrorCode.INVALID_REQUEST),
    "broker's value": (wanted({"num.partitions": "0"}, "", BROKER), ErrorCode.INVALID_CONFIG),
    "logger": (wanted({}, str(NODE_ID), 8), ErrorCode.INVALID_REQUEST),
}


@pytest.mark.parametrize("version", [LOWEST, HIGHEST])
@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_is_refused_beside_what_can(case: str, version: int) -> None:
    broker = await start_broker({"t": 1, "fine": 1, "__consumer_offsets": 1})
    resource, code = REFUSED[case]
    refused, fine = await told(
        broker, resource, wanted({"retention.ms": "9"}, "fine"), version=version
    )
    assert ErrorCode(refused.error_code) is code
    assert refused.error_message
    for config in resource.configs:
        assert config.name in refused.error_message
    assert fine.error_code == 0
    assert broker.topic("t").configs == {}
    assert broker.topic("fine").configs == {"retention.ms": "9"}
    await broker.node.abort()


async def test_a_resource_named_twice_is_refused_once() -> None:
    broker = await start_broker({"t": 1})
    (row,) = await told(broker, wanted({"retention.ms": "1"}), wanted({}))
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert broker.topic("t").configs == {}
    await broker.node.abort()


async def test_a_config_named_twice_is_refused_and_nothing_is_replaced() -> None:
    broker = await start_broker({"t": 1})
    await broker.node.topics.set_configs("t", {"retention.bytes": "2"}, ())
    resource = wanted({"retention.ms": "1"})
    resource.configs.append(_Request.Config(name="retention.ms", value="5"))
    (row,) = await told(broker, resource)
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert "retention.ms" in row.error_message
    assert broker.topic("t").configs == {"retention.bytes": "2"}
    await broker.node.abort()
