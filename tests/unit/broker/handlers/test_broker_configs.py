"""Configs of brokers over the wire: changed, shown with where they come from, and in force."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from neve.broker.admin.config_changes import ConfigOperation
from neve.broker.handlers import (
    alter_configs,
    create_topics,
    describe_configs,
    incremental_alter_configs,
    metadata,
)
from neve.broker.offsets_topic import OffsetsTopic
from neve.cluster.broker_config import set_broker_configs
from neve.cluster.records import ALL_NODES
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.alter_configs import ALTER_CONFIGS
from neve.protocol.messages.create_topics import CREATE_TOPICS
from neve.protocol.messages.describe_configs import DESCRIBE_CONFIGS
from neve.protocol.messages.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from neve.protocol.messages.metadata import METADATA
from support.broker_world import NODE_ID, StandIn, alter, ask, start_broker

TOPIC, BROKER = 2, 4
OF_TOPIC, OF_NODE, OF_ALL_NODES, OF_BROKER, DEFAULT = 1, 2, 3, 4, 5
OWN, ALL = str(NODE_ID), ""
_edit = partial(alter, incremental_alter_configs, INCREMENTAL_ALTER_CONFIGS)
_replace = partial(alter, alter_configs, ALTER_CONFIGS)


async def edit(broker: StandIn, name: str, validate_only: bool = False, **edits: str | None) -> Any:
    request = INCREMENTAL_ALTER_CONFIGS.Request
    rows = [
        request.Config(
            name=key.replace("_", "."),
            config_operation=ConfigOperation.DELETE if value is None else ConfigOperation.SET,
            value=value,
        )
        for key, value in edits.items()
    ]
    resource = request.Resource(resource_type=BROKER, resource_name=name, configs=rows)
    (row,) = await _edit(broker, resource, validate_only=validate_only)
    return row


async def replace(broker: StandIn, name: str, **values: str) -> Any:
    request = ALTER_CONFIGS.Request
    rows = [
        request.Config(name=key.replace("_", "."), value=value) for key, value in values.items()
    ]
    resource = request.Resource(resource_type=BROKER, resource_name=name, configs=rows)
    (row,) = await _replace(broker, resource)
    return row


async def shown(broker: StandIn, kind: int, name: str) -> dict[str, Any]:
    request = DESCRIBE_CONFIGS.Request
    asked = [request.Resource(resource_type=kind, resource_name=name, configuration_keys=None)]
    version = DESCRIBE_CONFIGS.max_version
    content: dict[str, Any] = {"resources": asked, "include_synonyms": True}
    answer = await ask(broker, describe_configs, DESCRIBE_CONFIGS, version, **content)
    return {config.name: config for config in answer.results[0].configs}


def synonyms(config: Any) -> list[tuple[str, str, int]]:
    return [(each.name, each.value, each.source) for each in config.synonyms]


async def test_values_are_shown_with_where_they_come_from() -> None:
    broker = await start_broker({"t": 1})
    assert (await edit(broker, ALL, log_retention_ms="1000", num_partitions="3")).error_code == 0
    assert (await edit(broker, OWN, log_retention_ms="2000")).error_code == 0
    own, every, topic = (
        await shown(broker, BROKER, OWN),
        await shown(broker, BROKER, ALL),
        await shown(broker, TOPIC, "t"),
    )
    changed = [("log.retention.ms", "2000", OF_NODE), ("log.retention.ms", "1000", OF_ALL_NODES)]
    assert synonyms(own["log.retention.ms"]) == [
        *changed,
        ("log.retention.ms", "604800000", DEFAULT),
    ]
    assert synonyms(own["num.partitions"]) == [
        ("num.partitions", "3", OF_ALL_NODES),
        ("num.partitions", "1", DEFAULT),
    ]
    setting = own["topics.default.partitions"]
    assert (setting.value, setting.read_only) == ("3", True)
    assert {name: (row.value, row.config_source) for name, row in every.items()} == {
        "log.retention.ms": ("1000", OF_ALL_NODES),
        "num.partitions": ("3", OF_ALL_NODES),
    }
    retention = topic["retention.ms"]
    assert (retention.value, retention.config_source) == ("2000", OF_NODE)
    assert synonyms(retention) == [*changed, ("retention.ms", "604800000", DEFAULT)]
    await broker.node.abort()


async def test_they_are_taken_back_and_replaced() -> None:
    broker = await start_broker({"t": 1})
    await edit(broker, OWN, log_retention_ms="1", num_partitions="3")
    await edit(broker, OWN, num_partitions=None)
    kept = broker.node.cluster.state.broker_configs
    assert kept == {NODE_ID: {"log.retention.ms": "1"}}
    assert (await replace(broker, OWN, log_roll_ms="5")).error_code == 0
    assert broker.node.cluster.state.broker_configs == {NODE_ID: {"log.roll.ms": "5"}}
    assert (await replace(broker, OWN)).error_code == 0
    assert broker.node.cluster.state.broker_configs == {}
    await broker.node.abort()


async def test_what_is_only_to_be_checked_changes_nothing() -> None:
    broker = await start_broker()
    fine = await edit(broker, ALL, validate_only=True, num_partitions="3")
    wrong = await edit(broker, ALL, validate_only=True, num_partitions="x")
    assert (fine.error_code, wrong.error_code) == (0, ErrorCode.INVALID_CONFIG)
    assert broker.node.cluster.state.broker_configs == {}
    await broker.node.abort()


async def test_values_that_contradict_what_is_kept_are_refused() -> None:
    broker = await start_broker()
    assert (await edit(broker, ALL, group_max_session_timeout_ms="10000")).error_code == 0
    row = await edit(broker, OWN, group_min_session_timeout_ms="20000")
    assert row.error_code == ErrorCode.INVALID_CONFIG
    assert "group.max.session.timeout.ms (10000)" in row.error_message
    await broker.node.abort()


async def created(broker: StandIn, name: str) -> int:
    request = CREATE_TOPICS.Request
    topic = request.Topic(name=name, num_partitions=-1, replication_factor=-1)
    version = CREATE_TOPICS.max_version
    await ask(broker, create_topics, CREATE_TOPICS, version, topics=[topic], timeout_ms=9000)
    return len(broker.topic(name).partitions)


async def test_new_topics_follow_at_once() -> None:
    broker = await start_broker()
    assert await created(broker, "before") == 1
    await edit(broker, ALL, num_partitions="3", auto_create_topics_enable="false")
    assert await created(broker, "after") == 3
    asked = [METADATA.Request.Topic(name="unknown")]
    answer = await ask(broker, metadata, METADATA, 9, topics=asked, allow_auto_topic_creation=True)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await broker.node.abort()


@pytest.mark.parametrize("name", [OWN, ALL])
async def test_groups_follow_at_once(name: str) -> None:
    broker = await start_broker()
    state = OffsetsTopic(broker.node, broker.settings.groups)
    await edit(broker, name, group_min_session_timeout_ms="123")
    assert state.groups.settings.min_session_timeout_ms == 123
    node_id = ALL_NODES if name == ALL else NODE_ID
    await set_broker_configs(broker.node.cluster, node_id, {}, ["group.min.session.timeout.ms"])
    assert state.groups.settings == broker.settings.groups
    await state.close()
    await broker.node.abort()
