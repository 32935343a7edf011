"""`neve topic`: what is asked of a broker, what is shown, and how it ends."""

from __future__ import annotations

import json
import os

import pytest
from confluent_kafka.admin import ConfigSource

from neve.cli import main
from neve.cli.connection import BrokerFlags
from support.kafka_fakes import FakeCluster


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster({"t": {0: (5, 10), 1: (0, 0)}, "__consumer_offsets": {0: (0, 1)}})
    monkeypatch.setattr(BrokerFlags, "connect", lambda _: made)
    return made


def run(capfd: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(argv)
    out, err = capfd.readouterr()
    return code, out, err


def test_create(cluster: FakeCluster, capfd: pytest.CaptureFixture[str]) -> None:
    told = run(capfd, "topic", "create", "a", "b", "a", "-p", "3", "-c", "retention.ms=5")
    assert told == (0, "created a\ncreated b\n", "")
    config = {"retention.ms": "5"}
    assert cluster.calls == [("create", "a", 3, -1, config), ("create", "b", 3, -1, config)]


def test_create_what_exists(cluster: FakeCluster, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "topic", "create", "t", "a")
    assert (code, out) == (1, "created a\n")
    assert err == "neve: topic t already exists: use --if-not-exists to ignore this\n"
    told = run(capfd, "topic", "create", "t", "--if-not-exists")
    assert told == (0, "t already exists\n", "")


def test_list(cluster: FakeCluster, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capfd, "topic", "list")
    assert (code, [line.split() for line in out.splitlines()]) == (
        0,
        [["TOPIC", "PARTITIONS", "REPLICAS"], ["t", "2", "1"]],
    )
    _, out, _ = run(capfd, "topic", "list", "--internal", "--json")
    assert [row["name"] for row in json.loads(out)] == ["__consumer_offsets", "t"]


def test_describe(cluster: FakeCluster, capfd: pytest.CaptureFixture[str]) -> None:
    cluster.configs["t"] = {
        "retention.ms": ("5", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        "segment.ms": ("7", ConfigSource.DEFAULT_CONFIG),
        "max.message.bytes": ("9", ConfigSource.STATIC_BROKER_CONFIG),
    }
    code, out, _ = run(capfd, "topic", "describe", "t", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["name"], found["id"], found["internal"]) == ("t", "an-id_", False)
    assert [
        (row["partition"], row["leader"], row["start"], row["end"]) for row in found["partitions"]
    ] == [
        (0, 1, 5, 10),
        (1, 1, 0, 0),
    ]
    assert found["configs"] == [
        {"name": "max.message.bytes", "value": "9", "source": "broker's file"},
        {"name": "retention.ms", "value": "5", "source": "topic"},
    ]
    _, out, _ = run(capfd, "topic", "describe", "t")
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["t:", "id", "an-id_"]
    assert lines[3] == ["0", "1", "1", "1", "5", "10", "5"]
    assert lines[-1] == ["retention.ms", "5", "topic"]


@pytest.mark.parametrize("command", ["describe", "consume", "produce"])
def test_an_unknown_topic(
    command: str, cluster: FakeCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capfd, "topic", command, "nope")
    assert (code, out) == (1, "")
    assert err == "neve: topic nope does not exist: `neve topic list` lists the topics\n"


def test_alter(cluster: FakeCluster, capfd: pytest.CaptureFixture[str]) -> None:
    argv = ["-p", "4", "-c", "retention.ms=5", "--delete-config", "segment.ms"]
    code, out, _ = run(capfd, "topic", "alter", "t", *argv)
    assert code == 0
    assert out.splitlines() == [
        "t: partitions increased from 2 to 4",
        "t: retention.ms set to 5",
        "t: segment.ms reset to its default",
    ]
    assert cluster.calls == [
        ("partitions", "t", 4),
        ("config", "retention.ms", "5", "SET"),
        ("config", "segment.ms", None, "DELETE"),
    ]


def test_alter_what_cannot_be(cluster: FakeCluster, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capfd, "topic", "alter", "t", "-p", "1")
    assert code == 1
    assert "cannot shrink to 1" in err
    code, out, _ = run(capfd, "topic", "alter", "t", "-p", "2")
    assert (code, out) == (0, "t already has 2 partitions\n")
    code, _, err = run(capfd, "topic", "alter", "t", "-c", "nonsense=1")
    assert (code, err) == (1, "neve: topic t: no such config\n")
    assert [call[0] for call in cluster.calls] == ["config"]


def test_a_change_that_comes_late_is_waited_for(
    cluster: FakeCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with Kafka, whose brokers hear of a topic a moment after its controller has made it."""
    known, asked = cluster._metadata, []

    def late(name: str) -> object:
        asked.append(name)
        return known(name if len(asked) > 3 else "unknown yet")

    monkeypatch.setattr(cluster, "_metadata", late)
    assert run(capfd, "topic", "create", "new")[:2] == (0, "created new\n")
    assert asked[2:] == ["new", "new"]


def test_delete_asks_first(
    cluster: FakeCluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run(capfd, "topic", "delete", "t")
    assert code == 2
    assert "add --yes" in err
    monkeypatch.setattr(os, "isatty", lambda _: True)
    monkeypatch.setattr("builtins.input", lambda _: "n")
    assert run(capfd, "topic", "delete", "t") == (1, "", "neve: nothing was deleted\n")

    def ctrl_d(_: str) -> str:
        raise EOFError

    monkeypatch.setattr("builtins.input", ctrl_d)
    assert run(capfd, "topic", "delete", "t") == (1, "\n", "neve: nothing was deleted\n")
    assert cluster.calls == []
    monkeypatch.setattr("builtins.input", lambda _: "y")
    assert run(capfd, "topic", "delete", "t")[:2] == (0, "deleted t\n")
    run(capfd, "topic", "create", "t")
    code, out, err = run(capfd, "topic", "delete", "nope", "t", "--yes")
    assert (code, out) == (1, "deleted t\n")
    assert err.startswith("neve: topic nope does not exist")


@pytest.mark.parametrize(
    "argv",
    [
        ["create"],
        ["create", "a", "-p", "0"],
        ["create", "a", "-c", "retention.ms"],
        ["create", "a", "-c", "x=1", "-c", "x=2"],
        ["alter", "t"],
        ["alter", "t", "-c", "a=1", "--delete-config", "a"],
        ["produce", "t", "-f", "%q"],
        ["produce", "t", "-H", "nothing"],
        ["produce", "t", "-p", "-1"],
        ["produce", "t", "--acks", "2"],
        ["consume", "t", "-o", "soon"],
        ["consume", "t", "-o", "20:10"],
        ["consume", "t", "-f", "%q"],
        ["consume", "t", "-f", "%v", "--json"],
        ["consume", "t", "-p", "a"],
        ["consume", "t", "-n", "-1"],
        ["consume", "t", "-o", "end"],
        ["consume", "t", "-g", "g", "-p", "0"],
        ["consume", "t", "-g", "g", "-o", "47"],
    ],
)
def test_what_is_not_understood_ends_with_2(
    argv: list[str], cluster: FakeCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capfd, "topic", *argv)
    assert (code, out) == (2, "")
    assert err.startswith("neve: ")
    assert len(err.splitlines()) == 1
    assert cluster.calls == []


def test_consume_with_nothing_to_read_ends(
    cluster: FakeCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    for argv in (["-p", "1"], ["-n", "0"], ["-o", "10:"], ["-o", "2:5"], ["-o", "@-1h"]):
        assert run(capfd, "topic", "consume", "t", *argv) == (0, "", "")
    code, _, err = run(capfd, "topic", "consume", "t", "-p", "7")
    assert (code, err) == (
        1,
        "neve: partition 7 does not exist in topic t; valid partitions: 0-1\n",
    )


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_help_shows_escapes_as_they_are_written(
    capfd: pytest.CaptureFixture[str], command: str
) -> None:
    _, out, _ = run(capfd, "topic", command, "--help")
    assert r"Escapes: \n \t \r \0 \\ \xNN." in " ".join(out.split())
    assert command == "produce" or "%H" in out
