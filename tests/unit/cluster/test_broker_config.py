"""Broker configs: what is taken, what they amount to, and their page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from neve.cluster.broker_config import (
    BROKER_CONFIGS,
    BrokerConfigs,
    FixedConfigError,
    check_broker_configs,
    set_broker_configs,
    topic_defaults,
)
from neve.cluster.node import Node
from neve.cluster.records import ALL_NODES
from neve.cluster.state import BrokerRegistration, ClusterState
from neve.cluster.topic_config import InvalidConfigError
from neve.settings import Settings
from neve.store.memory import MemoryBucket, MemoryStore
from support.node_world import small_settings, take_over

PAGE = Path(__file__).parents[3] / "docs" / "users" / "topics.md"
NODE = BrokerRegistration(node_id=7, incarnation=3, session="s", inflight=1, at_ms=0)


def state(**configs: dict[str, str]) -> ClusterState:
    nodes = {"every": ALL_NODES, "own": 7, "other": 8}
    kept = {nodes[name]: given for name, given in configs.items()}
    return ClusterState(brokers={3: NODE}, broker_configs=kept)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("log.retention.ms", "soon", "must be an integer"),
        ("compression.type", "brotli", "must be one of producer"),
        ("num.partitions", "0", "must be >= 1"),
        ("auto.create.topics.enable", "maybe", "must be true or false"),
        ("group.min.session.timeout.ms", "9000000", "exceeds group.max.session.timeout.ms"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_reason(
    name: str, value: str, reason: str
) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        check_broker_configs({name: value}, Settings())


def test_what_is_read_at_the_start_is_refused_with_what_is_not() -> None:
    with pytest.raises(FixedConfigError, match=r"'num\.partition' .*did you mean num\.partitions"):
        check_broker_configs({"num.partition": "3"}, Settings())
    with pytest.raises(FixedConfigError, match=r"these can be: auto\.create\.topics\.enable, "):
        check_broker_configs({"wal.linger.ms": "3"}, Settings())


def test_a_node_s_own_configs_count_before_those_of_all() -> None:
    every = {"log.retention.ms": "1", "num.partitions": "3", "log.roll.ms": "9"}
    configs = BrokerConfigs(Settings(), state(every=every, own={"log.retention.ms": "2"}), 3)
    assert configs.topic_defaults == {"retention.ms": "2", "segment.ms": "9"}
    assert configs.settings.topics.default_partitions == 3
    assert topic_defaults(state(every=every, other={"log.roll.ms": "4"}), 3) == {
        "retention.ms": "1",
        "segment.ms": "9",
    }
    assert topic_defaults(state(every={"log.roll.ms": "4"}), -1) == {"segment.ms": "4"}


def test_changes_are_told_once_and_can_be_taken_back() -> None:
    configs = BrokerConfigs(Settings(), state(), 3)
    told: list[bool] = []
    configs.on_change.append(lambda: told.append(configs.settings.topics.auto_create))
    off = {"auto.create.topics.enable": "false"}
    assert configs.apply(state(own=off))
    assert not configs.apply(state(own=off, other={"num.partitions": "9"}))
    assert configs.apply(state())
    assert told == [False, True]


def test_what_another_version_kept_leaves_all_as_it_was(caplog: pytest.LogCaptureFixture) -> None:
    configs = BrokerConfigs(Settings(), state(own={"num.partitions": "3"}), 3)
    assert not configs.apply(state(own={"num.partitions": "4", "from.the.future": "1"}))
    assert configs.settings.topics.default_partitions == 3
    assert "from.the.future" in caplog.text


async def test_topics_without_configs_of_their_own_have_a_changed_default_at_once_and_later() -> (
    None
):
    bucket, settings = MemoryBucket(), small_settings()
    node = await Node.start(MemoryStore(bucket), settings, node_id=7, probe=False)
    await node.topics.create("plain", 1)
    await node.topics.create("own", 1, {"retention.ms": "5", "compression.type": "gzip"})
    given = {"log.retention.ms": "9", "compression.type": "zstd", "log.segment.bytes": "300"}
    await set_broker_configs(node.cluster, ALL_NODES, given)
    for _ in range(2):
        plain, own = (node.leader(name, 0).config for name in ("plain", "own"))
        assert (plain.retention_ms, plain.codec, own.retention_ms, own.codec) == (9, 4, 5, 1)
        assert plain.segment_bytes == min(1024, settings.segment.bytes)
        assert sorted(node.led.codecs.values()) == [1, 4]
        await node.close()
        node = await Node.start(MemoryStore(bucket), settings, node_id=7, probe=False)
        await take_over(node)
    await set_broker_configs(node.cluster, ALL_NODES, {}, list(given))
    assert node.leader("plain", 0).config.retention_ms == 604_800_000
    assert list(node.led.codecs.values()) == [1]
    await node.close()


def test_settings_are_kept_as_they_were_started_with() -> None:
    started = replace(Settings(), topics=replace(Settings().topics, default_partitions=5))
    configs = BrokerConfigs(started, state(own={"num.partitions": "6"}), 3)
    assert configs.settings.topics.default_partitions == 6
    configs.apply(state())
    assert configs.settings is not started
    assert configs.settings.topics.default_partitions == 5


def test_the_page_lists_every_config_as_it_is() -> None:
    part = PAGE.read_text().split("## Configs of brokers")[1]
    found = [line for line in part.splitlines() if line.startswith("| `")]
    expected = []
    for name, row in sorted(BROKER_CONFIGS.items()):
        stands_for = (
            f"the setting `{row.setting}`"
            if row.setting
            else f"the default of a topic's `{row.topic_config}`"
        )
        expected.append(f"| `{name}` | {row.about.kind} | {stands_for} |")
    assert found == expected, "\n".join(expected)
