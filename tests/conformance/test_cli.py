"""`neve topic`, `neve group` and `neve bench` against a broker of our own."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from support.brokers import RunningBroker
from support.cli_runs import BASE_MS, NEVE, SPANS, neve


def shown(broker: RunningBroker, *argv: str) -> Any:
    return json.loads(neve(broker.bootstrap, *argv, "--json"))


def lines(broker: RunningBroker, *argv: str) -> list[str]:
    return neve(broker.bootstrap, "topic", "consume", *argv).decode().splitlines()


def fill(broker: RunningBroker, name: str, *, partitions: int = 1, records: int = 20) -> None:
    """A topic whose partition 0 has records a second apart."""
    neve(broker.bootstrap, "topic", "create", name, "-p", str(partitions))
    rows = b"".join(b"%d k%d v%d\n" % (BASE_MS + 1000 * n, n, n) for n in range(records))
    produce = ["topic", "produce", name, "-p", "0", "-f", "%d %k %v"]
    told = json.loads(neve(broker.bootstrap, *produce, "--json", data=rows))
    assert (told["sent"], told["failed"]) == (records, 0)


# --- topics


def test_a_topic_s_life(broker: RunningBroker) -> None:
    at = broker.bootstrap
    create = ["topic", "create", "life.a", "life.b", "-p", "2", "-c", "retention.ms=3600000"]
    assert neve(at, *create) == b"created life.a\ncreated life.b\n"
    neve(at, "topic", "create", "life.a", code=1, told="topic life.a already exists")
    packed = ["-c", "compression.type=lz4"]
    assert neve(at, "topic", "create", "life.packed", *packed) == b"created life.packed\n"
    assert neve(at, *create, "--if-not-exists").count(b"already exists") == 2
    assert {"life.a", "life.b"} <= {row["name"] for row in shown(broker, "topic", "list")}

    found = shown(broker, "topic", "describe", "life.a")
    assert {row["leader"] for row in found["partitions"]} <= broker.node_ids
    assert [(row["start"], row["end"]) for row in found["partitions"]] == [(0, 0), (0, 0)]
    assert found["configs"] == [{"name": "retention.ms", "value": "3600000", "source": "topic"}]
    change = ["-p", "3", "-c", "segment.ms=60000", "--delete-config", "retention.ms"]
    neve(at, "topic", "alter", "life.a", *change)
    changed = shown(broker, "topic", "describe", "life.a")
    assert len(changed["partitions"]) == 3
    assert changed["configs"] == [{"name": "segment.ms", "value": "60000", "source": "topic"}]
    neve(at, "topic", "alter", "life.a", "-p", "1", code=1, told="not shrink to 1")
    neve(at, "topic", "alter", "life.a", "-c", "nonsense=1", code=1, told="topic life.a: ")

    delete = ["topic", "delete", "life.a", "nope", "life.b", "--yes"]
    told = "topic nope does not exist"
    assert neve(at, *delete, code=1, told=told) == b"deleted life.a\ndeleted life.b\n"
    neve(at, "topic", "create", "life.a")
    again = shown(broker, "topic", "describe", "life.a")
    assert again["id"] != found["id"]
    assert len(again["partitions"]) >= 1
    neve(at, "topic", "describe", "life.b", code=1, told="topic life.b does not exist")


def test_a_name_that_is_none(broker: RunningBroker) -> None:
    neve(broker.bootstrap, "topic", "create", "no/name", code=1, told="topic no/name: ")


@pytest.fixture(scope="module")
def timed(broker: RunningBroker) -> str:
    fill(broker, "timed")
    return "timed"


@pytest.mark.parametrize(("offsets", "first", "end"), SPANS)
def test_offsets_and_times(
    broker: RunningBroker, timed: str, offsets: str, first: int, end: int
) -> None:
    assert lines(broker, timed, "-o", offsets) == [f"v{n}" for n in range(first, end)]


def test_following_and_formats(broker: RunningBroker) -> None:
    fill(broker, "followed", records=3)
    command = [
        NEVE,
        "topic",
        "consume",
        "followed",
        "--follow",
        "-o",
        "2",
        "-f",
        "%o %d{iso} %k\\n",
    ]
    with subprocess.Popen(
        [*command, "--bootstrap", broker.bootstrap], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"2 2023-11-14T22:13:22.000Z k2\n"
        neve(broker.bootstrap, "topic", "produce", "followed", "-k", "late", data=b"x\n")
        assert process.stdout.readline().split()[::2] == [b"3", b"late"]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == b""


def test_every_codec_and_acks_from_topic_to_topic(broker: RunningBroker) -> None:
    neve(broker.bootstrap, "topic", "create", "packed")
    sent = b""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        for acks in ("0", "1", "all"):
            record = b"3 300 %s" % acks.ljust(3).encode() + codec.encode().ljust(300, b"\xff")
            argv = ["--compression", codec, "--acks", acks, "-f", "%K %V %k%v"]
            neve(broker.bootstrap, "topic", "produce", "packed", *argv, data=record)
            sent += record
    # What was sent without an answer may still be on its way.
    for _ in range(50):
        if shown(broker, "topic", "describe", "packed")["partitions"][0]["end"] == 15:
            break
        time.sleep(0.1)
    found = neve(broker.bootstrap, "topic", "consume", "packed", "-f", "%K %V %k%v")
    assert sorted(found.split(b"3 300 ")) == sorted(sent.split(b"3 300 "))


# --- groups


def test_a_group_s_life(broker: RunningBroker) -> None:
    at = broker.bootstrap
    fill(broker, "work", partitions=2)
    fill(broker, "other")
    assert lines(broker, "work", "-g", "crew", "-n", "5") == [f"v{n}" for n in range(5)]
    assert lines(broker, "work", "-g", "crew", "-n", "2") == ["v5", "v6"]
    assert {"group": "crew", "state": "Empty", "type": "Classic"} in shown(broker, "group", "list")

    (found,) = shown(broker, "group", "describe", "crew")
    rows = {(row["topic"], row["partition"]): row for row in found["partitions"]}
    behind = rows["work", 0]
    assert (found["state"], behind["committed"], behind["end"], behind["lag"]) == (
        "Empty",
        7,
        20,
        13,
    )
    age = time.time() - (BASE_MS / 1000 + 7)
    assert behind["lag_seconds"] == pytest.approx(age, abs=60)

    seek = ["group", "seek", "crew"]
    neve(at, *seek, "--to", "end", "--dry-run")
    assert lines(broker, "work", "-g", "crew", "-n", "1") == ["v7"]
    neve(at, *seek, "--to", f"@{BASE_MS + 18_000}", "--topics", "work")
    assert lines(broker, "work", "-g", "crew", "-n", "1") == ["v18"]
    neve(at, *seek, "--to", "-1", "--topics", "other", code=1, told="--allow-new-topics")
    neve(at, *seek, "--to", "-1", "--topics", "other", "--allow-new-topics")
    assert lines(broker, "other", "-g", "crew") == ["v19"]

    told = "group nobody does not exist"
    assert neve(at, "group", "delete", "crew", "nobody", code=1, told=told) == b"deleted crew\n"
    neve(at, "group", "describe", "crew", code=1, told="group crew does not exist")


@pytest.fixture
def member(broker: RunningBroker) -> Iterator[Consumer]:
    fill(broker, "held", partitions=2)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "live",
            "client.id": "the-client",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["held"])
    while consumer.poll(0.5) is None:
        pass
    yield consumer
    consumer.close()


def test_a_group_with_members(broker: RunningBroker, member: Consumer) -> None:
    assert [row["group"] for row in shown(broker, "group", "list", "--state", "stable")] == ["live"]
    (found,) = shown(broker, "group", "describe", "live")
    assert (found["state"], found["protocol"]) == ("Stable", "range")
    (only,) = found["members"]
    assert only["client"] == "the-client"
    assert [row["partition"] for row in only["assignment"]] == [0, 1]
    assert {row["member"] for row in found["partitions"]} == {only["member"]}
    at = broker.bootstrap
    neve(at, "group", "seek", "live", "--to", "start", code=1, told="live has 1 members")
    neve(at, "group", "delete", "live", code=1, told="group live still has members")


@contextlib.contextmanager
def reader_that_commits_nothing(broker: RunningBroker, topic: str, group: str) -> Iterator[None]:
    """A member of a cooperative group that holds all partitions until another one comes."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "partition.assignment.strategy": "cooperative-sticky",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    joined, over = threading.Event(), threading.Event()
    consumer.subscribe([topic], on_assign=lambda *_: joined.set())

    def poll() -> None:
        while not over.is_set():
            consumer.poll(0.1)

    polling = threading.Thread(target=poll)
    polling.start()
    try:
        assert joined.wait(30)
        yield
    finally:
        over.set()
        polling.join()
        consumer.close()


