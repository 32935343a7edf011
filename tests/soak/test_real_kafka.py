"""`neve topic`, `neve group` and the loads of `neve bench` against a broker of Apache Kafka.

Each command is a process of its own, as a user starts it. The broker creates topics that are asked
for, as Kafka does unless told otherwise, so a command that looks something up could make one.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer

from neve.bench.spark import peer
from neve.errors import InvalidError
from support.cli_runs import BASE_MS, NEVE, SPANS

pytestmark = pytest.mark.soak
SECONDS_MAX = 120


class Kafka(NamedTuple):
    """A broker and where its files are."""

    bootstrap: str
    folder: Path


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    folder = tmp_path_factory.mktemp("kafka")
    with contextlib.ExitStack() as stack:
        try:
            bootstrap = stack.enter_context(peer.kafka(folder, heap="512m"))
        except (peer.NoPeerError, InvalidError) as error:  # no Maven, no way to it, or no Java
            pytest.skip(f"no Kafka: {error}")
        yield Kafka(bootstrap, folder)


def neve(kafka: Kafka, *argv: str, data: bytes = b"", code: int = 0, told: str = "") -> str:
    """Run a command on an input; its output. It ends as said, and tells that in one line."""
    done = subprocess.run(
        [NEVE, *argv, "--bootstrap", kafka.bootstrap],
        input=data,
        capture_output=True,
        check=False,
        timeout=SECONDS_MAX,
    )
    said = done.stderr.decode()
    assert done.returncode == code, said
    assert told in said
    assert len(said.splitlines()) == (1 if told else 0), said
    return done.stdout.decode()


def shown(kafka: Kafka, *argv: str) -> Any:
    return json.loads(neve(kafka, *argv, "--json"))


def lines(kafka: Kafka, *argv: str) -> list[str]:
    return neve(kafka, "topic", "consume", *argv).splitlines()


def names(kafka: Kafka) -> set[str]:
    return {row["name"] for row in shown(kafka, "topic", "list")}


def fill(kafka: Kafka, name: str, *, partitions: int = 1) -> None:
    """A topic whose partition 0 has 20 records a second apart."""
    neve(kafka, "topic", "create", name, "-p", str(partitions))
    rows = b"".join(b"%d k%d v%d\n" % (BASE_MS + 1000 * n, n, n) for n in range(20))
    told = neve(kafka, "topic", "produce", name, "-p", "0", "-f", "%d %k %v", data=rows)
    assert told == f"sent 20 records to {name}: 20 to partition 0\n"


# --- topics


def test_a_topic_s_life(kafka: Kafka) -> None:
    create = ["topic", "create", "life.a", "life.b", "-p", "2", "-r", "1"]
    create += ["-c", "retention.ms=3600000"]
    assert neve(kafka, *create) == "created life.a\ncreated life.b\n"
    neve(kafka, "topic", "create", "life.a", code=1, told="topic life.a already exists")
    assert neve(kafka, *create, "--if-not-exists").count("already exists") == 2
    row = {"name": "life.a", "partitions": 2, "replicas": 1}
    assert row in shown(kafka, "topic", "list")
    assert ["life.b", "2", "1"] in [
        line.split() for line in neve(kafka, "topic", "list").split("\n")
    ]

    found = shown(kafka, "topic", "describe", "life.a")
    assert [(each["leader"], each["start"], each["end"]) for each in found["partitions"]] == [
        (1, 0, 0),
        (1, 0, 0),
    ]
    assert {"name": "retention.ms", "value": "3600000", "source": "topic"} in found["configs"]
    neve(kafka, "topic", "alter", "life.a", "-p", "3", "-c", "segment.ms=60000")
    neve(kafka, "topic", "alter", "life.a", "--delete-config", "retention.ms")
    changed = shown(kafka, "topic", "describe", "life.a")
    assert len(changed["partitions"]) == 3
    assert [each for each in changed["configs"] if each["source"] == "topic"] == [
        {"name": "segment.ms", "value": "60000", "source": "topic"}
    ]
    assert f"life.a: id {found['id']}\n" in neve(kafka, "topic", "describe", "life.a")

    neve(kafka, "topic", "delete", "life.a", code=2, told="add --yes")
    delete = ["topic", "delete", "life.a", "nope", "life.b", "--yes"]
    told = neve(kafka, *delete, code=1, told="topic nope does not exist")
    assert told == "deleted life.a\ndeleted life.b\n"
    assert not {"life.a", "life.b"} & names(kafka)
    neve(kafka, "topic", "create", "life.a")
    assert shown(kafka, "topic", "describe", "life.a")["id"] != found["id"]


def test_ids_are_written_as_kafka_writes_them(kafka: Kafka) -> None:
    wanted = [f"id-{n}" for n in range(4)]  # half of all ids are the same in both base64
    neve(kafka, "topic", "create", *wanted)
    for name in wanted:
        neve(kafka, "topic", "produce", name, data=b"x\n")
        written = (kafka.folder / "logs" / f"{name}-0" / "partition.metadata").read_text()
        found = shown(kafka, "topic", "describe", name)["id"]
        assert f"topic_id: {found}" in written.splitlines()


def test_what_kafka_refuses_is_told(kafka: Kafka) -> None:
    neve(kafka, "topic", "create", "firm", "-p", "2")
    alter = ["topic", "alter", "firm"]
    neve(kafka, *alter, "-p", "1", code=1, told="topic firm has 2 partitions: their number can")
    neve(kafka, *alter, "-c", "nonsense=1", code=1, told="topic firm: Unknown topic config name")
    neve(kafka, *alter, "-c", "retention.ms=x", code=1, told="topic firm: Invalid value x")
    neve(kafka, "topic", "create", "no/name", code=1, told="topic no/name: Topic name is invalid")
    neve(
        kafka, "topic", "create", "wide", "-r", "3", code=1, told="topic wide: Unable to replicate"
    )
    neve(
        kafka,
        "topic",
        "consume",
        "firm",
        "-p",
        "7",
        code=1,
        told="partition 7 does not exist in topic firm",
    )
    neve(
        kafka,
        "topic",
        "produce",
        "firm",
        "-p",
        "7",
        code=1,
        told="partition 7 does not exist in topic firm",
    )
    neve(kafka, "topic", "consume", "firm", "-o", "x", code=2, told="'x' is not a valid offset")


def test_looking_for_a_topic_does_not_create_it(kafka: Kafka) -> None:
    alter = ["alter", "nope", "-p", "2"]
    for command in (["describe", "nope"], ["consume", "nope"], ["produce", "nope"], alter):
        neve(kafka, "topic", *command, code=1, told="topic nope does not exist: `neve topic list`")
    assert "nope" not in names(kafka)
    made = ["topic", "produce", "made", "--allow-auto-topic-creation"]
    assert neve(kafka, *made, data=b"x\n") == "sent 1 records to made: 1 to partition 0\n"
    assert lines(kafka, "made") == ["x"]


# --- records


@pytest.fixture(scope="module")
def timed(kafka: Kafka) -> str:
    fill(kafka, "timed")
    return "timed"


@pytest.mark.parametrize(("offsets", "first", "end"), SPANS)
def test_offsets_and_times(kafka: Kafka, timed: str, offsets: str, first: int, end: int) -> None:
    assert lines(kafka, timed, "-o", offsets) == [f"v{n}" for n in range(first, end)]


def test_records_of_the_last_hour(kafka: Kafka, timed: str) -> None:
    neve(kafka, "topic", "create", "recent", "-p", "2")
    neve(kafka, "topic", "produce", "recent", "-p", "0", "-f", "%d %v", data=b"%d old" % BASE_MS)
    neve(kafka, "topic", "produce", "recent", "-p", "1", data=b"new\n")
    assert lines(kafka, "recent", "-o", "@-1h") == ["new"]
    assert lines(kafka, "recent", timed, "-o", "@:-1h", "-n", "30").count("old") == 1
    neve(kafka, "topic", "consume", "recent", "-o", "end", code=2, told="add --follow")


def test_formats(kafka: Kafka) -> None:
    neve(kafka, "topic", "create", "formed", "copy")
    given = ["-k", "key", "-H", "h=1", "-H", "i=2", "-Z"]
    report = json.loads(neve(kafka, "topic", "produce", "formed", *given, "--json", data=b"a\n\nc"))
    assert (report["sent"], report["failed"], report["partitions"]) == (3, 0, {"0": 3})
    asked = "%t %p %o %k{hex} %v{json} %V %h{%k=%v,}\\n"
    assert lines(kafka, "formed", "-f", asked) == [
        'formed 0 0 6b6579 "a" 1 h=1,i=2,',
        "formed 0 1 6b6579 null -1 h=1,i=2,",
        'formed 0 2 6b6579 "c" 1 h=1,i=2,',
    ]
    rows = neve(kafka, "topic", "consume", "formed", "--json")
    first = json.loads(rows.splitlines()[0])
    assert first["headers"] == [{"key": "h", "value": "1"}, {"key": "i", "value": "2"}]
    assert abs(first["timestamp"] / 1000 - time.time()) < SECONDS_MAX
    neve(kafka, "topic", "produce", "copy", "-f", "json", data=rows.encode())
    copied = neve(kafka, "topic", "consume", "copy", "--json")
    assert copied == rows.replace('"formed"', '"copy"')


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs_and_acks(kafka: Kafka, codec: str) -> None:
    neve(kafka, "topic", "create", codec)
    for acks in ("0", "1", "all"):
        send = ["topic", "produce", codec, "--compression", codec, "--acks", acks]
        neve(kafka, *send, "-f", "%K %V %k%v", data=b"3 300 %-3s" % acks.encode() + b"v" * 300)
    # What was sent without an answer may still be on its way.
    until = time.monotonic() + 10
    while len(found := sorted(lines(kafka, codec, "-f", "%k %v\\n"))) < 3:
        assert time.monotonic() < until
    assert found == [f"{acks:3} {'v' * 300}" for acks in ("0", "1", "all")]


def test_following(kafka: Kafka) -> None:
    fill(kafka, "followed")
    command = [NEVE, "topic", "consume", "followed", "--follow", "-o", "-1", "-f", "%o %k\\n"]
    with subprocess.Popen(
        [*command, "--bootstrap", kafka.bootstrap], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"19 k19\n"
        neve(kafka, "topic", "produce", "followed", "-k", "late", data=b"x\n")
        assert process.stdout.readline() == b"20 late\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == b""


# --- groups


def test_a_group_s_life(kafka: Kafka) -> None:
    fill(kafka, "work", partitions=2)
    fill(kafka, "other")
    assert lines(kafka, "work", "-g", "crew", "-n", "5") == [f"v{n}" for n in range(5)]
    assert lines(kafka, "work", "-g", "crew", "-n", "2") == ["v5", "v6"]
    row = {"group": "crew", "state": "Empty", "type": "Classic"}
    assert row in shown(kafka, "group", "list")
    assert row in shown(kafka, "group", "list", "--state", "empty")
    assert row not in shown(kafka, "group", "list", "--state", "stable")

    (found,) = shown(kafka, "group", "describe", "crew")
    behind = {each["partition"]: each for each in found["partitions"]}[0]
    assert (found["state"], found["members"], found["lag"]) == ("Empty", [], 13)
    assert [behind[each] for each in ("committed", "end", "lag")] == [7, 20, 13]
    age = time.time() - (BASE_MS / 1000 + 7)
    assert behind["lag_seconds"] == pytest.approx(age, abs=SECONDS_MAX)
    printed = [line.split() for line in neve(kafka, "group", "describe", "crew").splitlines()]
    assert ["work", "0", "7", "20", "13"] in [line[:5] for line in printed]

    told = "group nobody does not exist"
    neve(kafka, "group", "describe", "nobody", code=1, told=told)
    neve(kafka, "group", "seek", "nobody", "--to", "end", code=1, told="has no committed offsets")
    assert neve(kafka, "group", "delete", "crew", "nobody", code=1, told=told) == "deleted crew\n"
    neve(kafka, "group", "describe", "crew", code=1, told="group crew does not exist")


def test_seeking(kafka: Kafka) -> None:
    fill(kafka, "sought")
    fill(kafka, "beside")
    seek = ["group", "seek", "moved"]
    new = [*seek, "--to", "3", "--topics", "sought"]
    neve(kafka, *new, code=1, told="--allow-new-topics")
    (row,) = shown(kafka, *new, "--allow-new-topics")["partitions"]
    assert row == {"topic": "sought", "partition": 0, "before": None, "after": 3}
    places = [("start", 0), ("end", 20), ("7", 7), ("47", 20), ("+2", 2), ("-3", 17), ("@-1h", 20)]
    before = 3
    for to, after in [*places, (f"@{BASE_MS + 18_000}", 18)]:
        (row,) = shown(kafka, *seek, "--to", to)["partitions"]
        assert (row["before"], row["after"]) == (before, after), to
        before = after
    assert neve(kafka, *seek, "--to", "start", "--dry-run").endswith(
        "dry run: no offset was committed\n"
    )
    assert lines(kafka, "sought", "-g", "moved", "-n", "1") == ["v18"]
    neve(kafka, *seek, "--to", "-1", "--topic", "beside:0", "--allow-new-topics")
    assert lines(kafka, "beside", "-g", "moved") == ["v19"]
    neve(kafka, *seek, "--to", "10:20", code=2, told="it is a range, is a range")
    neve(
        kafka,
        *seek,
        "--to",
        "1",
        "--topic",
        "sought:5",
        code=1,
        told="partition 5 does not exist in topic sought",
    )
    neve(kafka, *seek, "--to", "1", "--topics", "nope", "--allow-new-topics", code=1, told="nope")


@pytest.mark.parametrize(
    ("protocol", "kind", "assignor"),
    [("classic", "Classic", "range"), ("consumer", "Consumer", "uniform")],
)
def test_a_group_with_members(kafka: Kafka, protocol: str, kind: str, assignor: str) -> None:
    name = f"live-{protocol}"
    fill(kafka, name, partitions=2)
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": name,
            "group.protocol": protocol,
            "client.id": "the-client",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([name])
    while consumer.poll(0.5) is None:
        pass
    stable = shown(kafka, "group", "list", "--state", "stable")
    assert {"group": name, "state": "Stable", "type": kind} in stable
    (found,) = shown(kafka, "group", "describe", name)
    assert (found["state"], found["protocol"]) == ("Stable", assignor)
    (only,) = found["members"]
    assert only["client"] == "the-client"
    assert [row["partition"] for row in only["assignment"]] == [0, 1]
    assert {row["member"] for row in found["partitions"]} == {only["member"]}
    neve(kafka, "group", "seek", name, "--to", "start", code=1, told=f"{name} has 1 members")
    neve(kafka, "group", "delete", name, code=1, told=f"group {name} still has members")

    consumer.close()
    neve(kafka, "group", "seek", name, "--to", "18", "--topics", name)
    assert lines(kafka, name, "-g", name) == ["v18", "v19"]
    assert neve(kafka, "group", "delete", name) == f"deleted {name}\n"


# --- transactions, which Neve does not have and other brokers do


@pytest.fixture(scope="module")
def producer(kafka: Kafka) -> Producer:
    made = Producer(
        {"bootstrap.servers": kafka.bootstrap, "transactional.id": "neve-test", "log_level": 0}
    )
    made.init_transactions(SECONDS_MAX)
    return made


def begin(producer: Producer, topic: str, values: str) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.flush()


def test_what_was_committed_is_read(kafka: Kafka, producer: Producer) -> None:
    neve(kafka, "topic", "create", "tx")
    begin(producer, "tx", "ab")
    producer.commit_transaction()
    begin(producer, "tx", "x")
    producer.abort_transaction()
    begin(producer, "tx", "c")
    producer.commit_transaction()
    assert lines(kafka, "tx", "-f", "%o%v\\n") == ["0a", "1b", "5c"]
    assert lines(kafka, "tx", "-g", "tx") == ["a", "b", "c"]
    (found,) = shown(kafka, "group", "describe", "tx")
    # The mark of the last transaction is an offset, but no record that would get older.
    assert (found["lag"], found["lag_seconds"]) == (1, 0.0)


def test_an_open_transaction_is_an_end(kafka: Kafka, producer: Producer) -> None:
    neve(kafka, "topic", "create", "open")
    neve(kafka, "topic", "produce", "open", data=b"a\n")
    begin(producer, "open", "bcd")
    for offsets in ("start", "0:9", "@-1h"):
        assert lines(kafka, "open", "-o", offsets) == ["a"]
    assert lines(kafka, "open", "-o", "2:3") == []
    assert lines(kafka, "open", "-o", "-1") == ["a"]
    every = ["-X", "isolation.level=read_uncommitted"]
    assert lines(kafka, "open", "-o", "-1", *every) == ["d"]

    seek = ["group", "seek", "open", "--topics", "open", "--allow-new-topics"]
    assert shown(kafka, *seek, "--to", "end")["partitions"][0]["after"] == 1
    (found,) = shown(kafka, "group", "describe", "open")
    assert (found["lag"], found["lag_seconds"]) == (3, None)
    # A group that was put beyond it is told the truth: the broker is there.
    neve(kafka, *seek, "--to", "3", *every)
    member = ["topic", "consume", "open", "-g", "open", "--timeout", "3"]
    neve(kafka, *member, code=1, told="the broker responds, but sent no record within 3 s")
    producer.commit_transaction()
    assert lines(kafka, "open", "-g", "open") == ["d"]


# --- loads


def test_loads(kafka: Kafka) -> None:
    load = ["--topic", "load", "--records", "2000", "--partitions", "2", "--idempotent"]
    sent = shown(kafka, "bench", "produce", *load)
    assert (sent["records"], sent["errors"], sent["latency_ms"]["samples"]) == (2000, 0, 4)
    assert shown(kafka, "bench", "consume", "--topic", "load")["records"] == 2002
    found = shown(kafka, "bench", "latency", "--records", "20", "--end-to-end")
    assert found["latency_ms"]["samples"] == found["end_to_end_ms"]["samples"] == 20
    # The topic of a load without a name is thrown away.
    assert not [name for name in names(kafka) if name.startswith("neve-")]
