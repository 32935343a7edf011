from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from neve.broker.admin.config_changes import ConfigOperation
from neve.broker.handlers import incremental_alter_configs
from neve.cluster.log import ClusterLog
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS as API
from support.broker_world import NODE_ID, alter, delay_next_refresh, start_broker, versions

LOWEST, HIGHEST = API.min_version, API.max_version
_Request = API.Request
TOPIC, BROKER = 2, 4
told = partial(alter, incremental_alter_configs, API)
LIST = "leader.replication.throttled.replicas"

Edit = tuple[str, int, str | None]


SET, DELETE, APPEND, SUBTRACT = ConfigOperation


def wanted(*edits: Edit, name: str = "t", kind: int = TOPIC) -> Any:
    rows = [
        _Request.Config(name=key, config_operation=operation, value=value)
        for key, operation, value in edits
    ]
    return _Request.Resource(resource_type=kind, resource_name=name, configs=rows)


@pytest.mark.parametrize("version", versions(API))
async def test_configs_are_set_and_taken_back_one_by_one(version: int) -> None:
    broker = await start_broker({"t": 1})
    await broker.node.topics.set_configs("t", {"retention.ms": "1", "retention.bytes": "2"}, ())
    (row,) = await told(
        broker,
        wanted(("segment.ms", SET, "3"), ("retention.ms", DELETE, None)),
        version=version,
    )
    assert (row.error_code, row.error_message) == (0, None)
    assert (row.resource_type, row.resource_name) == (TOPIC, "t")
    assert broker.topic("t").configs == {"retention.bytes": "2", "segment.ms": "3"}
    await broker.node.abort()


async def test_lists_grow_and_shrink() -> None:
    broker = await start_broker({"t": 1})
    for operation, value, expected in [
        (APPEND, "0:1,1:2", "0:1,1:2"),
        (APPEND, "1:2,2:3", "0:1,1:2,2:3"),
        (SUBTRACT, "0:1, 9:9", "1:2,2:3"),
    ]:
        (row,) = await told(broker, wanted((LIST, operation, value)))
        assert row.error_code == 0
        assert broker.topic("t").configs == {LIST: expected}
    await broker.node.abort()


async def test_a_list_that_was_not_set_grows_from_its_default() -> None:
    broker = await start_broker({"t": 1})
    (same,) = await told(broker, wanted(("cleanup.policy", APPEND, "delete")))
    assert same.error_code == 0
    assert broker.topic("t").configs == {"cleanup.policy": "delete"}
    (empty,) = await told(broker, wanted(("cleanup.policy", SUBTRACT, "delete")))
    assert empty.error_code == ErrorCode.INVALID_CONFIG
    assert broker.topic("t").configs == {"cleanup.policy": "delete"}
    await broker.node.abort()


async def test_taking_back_what_was_not_given_is_fine() -> None:
    broker = await start_broker({"t": 1})
    (row,) = await told(broker, wanted(("retention.ms", DELETE, None)))
    assert row.error_code == 0
    await broker.node.abort()


async def test_a_change_comes_after_an_earlier_one_that_timed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = await start_broker({"t": 1})
    await broker.node.topics.set_configs("t", {"retention.ms": "1000"})
    monkeypatch.setattr("neve.broker.admin.changes.WAIT_MS_LEAST", 50)
    release = delay_next_refresh(broker.node.cluster, monkeypatch)
    (late,) = await told(broker, wanted(("retention.ms", SET, "2000")))
    assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
    monkeypatch.setattr("neve.broker.admin.changes.WAIT_MS_LEAST", 5_000)
    again = asyncio.ensure_future(told(broker, wanted(("retention.ms", SET, "1000"))))
    await asyncio.sleep(0.01)
    release.set()
    (row,) = await again
    assert row.error_code == 0
    while len(broker.changing):
        await asyncio.sleep(0.001)
    assert broker.topic("t").configs == {"retention.ms": "1000"}
    await broker.node.abort()


