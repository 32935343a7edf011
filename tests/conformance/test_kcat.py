"""kcat: metadata, producing, consuming by every kind of place, asking for offsets, groups."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance import installs
from conformance.clients import WAIT_SECONDS, Sent, check_same, fresh, numbered, take
from conformance.confluent_client import ConfluentClient
from conformance.record_scenarios import AWKWARD, CODECS, noise
from support.brokers import RunningBroker

T0_MS = 1_700_000_000_000
ROW = "%p %o %T %K %S %h\n%k%s\n"


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[ConfluentClient]:
    """What makes topics and looks at them from the other side."""
    made = ConfluentClient(broker.bootstrap)
    yield made
    made.opened.close()


class Kcat:
    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.command = [installs.command("kcat"), "-b", bootstrap]
        self._folder = folder

    def run(self, *arguments: str, given: bytes = b"") -> bytes:
        done = subprocess.run(
            [*self.command, *arguments],
            input=given,
            capture_output=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def send(self, topic: str, value: bytes, *arguments: str) -> None:
        """One record of these bytes, which may not be none: the content of a file."""
        file = self._folder / "value"
        file.write_bytes(value)
        self.run("-P", "-t", topic, "-p", "0", *arguments, str(file))

    def read(self, topic: str, *arguments: str) -> list[tuple[Any, ...]]:
        """Partition, offset, time, headers as kcat shows them, key and value, up to the end."""
        told = self.run("-C", "-q", "-e", "-t", topic, "-f", ROW, *arguments)
        rows = []
        while told:
            about, _, told = told.partition(b"\n")
            partition, offset, at, key_size, value_size, headers = about.split(b" ", 5)
            key, told = taken(told, int(key_size))
            value, told = taken(told, int(value_size))
            assert told[:1] == b"\n"
            told = told[1:]
            rows.append((int(partition), int(offset), int(at), headers.decode(), key, value))
        return rows


def taken(data: bytes, size: int) -> tuple[bytes | None, bytes]:
    return (None, data) if size < 0 else (data[:size], data[size:])


@pytest.fixture
def kcat(broker: RunningBroker, tmp_path: Path) -> Kcat:
    return Kcat(broker.bootstrap, tmp_path)


# --- metadata


def test_metadata_as_json(kcat: Kcat, client: ConfluentClient, broker: RunningBroker) -> None:
    topic = fresh("shown")
    client.create(topic, partitions=3)
    told = json.loads(kcat.run("-L", "-J"))
    brokers = [{"id": node.node_id, "name": node.bootstrap} for node in broker.nodes]
    assert sorted(told["brokers"], key=lambda row: int(row["id"])) == brokers
    assert told["controllerid"] in broker.node_ids
    [found] = [each for each in told["topics"] if each["topic"] == topic]
    assert sorted(int(row["partition"]) for row in found["partitions"]) == [0, 1, 2]
    for row in found["partitions"]:
        replicas, in_sync = ({each["id"] for each in row[name]} for name in ("replicas", "isrs"))
        assert {row["leader"]} <= in_sync <= replicas <= broker.node_ids


def test_metadata_as_text(kcat: Kcat, client: ConfluentClient, broker: RunningBroker) -> None:
    topic = fresh("listed")
    client.create(topic, partitions=2)
    told = kcat.run("-L", "-t", topic).decode()
    for node in broker.nodes:
        assert f"broker {node.node_id} at {node.bootstrap}" in told
    assert told.count(" (controller)") == 1
    assert f'topic "{topic}" with 2 partitions:' in told
    ids = "|".join(str(node.node_id) for node in broker.nodes)
    row = rf"partition 1, leader ({ids}), replicas: .*\b\1\b.*, isrs: .*\b\1\b"
    assert re.search(row, told)


# --- records


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_in_every_way_of_sending(
    kcat: Kcat, client: ConfluentClient, codec: str
) -> None:
    topic = fresh(f"kcat-{codec}")
    client.create(topic)
    sent = []
    for way in ("acks=0", "acks=1", "acks=all", "enable.idempotence=true"):
        lines = [f"{way}-{number}:wert ❄ {number} {'x' * number}" for number in range(100)]
        kcat.run(
            "-P", "-t", topic, "-p", "0", "-K:", "-z", codec, "-X", way,
            given="\n".join(lines).encode(),
        )  # fmt: skip
        sent += [Sent(*(part.encode() for part in line.split(":", 1))) for line in lines]
    rows = kcat.read(topic, "-o", "beginning")
    assert [(row[1], row[4], row[5]) for row in rows] == [
        (offset, record.key, record.value) for offset, record in enumerate(sent)
    ]
    check_same(take(client.reader(topic), len(sent)), sent)


def test_awkward_records(kcat: Kcat, client: ConfluentClient) -> None:
    topic = fresh("kcat-awkward")
    client.create(topic)
    # With -Z what is empty is null.
    line_by_line = ("-P", "-t", topic, "-p", "0", "-K:")
    kcat.run(*line_by_line, given=b":\nkey:\n:value\n")
    kcat.run(*line_by_line, "-Z", given=b":\nkey:\n:value\n")
    empty = [Sent(b"", b""), Sent(b"key", b""), Sent(b"", b"value")]
    null = [Sent(None, None), Sent(b"key", None), Sent(None, b"value")]
    sent = [
        Sent(b"key", bytes(range(256))),
        Sent(b"key", noise(900_000, 1)),
        Sent(None, b"v", (("a", b"1"), ("a", b"2"), ("empty", b""), ("ünïcödé ❄", b"x"))),
    ]
    for record in sent:
        key = [] if record.key is None else ["-k", record.key.decode()]
        headers = [f"-H{name}={(value or b'').decode()}" for name, value in record.headers]
        kcat.send(topic, record.value or b"", *key, *headers)
    sent = [*empty, *null, *sent]
    check_same(take(client.reader(topic), len(sent)), sent)
    rows = kcat.read(topic, "-o", "beginning")
    assert [row[4:] for row in rows] == [(record.key, record.value) for record in sent]
    assert rows[-1][3] == "a=1,a=2,empty=,ünïcödé ❄=x"


def test_what_another_client_sent(kcat: Kcat, client: ConfluentClient) -> None:
    topic = fresh("kcat-foreign")
    client.create(topic)
    for codec in CODECS:
        client.produce(topic, AWKWARD, codec=codec)
    rows = kcat.read(topic, "-o", "beginning")
    assert [row[4:] for row in rows] == 5 * [(record.key, record.value) for record in AWKWARD]


def test_places(kcat: Kcat, client: ConfluentClient) -> None:
    topic = fresh("kcat-places")
    client.create(topic, partitions=2)
    client.produce(
        topic,
        [
            Sent(b"k", b"%d" % number, timestamp_ms=T0_MS + 1_000 * number, partition=partition)
            for number in range(100)
            for partition in range(2)
        ],
    )

    def offsets(*places: str) -> list[int]:
        return [row[1] for row in kcat.read(topic, "-p", "0", *places)]

    assert offsets("-o", "beginning") == list(range(100))
    assert offsets("-o", "42") == list(range(42, 100))
    assert offsets("-o", "-7") == list(range(93, 100))
    assert offsets("-o", "end") == []
    assert offsets("-o", f"s@{T0_MS + 41_500}") == list(range(42, 100))
    between = ("-o", f"s@{T0_MS + 41_500}", "-o", f"e@{T0_MS + 50_000}")
    assert offsets(*between) == list(range(42, 50))
    both = kcat.read(topic, "-o", f"s@{T0_MS + 95_000}", "-o", f"e@{T0_MS + 98_000}")
    assert sorted(row[:3] for row in both) == [
        (partition, offset, T0_MS + 1_000 * offset)
        for partition in range(2)
        for offset in (95, 96, 97)
    ]
    assert [row[1] for row in kcat.read(topic, "-p", "1", "-o", "10", "-c", "5")] == [
        10, 11, 12, 13, 14,
    ]  # fmt: skip


def test_asking_for_offsets(kcat: Kcat, client: ConfluentClient) -> None:
    topic = fresh("kcat-asked")
    client.create(topic)
    sent = [Sent(b"k", b"v", timestamp_ms=T0_MS + 1_000 * number) for number in range(100)]
    client.produce(topic, sent)

    def offset(at: int) -> int:
        told = kcat.run("-Q", "-t", f"{topic}:0:{at}").decode()
        found = re.fullmatch(rf"{topic} \[0\] offset (-?\d+)\n", told)
        assert found is not None, told
        return int(found[1])

    assert offset(-2) == 0
    assert offset(-1) == 100
    assert offset(T0_MS + 41_001) == 42
    assert offset(T0_MS) == 0
    assert offset(T0_MS + 99_000) == 99


def test_a_topic_is_created_when_it_is_written_to(kcat: Kcat) -> None:
    topic = fresh("kcat-unannounced")
    kcat.run("-P", "-t", topic, given=b"one\ntwo\n")
    assert [row[5] for row in kcat.read(topic, "-o", "beginning")] == [b"one", b"two"]


# --- groups


class GroupMember:
    """`kcat -G` in the background: what it was assigned, and what it read."""

    def __init__(self, kcat: Kcat, group: str, topic: str, assignor: str) -> None:
        options = ["auto.offset.reset=earliest", f"partition.assignment.strategy={assignor}"]
        options += ["heartbeat.interval.ms=200", "auto.commit.interval.ms=100"]
        arguments = [part for option in options for part in ("-X", option)]
        arguments += ["-u", "-f", "%p %o %s\n", "-G", group, topic]
        self.process = subprocess.Popen(
            [*kcat.command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.read: list[tuple[int, int, str]] = []
        self.assigned: set[int] = set()
        self._threads = [
            threading.Thread(target=self._note_records),
            threading.Thread(target=self._note_assignments),
        ]
        for thread in self._threads:
            thread.start()

    def _note_records(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            partition, offset, value = line.rstrip("\n").split(" ", 2)
            self.read.append((int(partition), int(offset), value))

    def _note_assignments(self) -> None:
        """kcat tells each change on standard error; an eager one takes all away first."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            changed = {int(number) for number in re.findall(r" \[(\d+)\]", line)}
            if re.search(r"rebalanced.*: (?:incremental assignment|assigned)", line):
                self.assigned |= changed
            elif re.search(r"rebalanced.*: (?:incremental revoke|revoked)", line):
                self.assigned -= changed

    def leave(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.end()

    def end(self) -> None:
        try:
            self.process.wait(WAIT_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            for thread in self._threads:
                thread.join()
            assert self.process.stdout is not None
            assert self.process.stderr is not None
            self.process.stdout.close()
            self.process.stderr.close()


def wait_for(done: Callable[[], bool], what: str) -> None:
    ends_at = time.monotonic() + WAIT_SECONDS
    while not done():
        assert time.monotonic() < ends_at, f"not within {WAIT_SECONDS} s: {what}"
        time.sleep(0.02)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_members_come_and_go(kcat: Kcat, client: ConfluentClient, assignor: str) -> None:
    topic, group = fresh(f"kcat-shared-{assignor}"), fresh("kcat-group")
    client.create(topic, partitions=4)
    sent: list[Sent] = []
    members: list[GroupMember] = []

    def pass_records() -> None:
        more = [Sent(b"k", b"%d" % (len(sent) + at), partition=at % 4) for at in range(40)]
        sent.extend(more)
        client.produce(topic, more)
        wait_for(lambda: sum(len(each.read) for each in members) >= len(sent), "all are read")

    def shared(*sizes: int) -> None:
        wait_for(
            lambda: sorted(len(each.assigned) for each in members) == sorted(sizes),
            f"partitions are shared {sizes}, not {[each.assigned for each in members]}",
        )

    try:
        members.append(GroupMember(kcat, group, topic, assignor))
        shared(4)
        pass_records()
        members.append(GroupMember(kcat, group, topic, assignor))
        shared(2, 2)
        pass_records()
        members[0].leave()
        members[0].assigned = set()
        shared(0, 4)
        pass_records()
        members[1].leave()
    finally:
        for member in members:
            member.process.kill()
            member.end()
    rows = sorted((partition, offset) for each in members for partition, offset, _ in each.read)
    assert rows == [(partition, offset) for partition in range(4) for offset in range(30)]
    values = [value for each in members for _, _, value in each.read]
    assert sorted(values, key=int) == [str(number) for number in range(120)]
    # Whoever comes next begins where these ended.
    client.produce(topic, numbered(3))
    rows_after = [
        record.offset for record in take(client.member(group, topic, assignor=assignor), 3)
    ]
    assert rows_after == [30, 31, 32]