def test_a_member_waits_until_others_let_go_what_it_is_to_have(broker: RunningBroker) -> None:
    fill(broker, "shared", partitions=2, records=5)
    neve(broker.bootstrap, "topic", "produce", "shared", "-p", "1", data=b"v0\nv1\nv2\nv3\nv4\n")
    cooperative = ["-X", "partition.assignment.strategy=cooperative-sticky"]
    with reader_that_commits_nothing(broker, "shared", "sharing"):
        found = lines(broker, "shared", "-g", "sharing", "--timeout", "30", *cooperative)
        assert found == [f"v{n}" for n in range(5)]
        (left,) = shown(broker, "group", "describe", "sharing")
        assert len(left["members"]) == 1


# --- loads


def test_loads(broker: RunningBroker) -> None:
    argv = ["--topic", "load", "--records", "5000", "--partitions", "2", "--idempotent"]
    sent = shown(broker, "bench", "produce", *argv)
    assert (sent["records"], sent["errors"], sent["latency_ms"]["samples"]) == (5000, 0, 10)
    assert shown(broker, "bench", "consume", "--topic", "load")["records"] == 5002
    found = shown(broker, "bench", "latency", "--records", "20", "--end-to-end")
    assert found["latency_ms"]["samples"] == found["end_to_end_ms"]["samples"] == 20
    # The topic of a load without a name is thrown away.
    assert not [row for row in shown(broker, "topic", "list") if row["name"].startswith("neve-")]
