"""Kafka's own command-line tools, each by the main class that its script starts."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.clients import WAIT_SECONDS, fresh, numbered, take
from conformance.java_client import (
    MAIN_CLASSES,
    JavaClient,
    Said,
    java_command,
    start_java_client,
)
from neve.protocol.messages import APIS
from support.brokers import RunningBroker


class Tools:
    """The tools, told where the broker is."""

    def __init__(self, client: JavaClient, bootstrap: str) -> None:
        self.client = client
        self.bootstrap = bootstrap

    def tried(self, name: str, *arguments: str, given: str = "") -> Said:
        there = ("--bootstrap-server", self.bootstrap)
        return self.client.tool(MAIN_CLASSES[name], *there, *arguments, given=given)

    def run(self, name: str, *arguments: str, given: str = "") -> str:
        """What it wrote; it has to end well."""
        said = self.tried(name, *arguments, given=given)
        assert said.code == 0, said
        return said.out

    def started(self, name: str, *arguments: str) -> list[dict[str, Any]]:
        """The JSON lines of a tool that runs in a machine of its own, as its script does it."""
        done = subprocess.run(
            java_command(MAIN_CLASSES[name], "--bootstrap-server", self.bootstrap, *arguments),
            capture_output=True,
            text=True,
            timeout=2 * WAIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def running(broker: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    client = start_java_client(broker.bootstrap, tmp_path_factory.mktemp("java") / "log")
    yield Tools(client, broker.bootstrap)
    client.close()


@pytest.fixture
def tools(running: Tools) -> Iterator[Tools]:
    yield running
    running.client.opened.close()


def rows(table: str) -> list[dict[str, str]]:
    """The lines of a table under its first one."""
    heading, *lines = [line.split() for line in table.splitlines() if line.strip()]
    return [dict(zip(heading, line, strict=False)) for line in lines]


def test_topics(tools: Tools) -> None:
    topic = fresh("by-tool")
    told = tools.run(
        "kafka-topics", "--create", "--topic", topic, "--partitions", "3",
        "--replication-factor", "1", "--config", "retention.ms=3600000",
    )  # fmt: skip
    assert told == f"Created topic {topic}.\n"
    assert topic in tools.run("kafka-topics", "--list").splitlines()
    assert tools.tried("kafka-topics", "--create", "--topic", topic).code == 1
    tools.run("kafka-topics", "--alter", "--topic", topic, "--partitions", "4")
    heading, *partitions = tools.run("kafka-topics", "--describe", "--topic", topic).splitlines()
    assert "PartitionCount: 4" in heading
    assert "Configs: retention.ms=3600000" in heading
    assert len(partitions) == 4
    assert all("Leader: 1\tReplicas: 1\tIsr: 1" in line for line in partitions)
    tools.run("kafka-topics", "--delete", "--topic", topic)
    assert topic not in tools.run("kafka-topics", "--list").splitlines()
    assert tools.tried("kafka-topics", "--describe", "--topic", topic).code == 1


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_to_console(tools: Tools, codec: str) -> None:
    topic = fresh(f"console-{codec}")
    lines = [f"grüße:wert ❄ {number}" for number in range(100)]
    tools.run(
        "kafka-console-producer", "--topic", topic, "--compression-codec", codec,
        "--property", "parse.key=true", "--property", "key.separator=:",
        given="".join(f"{line}\n" for line in lines),
    )  # fmt: skip
    shown = ("--property", "print.key=true", "--property", "key.separator=:")
    told = tools.run(
        "kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "100",
        *shown,
    )  # fmt: skip
    assert told.splitlines() == lines
    told = tools.run(
        "kafka-console-consumer", "--topic", topic, "--partition", "0", "--offset", "42",
        "--max-messages", "3", "--property", "print.offset=true",
    )  # fmt: skip
    assert told.splitlines() == [f"Offset:{at}\twert ❄ {at}" for at in (42, 43, 44)]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_the_console_producer_s_acks(tools: Tools, acks: str) -> None:
    topic = fresh(f"acks-{acks}")
    tools.client.create(topic)
    tools.run(
        "kafka-console-producer", "--topic", topic, "--request-required-acks", acks,
        "--producer-property", "enable.idempotence=false", given="a\nb\nc\n",
    )  # fmt: skip
    told = tools.run(
        "kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "3"
    )
    assert told == "a\nb\nc\n"


def group_offsets(tools: Tools, group: str) -> list[tuple[str, ...]]:
    found = rows(tools.run("kafka-consumer-groups", "--describe", "--group", group))
    names = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    return sorted(tuple(row[name] for name in names) for row in found)


def test_groups(tools: Tools) -> None:
    topic, group = fresh("grouped"), fresh("by-tool")
    tools.client.create(topic, partitions=2)
    tools.client.produce(topic, [*numbered(30), *numbered(20, partition=1)])
    tools.run(
        "kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "50",
        "--group", group,
    )  # fmt: skip
    assert group in tools.run("kafka-consumer-groups", "--list").splitlines()
    assert group in tools.run("kafka-groups", "--list")
    assert group_offsets(tools, group) == [("0", "30", "30", "0"), ("1", "20", "20", "0")]
    reset = ("--reset-offsets", "--group", group, "--execute", "--topic")
    tools.run("kafka-consumer-groups", *reset, topic, "--to-earliest")
    tools.run("kafka-consumer-groups", *reset, f"{topic}:1", "--shift-by", "5")
    assert group_offsets(tools, group) == [("0", "0", "30", "30"), ("1", "5", "20", "15")]
    tools.run("kafka-consumer-groups", *reset, topic, "--to-datetime", "2020-01-01T00:00:00.000")
    assert group_offsets(tools, group) == [("0", "0", "30", "30"), ("1", "0", "20", "20")]
    tools.run("kafka-consumer-groups", "--delete-offsets", "--group", group, "--topic", topic)
    tools.client.driver.call(
        "admin.set_group_offset", group=group, topic=topic, partition=0, offset=3
    )
    assert group_offsets(tools, group)[0] == ("0", "3", "30", "27")
    told = tools.run("kafka-consumer-groups", "--delete", "--group", group)
    assert "was successful" in told
    assert group not in tools.run("kafka-consumer-groups", "--list").splitlines()


def test_a_group_with_members(tools: Tools) -> None:
    topic, group = fresh("busy"), fresh("busy-group")
    tools.client.create(topic, partitions=3)
    tools.client.produce(topic, numbered(10))
    member = tools.client.member(group, topic, assignor="cooperative-sticky")
    take(member, 10)
    state = tools.run("kafka-consumer-groups", "--describe", "--group", group, "--state")
    assert re.search(rf"{group}\s.*\(1\)\s+cooperative-sticky\s+Stable\s+1", state)
    verbose = ("--describe", "--group", group, "--members", "--verbose")
    members = tools.run("kafka-consumer-groups", *verbose)
    assert f"{topic}:0,1,2" in members.replace(" ", "")
    refused = tools.tried("kafka-consumer-groups", "--delete", "--group", group)
    assert "GroupNotEmptyException" in refused.out


def test_configs(tools: Tools) -> None:
    topic = fresh("configured")
    tools.client.create(topic)
    about = ("--entity-type", "topics", "--entity-name", topic)
    tools.run(
        "kafka-configs",
        "--alter",
        *about,
        "--add-config",
        "retention.ms=7200000,segment.bytes=9999",
    )
    tools.run("kafka-configs", "--alter", *about, "--delete-config", "retention.ms")
    told = tools.run("kafka-configs", "--describe", *about)
    assert "segment.bytes=9999 " in told
    assert "retention.ms" not in told
    told = tools.run("kafka-configs", "--describe", "--all", *about)
    assert "retention.ms=604800000 " in told
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    assert "broker.id=1 " in tools.run("kafka-configs", "--describe", "--all", *broker)
    every = ("--entity-type", "brokers", "--entity-default")
    tools.run("kafka-configs", "--alter", *every, "--add-config", "log.retention.ms=5400000")
    assert "log.retention.ms=5400000 " in tools.run("kafka-configs", "--describe", *every)
    assert "retention.ms=5400000 " in tools.run("kafka-configs", "--describe", "--all", *about)
    tools.run("kafka-configs", "--alter", *every, "--delete-config", "log.retention.ms")


def test_offsets(tools: Tools, tmp_path: Path) -> None:
    topic = fresh("counted")
    tools.client.create(topic, partitions=2)
    tools.client.produce(topic, [*numbered(30), *numbered(20, partition=1)])

    def offsets(at: str) -> list[str]:
        return tools.run("kafka-get-offsets", "--topic", topic, "--time", at).splitlines()

    assert offsets("latest") == [f"{topic}:0:30", f"{topic}:1:20"]
    assert offsets("earliest") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert offsets("1000") == [f"{topic}:0:0", f"{topic}:1:0"]
    wanted = tmp_path / "offsets.json"
    place = {"topic": topic, "partition": 0, "offset": 12}
    wanted.write_text(json.dumps({"partitions": [place], "version": 1}))
    told = tools.run("kafka-delete-records", "--offset-json-file", str(wanted))
    assert f"partition: {topic}-0\tlow_watermark: 12" in told
    assert offsets("earliest") == [f"{topic}:0:12", f"{topic}:1:0"]
    told = tools.run("kafka-log-dirs", "--describe", "--topic-list", topic)
    folders = [row["logDirs"][0] for row in json.loads(told.splitlines()[-1])["brokers"]]
    sizes = {row["partition"]: row["size"] for each in folders for row in each["partitions"]}
    assert sorted(sizes) == [f"{topic}-0", f"{topic}-1"]
    assert all(size > 0 for size in sizes.values())


def test_what_the_broker_can_do(tools: Tools) -> None:
    told = tools.run("kafka-broker-api-versions")
    named = re.findall(r"^\t\w+\((\d+)\): (\d+)(?: to (\d+))? \[usable: \d+\]", told, re.MULTILINE)
    found = {int(key): (int(least), int(most or least)) for key, least, most in named}
    assert found == {key: (api.min_version, api.max_version) for key, api in APIS.items()}
    there = ("cluster-id", "--bootstrap-server", tools.bootstrap)
    told = tools.client.tool(MAIN_CLASSES["kafka-cluster"], *there).out
    assert re.fullmatch(r"Cluster ID: \S+\n", told)


def test_producers(tools: Tools) -> None:
    topic = fresh("produced")
    tools.client.create(topic)
    tools.client.produce(topic, numbered(7), idempotent=True)
    told = tools.run(
        "kafka-transactions", "describe-producers", "--topic", topic, "--partition", "0"
    )
    heading, row = told.splitlines()
    assert dict(zip(heading.split(), row.split(), strict=True))["LastSequence"] == "6"


def test_loads(tools: Tools) -> None:
    topic = fresh("loaded")
    arguments = ["--topic", topic, "--num-records", "5000", "--record-size", "100"]
    arguments += ["--throughput", "-1", "--producer-props", f"bootstrap.servers={tools.bootstrap}"]
    said = tools.client.tool(MAIN_CLASSES["kafka-producer-perf-test"], *arguments)
    assert said.out.splitlines()[-1].startswith("5000 records sent")
    told = tools.run("kafka-consumer-perf-test", "--topic", topic, "--messages", "5000")
    heading, figures = told.splitlines()
    found = dict(zip(heading.split(", "), figures.split(", "), strict=True))
    assert found["data.consumed.in.nMsg"] == "5000"


def test_verifiable_clients(tools: Tools) -> None:
    topic, group = fresh("verified"), fresh("verifying")
    tools.client.create(topic)
    events = tools.started("kafka-verifiable-producer", "--topic", topic, "--max-messages", "200")
    acked = [event for event in events if event["name"] == "producer_send_success"]
    assert [event["offset"] for event in acked] == list(range(200))
    assert [event["value"] for event in acked] == [str(number) for number in range(200)]
    assert events[-1]["name"] == "tool_data"
    assert (events[-1]["sent"], events[-1]["acked"]) == (200, 200)
    events = tools.started(
        "kafka-verifiable-consumer", "--topic", topic, "--group-id", group,
        "--max-messages", "200", "--reset-policy", "earliest", "--verbose",
    )  # fmt: skip
    read = [event for event in events if event["name"] == "record_data"]
    assert [event["offset"] for event in read] == list(range(200))
    assert [event["value"] for event in read] == [str(number) for number in range(200)]
    committed = [event for event in events if event["name"] == "offsets_committed"]
    assert all(event["success"] for event in committed)
    assert committed[-1]["offsets"] == [{"topic": topic, "partition": 0, "offset": 200}]