async def test_a_change_is_made_though_the_broker_has_an_older_view() -> None:
    broker = await start_broker({"t": 1})
    await broker.node.topics.set_configs("t", {"retention.ms": "1000"})
    other = ClusterLog(broker.node.store)
    await other.set_configs("t", {"retention.ms": "2000"})
    (row,) = await told(broker, wanted(("retention.ms", SET, "1000")))
    assert row.error_code == 0
    assert (await other.refresh()).topic("t").configs == {"retention.ms": "1000"}
    await broker.node.abort()


async def test_validate_only_changes_nothing() -> None:
    broker = await start_broker({"t": 1})
    (fine,) = await told(broker, wanted(("retention.ms", SET, "5")), validate_only=True)
    (wrong,) = await told(broker, wanted(("retention.ms", SET, "x")), validate_only=True)
    assert (fine.error_code, wrong.error_code) == (0, ErrorCode.INVALID_CONFIG)
    assert broker.topic("t").configs == {}
    await broker.node.abort()


REFUSED = {
    "unknown config": (wanted(("nothing", SET, "1")), ErrorCode.INVALID_CONFIG),
    "unknown, taken back": (wanted(("nothing", DELETE, None)), ErrorCode.INVALID_CONFIG),
    "unknown list": (wanted(("nothing", APPEND, "1")), ErrorCode.INVALID_CONFIG),
    "bad value": (wanted(("retention.ms", SET, "soon")), ErrorCode.INVALID_CONFIG),
    "no list to grow": (wanted(("retention.ms", APPEND, "1")), ErrorCode.INVALID_CONFIG),
    "no list to shrink": (wanted(("retention.ms", SUBTRACT, "1")), ErrorCode.INVALID_CONFIG),
    "null set": (wanted(("retention.ms", SET, None)), ErrorCode.INVALID_REQUEST),
    "null appended": (wanted((LIST, APPEND, None)), ErrorCode.INVALID_REQUEST),
    "unknown operation": (wanted(("retention.ms", 4, "1")), ErrorCode.INVALID_REQUEST),
    "unknown topic": (wanted(name="none"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    "illegal topic": (wanted(name="a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "internal topic": (wanted(name="__consumer_offsets"), ErrorCode.INVALID_REQUEST),
    "another broker": (wanted(name=str(NODE_ID + 1), kind=BROKER), ErrorCode.INVALID_REQUEST),
    "setting": (
        wanted(("num.io.threads", SET, "8"), name=str(NODE_ID), kind=BROKER),
        ErrorCode.INVALID_REQUEST,
    ),
    "setting taken back": (
        wanted(("log.dirs", DELETE, None), name="", kind=BROKER),
        ErrorCode.INVALID_REQUEST,
    ),
    "broker's value": (
        wanted(("log.retention.ms", SET, "soon"), name=str(NODE_ID), kind=BROKER),
        ErrorCode.INVALID_CONFIG,
    ),
    "group": (wanted(name="g", kind=32), ErrorCode.INVALID_REQUEST),
}


@pytest.mark.parametrize("version", [LOWEST, HIGHEST])
@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_is_refused_beside_what_can(case: str, version: int) -> None:
    broker = await start_broker({"t": 1, "fine": 1, "__consumer_offsets": 1})
    resource, code = REFUSED[case]
    good = wanted(("retention.ms", SET, "9"), name="fine")
    refused, fine = await told(broker, resource, good, version=version)
    assert ErrorCode(refused.error_code) is code
    assert refused.error_message
    for config in resource.configs:
        assert config.name in refused.error_message
    assert fine.error_code == 0
    assert broker.topic("t").configs == {}
    assert broker.topic("fine").configs == {"retention.ms": "9"}
    await broker.node.abort()


async def test_nothing_is_named_twice() -> None:
    broker = await start_broker({"t": 1})
    edit = ("retention.ms", SET, "1")
    (resource_twice,) = await told(broker, wanted(edit), wanted(edit))
    (config_twice,) = await told(broker, wanted(edit, edit))
    assert resource_twice.error_code == config_twice.error_code == ErrorCode.INVALID_REQUEST
    assert broker.topic("t").configs == {}
    await broker.node.abort()
