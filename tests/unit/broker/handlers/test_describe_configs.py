from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from neve.broker.admin.configs import ConfigType
from neve.broker.handlers import describe_configs
from neve.cluster.broker_config import BROKER_CONFIGS
from neve.cluster.topic_config import CONFIGS
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.describe_configs import DESCRIBE_CONFIGS
from neve.settings import Settings, declared
from support.broker_world import NODE_ID, StandIn, ask, start_broker, versions

HIGHEST = DESCRIBE_CONFIGS.max_version
_Resource = DESCRIBE_CONFIGS.Request.Resource
TOPIC, BROKER = 2, 4
OF_TOPIC, OF_BROKER, DEFAULT = 1, 4, 5
BOOLEAN, STRING, INT, LONG, LIST = 1, 2, 3, 5, 7


async def told(
    broker: StandIn,
    kind: int = TOPIC,
    name: str = "t",
    *,
    keys: list[str] | None = None,
    version: int = HIGHEST,
    **more: Any,
) -> Any:
    asked = [_Resource(resource_type=kind, resource_name=name, configuration_keys=keys)]
    answer = await ask(broker, describe_configs, DESCRIBE_CONFIGS, version, resources=asked, **more)
    (result,) = answer.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def by_name(result: Any) -> dict[str, Any]:
    found = {config.name: config for config in result.configs}
    assert len(found) == len(result.configs)
    return found


@pytest.mark.parametrize("version", versions(DESCRIBE_CONFIGS))
async def test_a_topic_s_configs_are_told_in_every_version(version: int) -> None:
    broker = await start_broker({"t": 1})
    await broker.node.topics.set_configs("t", {"retention.ms": "1000"}, ())
    result = await told(broker, version=version)
    assert (result.error_code, result.error_message) == (0, None)
    configs = by_name(result)
    assert set(configs) == set(CONFIGS)
    given, left = configs["retention.ms"], configs["retention.bytes"]
    assert (given.value, given.read_only, given.is_sensitive) == ("1000", False, False)
    if version == 0:
        assert (given.is_default, left.is_default) == (False, True)
    else:
        assert (given.config_source, left.config_source) == (OF_TOPIC, DEFAULT)
    assert given.synonyms == []
    if version >= 3:
        assert (given.config_type, configs["cleanup.policy"].config_type) == (LONG, LIST)
        assert configs["preallocate"].config_type == BOOLEAN
        assert configs["message.timestamp.type"].config_type == STRING
        assert configs["max.message.bytes"].config_type == INT
        assert given.documentation is None
    await broker.node.abort()


async def test_synonyms_go_from_the_value_that_counts_to_the_default() -> None:
    broker = await start_broker({"t": 1})
    await broker.node.topics.set_configs("t", {"segment.bytes": "2048", "retention.ms": "1000"}, ())
    configs = by_name(await told(broker, include_synonyms=True))

    def synonyms(name: str) -> list[tuple[str, int]]:
        return [(each.value, each.source) for each in configs[name].synonyms]

    shipped = str(Settings().segment.bytes)
    assert synonyms("segment.bytes") == [
        ("2048", OF_TOPIC),
        ("400", OF_BROKER),
        (shipped, DEFAULT),
    ]
    assert synonyms("retention.ms") == [("1000", OF_TOPIC), ("604800000", DEFAULT)]
    assert synonyms("retention.bytes") == [("-1", DEFAULT)]
    assert configs["segment.ms"].config_source == OF_BROKER
    await broker.node.abort()


async def test_documentation_is_told_where_asked_for() -> None:
    broker = await start_broker({"t": 1})
    configs = by_name(await told(broker, include_documentation=True))
    assert configs["retention.ms"].documentation == CONFIGS["retention.ms"].doc
    await broker.node.abort()


@pytest.mark.parametrize("version", [0, HIGHEST])
async def test_keys_choose_configs_and_unknown_ones_are_passed_over(version: int) -> None:
    broker = await start_broker({"t": 1})
    some = await told(broker, keys=["retention.ms", "nothing"], version=version)
    assert set(by_name(some)) == {"retention.ms"}
    everything = await told(broker, keys=[], version=version)
    assert set(by_name(everything)) == set(CONFIGS)
    await broker.node.abort()


@pytest.mark.parametrize("version", [0, HIGHEST])
async def test_a_broker_s_settings_are_told(version: int) -> None:
    broker = await start_broker()
    configs = by_name(await told(broker, BROKER, str(NODE_ID), version=version))
    assert set(configs) >= set(declared())
    assert {name for name, row in configs.items() if not row.read_only} == set(BROKER_CONFIGS)
    assert configs["segment.bytes"].value == "400"
    assert configs["topics.auto.create"].value == "true"
    if version:
        assert configs["segment.bytes"].config_source == OF_BROKER
        assert configs["topics.auto.create"].config_source == DEFAULT
    await broker.node.abort()


async def test_credentials_in_a_setting_are_masked() -> None:
    broker = await start_broker()
    store = replace(broker.settings.store, endpoint="http://user:hunter2@127.0.0.1:9000")
    broker.settings = replace(broker.settings, store=store)
    result = await told(broker, BROKER, str(NODE_ID), include_synonyms=True)
    assert by_name(result)["store.endpoint"].value == "http://***@127.0.0.1:9000"
    assert "hunter2" not in repr(result)
    await broker.node.abort()


async def test_what_tools_look_for_has_kafka_s_names_too() -> None:
    broker = await start_broker(default_partitions=4, auto_create=False)
    configs = by_name(await told(broker, BROKER, str(NODE_ID)))
    assert {name: configs[name].value for name in ("num.partitions", "log.segment.bytes")} == {
        "num.partitions": "4",
        "log.segment.bytes": "400",
    }
    assert configs["auto.create.topics.enable"].value == "false"
    assert configs["broker.id"].value == str(NODE_ID)
    assert configs["message.max.bytes"].value == CONFIGS["max.message.bytes"].default
    await broker.node.abort()


async def test_no_settings_are_shared_by_all_brokers() -> None:
    broker = await start_broker()
    result = await told(broker, BROKER, "")
    assert (result.error_code, result.configs) == (0, [])
    await broker.node.abort()


@pytest.mark.parametrize("version", [0, HIGHEST])
@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "99", ErrorCode.INVALID_REQUEST),
        (BROKER, "me", ErrorCode.INVALID_REQUEST),
        (8, str(NODE_ID), ErrorCode.INVALID_REQUEST),
        (32, "group", ErrorCode.INVALID_REQUEST),
        (0, "t", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_has_no_configs_is_told_as_such(
    kind: int, name: str, code: ErrorCode, version: int
) -> None:
    broker = await start_broker({"t": 1})
    result = await told(broker, kind, name, version=version)
    assert (ErrorCode(result.error_code), result.configs) == (code, [])
    assert result.error_message
    await broker.node.abort()


async def test_every_type_of_setting_has_a_number() -> None:
    broker = await start_broker()
    entries = broker.configs.describe(BROKER, str(NODE_ID))
    assert all(entry.type in ConfigType for entry in entries)
    assert len({entry.name for entry in entries}) == len(entries)
    assert all(entry.type in ConfigType for entry in broker.configs.topic_entries({}))
    await broker.node.abort()
