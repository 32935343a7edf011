"""Topic configs: what is taken, what is refused and why, what they amount to, and their page."""

from __future__ import annotations

from pathlib import Path

import pytest

from neve.cluster.topic_config import (
    CONFIGS,
    LONG_MAX,
    ConfigDefinition,
    InvalidConfigError,
    TopicConfig,
    check_configs,
    default_text,
)
from neve.settings import MIB, SegmentSettings

PAGE = Path(__file__).parents[3] / "docs" / "users" / "topics.md"
SEGMENT = SegmentSettings()


def of(**configs: str) -> TopicConfig:
    return TopicConfig.of({key.replace("_", "."): v for key, v in configs.items()}, SEGMENT)


# --- what tools set


@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup.policy": "delete", "retention.ms": "604800000", "segment.bytes": "52428800"},
        {"retention.ms": "-1", "retention.bytes": "-1", "message.timestamp.type": "CreateTime"},
        {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"},
        {"compression.type": "lz4"},
        {"compression.type": "uncompressed"},
        {"compression.type": "producer", "max.message.bytes": "2097164", "flush.ms": "1000"},
        {"segment.bytes": "2147483647", "segment.ms": "9223372036854775807"},
        {"min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100"},
        {"leader.replication.throttled.replicas": "0:1,1:2", "preallocate": "TRUE"},
        {"local.retention.ms": "-2", "remote.storage.enable": "true"},
    ],
)
def test_what_tools_commonly_set_is_taken(configs: dict[str, str]) -> None:
    check_configs(configs)
    TopicConfig.of(configs, SEGMENT)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("cleanup.policy", "compact", "not supported yet"),
        ("cleanup.policy", "compact,delete", "not supported yet"),
        ("cleanup.policy", "", "is empty"),
        ("cleanup.policy", "keep", "must be one of delete"),
        ("compression.type", "brotli", "must be one of producer"),
        ("retention.ms", "a week", "must be an integer"),
        ("retention.ms", "1_000", "must be an integer"),
        ("retention.ms", "-2", "must be >= -1"),
        ("retention.ms", str(LONG_MAX + 1), "must be <="),
        ("segment.bytes", str(2**31), "must be <="),
        ("min.insync.replicas", "0", "must be >= 1"),
        ("min.cleanable.dirty.ratio", "nan", "must be a number"),
        ("min.cleanable.dirty.ratio", "1.5", "must be <="),
        ("message.timestamp.type", "createtime", "must be one of CreateTime, LogAppendTime"),
        ("preallocate", "yes", "must be true or false"),
    ],
)
def test_a_value_that_cannot_be_is_refused_with_its_reason(
    name: str, value: str, reason: str
) -> None:
    with pytest.raises(InvalidConfigError, match=reason) as raised:
        check_configs({name: value})
    assert str(raised.value).startswith(f"{name} = {value!r} ")


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidConfigError, match=r"'retention\.m'.*did you mean retention\.ms"):
        check_configs({"retention.m": "1"})
    with pytest.raises(InvalidConfigError, match=r"'confluent\.tier'"):
        check_configs({"confluent.tier": "true"})


@pytest.mark.parametrize("about", CONFIGS.values(), ids=lambda about: about.name)
def test_every_default_is_allowed(about: ConfigDefinition) -> None:
    text = default_text(about, SEGMENT)
    if text or about.kind != "list":
        about.check(text)


# --- what they amount to


def test_without_configs_kafka_s_defaults_hold_and_the_broker_s_for_segments() -> None:
    config = of()
    assert config.retention_ms == 7 * 24 * 3600 * 1000
    assert config.retention_bytes == -1
    assert config.max_message_bytes == 1_048_588
    assert (config.segment_bytes, config.segment_ms) == (SEGMENT.bytes, SEGMENT.ms)
    assert not config.log_append_time
    assert config.timestamp_before_max_ms == config.timestamp_after_max_ms == LONG_MAX


def test_a_topic_may_have_smaller_segments_but_no_larger_ones_than_fit_in_memory() -> None:
    assert of(segment_bytes=str(MIB)).segment_bytes == MIB
    assert of(segment_bytes=str(1024 * MIB)).segment_bytes == SEGMENT.bytes
    assert of(segment_bytes="14").segment_bytes == 1024


def test_the_one_difference_of_times_holds_where_the_two_are_not_given() -> None:
    both = of(message_timestamp_difference_max_ms="5")
    assert (both.timestamp_before_max_ms, both.timestamp_after_max_ms) == (5, 5)
    one = of(message_timestamp_difference_max_ms="5", message_timestamp_after_max_ms="9")
    assert (one.timestamp_before_max_ms, one.timestamp_after_max_ms) == (5, 9)
    assert of(message_timestamp_type="LogAppendTime").log_append_time


def test_what_cannot_be_read_is_refused_and_what_is_unknown_is_not_looked_at() -> None:
    with pytest.raises(InvalidConfigError):
        of(retention_ms="soon")
    assert TopicConfig.of({"from.the.future": "1"}, SEGMENT) == of()


# --- the page


def row(about: ConfigDefinition) -> str:
    default = "the broker's" if about.default is None else f"`{about.default}`"
    if about.default == "":
        default = "empty"
    bounds = ""
    if about.choices:
        bounds = ", ".join(f"`{choice}`" for choice in about.choices)
    elif about.minimum is not None:
        highest = {2**31 - 1: "2^31-1", LONG_MAX: "2^63-1"}.get(about.maximum or 0, about.maximum)
        bounds = f"{about.minimum} to {highest}"
    return f"| `{about.name}` | {about.kind} | {default} | {bounds} | {about.doc} |"


@pytest.mark.parametrize("effective", [True, False])
def test_the_page_lists_every_config_as_it_is(effective: bool) -> None:
    expected = [row(about) for about in CONFIGS.values() if about.effective is effective]
    of_topics = PAGE.read_text().split("## Configs of brokers")[0]
    part = of_topics.split("## Configs that change nothing")[0 if effective else 1]
    found = [line for line in part.splitlines() if line.startswith("| `")]
    assert found == expected, "\n".join(expected)
