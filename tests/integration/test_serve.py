"""`neve serve` as a process: its one line, its health, its metrics, its ends."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from neve.bench.broker import pipelined
from neve.serving.catalogue import BROKER

NEVE = Path(sys.executable).with_name("neve")
READY = re.compile(
    r"neve \S+ ready: kafka 127\.0\.0\.1:(?P<kafka>\d+), http 127\.0\.0\.1:(?P<http>\d+), "
    r"store (?P<store>\S+), node (?P<node>\d+), incarnation (?P<incarnation>\d+)\n"
)
FREE = ("--listen", "127.0.0.1:0", "--set", "http.listen=127.0.0.1:0")


class Serving:
    """A `neve serve` that printed its line."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log
        assert process.stdout is not None
        self.line = process.stdout.readline()
        found = READY.fullmatch(self.line)
        assert found is not None, self.line + self.err
        self.port, self.http_port = int(found["kafka"]), int(found["http"])
        self.store, self.incarnation = found["store"], int(found["incarnation"])

    @property
    def err(self) -> str:
        return self._log.read_text()

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.http_port}{path}", timeout=10
            ) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Its exit code, and how long it took."""
        started = time.monotonic()
        self.process.send_signal(number)
        return self.process.wait(15), time.monotonic() - started


Start = Callable[..., Serving]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    processes: list[subprocess.Popen[str]] = []
    logs: list[IO[str]] = []

    def started(*flags: str, store: str | None = None) -> Serving:
        log = tmp_path / f"stderr-{len(processes)}"
        logs.append(log.open("w"))
        command = [NEVE, "serve", "--store", store or str(tmp_path / "bucket"), *FREE, *flags]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=logs[-1], text=True, cwd=tmp_path
        )
        processes.append(process)
        return Serving(process, log)

    yield started
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()
    for log in logs:
        log.close()


def refused(*flags: str, cwd: Path) -> tuple[int, str]:
    """Exit code and complaint of a start that does not come to be."""
    done = subprocess.run(
        [NEVE, "serve", *flags], capture_output=True, text=True, check=False, timeout=30, cwd=cwd
    )
    assert done.stdout == ""
    complaints = [
        line
        for line in done.stderr.splitlines()
        if " INFO neve.serve: broker starting " not in line
    ]
    assert len(complaints) == 1, done.stderr
    return done.returncode, complaints[0]


class Pipelining:
    """Produce requests of one record each, as fast as a socket takes them, and their answers."""

    def __init__(self, port: int, topic: str) -> None:
        self._burst = pipelined._frame(topic, -1) * 20
        self._socket = socket.create_connection(("127.0.0.1", port), 15)
        self.responses = pipelined._Responses()

    def send_until(self, count: int) -> None:
        """Send until so many are answered; more are on their way then."""
        sent = 0
        while self.responses.count < count:
            while sent - self.responses.count < 200:
                self._socket.sendall(self._burst)
                sent += 20
            self.responses.take(self._socket.recv(1 << 16))

    def read_to_the_end(self) -> None:
        with self._socket, contextlib.suppress(ConnectionResetError):
            while data := self._socket.recv(1 << 16):
                self.responses.take(data)


def produce(port: int, count: int, topic: str = "t") -> None:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "acks": "all"})
    failures = []
    for at in range(count):
        producer.produce(
            topic, f"value {at}", on_delivery=lambda error, _: error and failures.append(error)
        )
    assert producer.flush(20) == 0
    assert failures == []


def consume(port: int, count: int, topic: str = "t") -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    values: list[str] = []
    ends_at = time.monotonic() + 30
    while len(values) < count and time.monotonic() < ends_at:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            values.append(message.value().decode())
    consumer.commit(asynchronous=False)
    consumer.close()
    return values


def sample(metrics: str, name: str, **labels: str) -> float:
    for family in text_string_to_metric_families(metrics):
        for row in family.samples:
            if row.name == name and row.labels == labels:
                return float(row.value)
    raise AssertionError(f"no {name} {labels}")


def test_it_serves_stops_with_0_and_goes_on_where_it_was(start: Start, tmp_path: Path) -> None:
    first = start()
    assert first.store == (tmp_path / "bucket").as_uri()
    produce(first.port, 100)
    code, seconds = first.end()
    assert (code, seconds < 10) == (0, True), first.err
    assert "Traceback" not in first.err
    second = start()
    assert second.incarnation > first.incarnation
    assert consume(second.port, 100) == [f"value {at}" for at in range(100)]
    assert second.end(signal.SIGINT)[0] == 0, second.err


def test_without_flags_the_bucket_is_a_folder_here(tmp_path: Path) -> None:
    free = {"NEVE_BROKER_LISTEN": "127.0.0.1:0", "NEVE_HTTP_LISTEN": ""}
    with subprocess.Popen(
        [NEVE, "serve"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, **free},
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=15)
    assert process.returncode == 0, err
    assert f"store {(tmp_path / 'neve-data').as_uri()}, node 1, incarnation " in line
    assert ", http off, " in line
    assert out == ""
    assert (tmp_path / "neve-data" / "meta" / "log").is_dir()


def test_health_and_metrics_are_reachable(start: Start) -> None:
    serving = start()
    assert serving.get("/healthz") == (200, "ok\n")
    assert serving.get("/readyz") == (200, "ready\n")
    assert serving.get("/nothing")[0] == 404
    produce(serving.port, 50)
    assert len(consume(serving.port, 50)) == 50
    status, metrics = serving.get("/metrics")
    assert status == 200
    partition = {"topic": "t", "partition": "0"}
    assert sample(metrics, "kafka_topic_partition_current_offset", **partition) == 50
    group = {"consumergroup": "readers", **partition}
    assert sample(metrics, "kafka_consumergroup_current_offset", **group) == 50
    assert sample(metrics, "kafka_consumergroup_lag", **group) == 0
    assert sample(metrics, "neve_produced_records_total") == 50
    assert sample(metrics, "neve_objects_written_total", kind="wal") >= 1
    assert sample(metrics, "neve_fetched_bytes_total") > 0
    assert sample(metrics, "neve_memory_max_bytes", what="wal-buffer") == 48 << 20


def test_produce_requests_and_acknowledgements_are_measured(start: Start) -> None:
    serving = start()
    produce(serving.port, 50)
    _, metrics = serving.get("/metrics")
    assert sample(metrics, "neve_requests_total", api="Produce", error="NONE") >= 1
    assert sample(metrics, "neve_request_seconds_count", api="Produce") >= 1
    assert sample(metrics, "neve_ack_seconds_count") >= 1
    assert sample(metrics, "neve_ack_seconds_sum") > 0


def test_every_family_is_exposed_once_with_its_help(start: Start) -> None:
    _, metrics = start().get("/metrics")
    helps = re.findall(r"^# HELP (\S+) (.*)$", metrics, flags=re.MULTILINE)
    assert sorted(name for name, _ in helps) == sorted(BROKER)
    assert dict(helps) == {name: about.help for name, about in BROKER.items()}
    types = re.findall(r"^# TYPE (\S+) (\S+)$", metrics, flags=re.MULTILINE)
    assert dict(types) == {name: about.kind for name, about in BROKER.items()}


def test_a_second_process_with_the_same_node_id_ends_the_first(start: Start) -> None:
    first = start("--set", "cluster.poll.ms=200")
    second = start("--set", "cluster.poll.ms=200")
    assert first.process.wait(20) == 3, first.err
    last = first.err.splitlines()[-1]
    assert "the broker (node 1) stops: incarnation 1 is over" in last
    assert "needs a --node-id of its own" in last
    assert "Traceback" not in first.err
    produce(second.port, 10)
    assert second.get("/readyz") == (200, "ready\n")
    assert second.end()[0] == 0, second.err


def test_a_taken_port_ends_a_start_and_nobody_else(start: Start, tmp_path: Path) -> None:
    serving = start()
    store = str(tmp_path / "bucket")
    taken = f"127.0.0.1:{serving.port}"
    code, said = refused("--store", store, "--listen", taken, "--set", "http.listen=", cwd=tmp_path)
    assert code == 1
    assert f"cannot listen on {taken} (broker.listen): the port is in use" in said
    taken = f"127.0.0.1:{serving.http_port}"
    code, said = refused(
        "--store", store, "--listen", "127.0.0.1:0", "--set", f"http.listen={taken}", cwd=tmp_path
    )
    assert code == 1
    assert "(http.listen)" in said
    assert serving.get("/readyz") == (200, "ready\n")


def test_what_is_wrong_at_the_start_is_named_in_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("wal.linger.ms = 'soon'\n")
    code, said = refused("--config", str(bad), cwd=tmp_path)
    assert code == 2
    assert "bad.toml: wal.linger.ms must be an integer >= -1, not 'soon'" in said
    (tmp_path / "file").write_text("not a folder")
    for store in ("file", "file/below"):
        code, said = refused("--store", store, *FREE, cwd=tmp_path)
        assert code == 1
        assert f"neve: the broker cannot start on {store}: " in said
        assert "a file is in place of a folder" in said


def test_memory_that_does_not_fit_its_bound_ends_a_start(start: Start, tmp_path: Path) -> None:
    code, said = refused("--set", "tail.cache.bytes=1073741824", *FREE, cwd=tmp_path)
    assert code == 2
    assert "broker.memory.bytes is 512 MiB" in said
    small = start("--set", f"broker.memory.bytes={256 << 20}")
    bounds = {
        row.labels["what"]: row.value
        for family in text_string_to_metric_families(small.get("/metrics")[1])
        for row in family.samples
        if row.name == "neve_memory_max_bytes"
    }
    assert bounds.pop("process") == 256 << 20
    # The tail's cache gives way to what clients make a broker remember.
    state = ("partitions", "producers", "fetch-sessions", "groups", "committed-offsets")
    assert sum(bounds.pop(each) for each in state) <= bounds["tail-cache"]
    assert bounds.pop("half-received") <= bounds["receiving"]  # a part of it
    assert bounds.pop("followed-streams") <= bounds["tail-cache"]  # the same
    assert sum(bounds.values()) <= 160 << 20


def test_a_damaged_cluster_log_is_told_by_its_key(start: Start, tmp_path: Path) -> None:
    start().end()
    log = max((tmp_path / "bucket" / "meta" / "log").glob("0*"))
    log.write_bytes(log.read_bytes()[:-1] + b"\0")
    code, said = refused("--store", str(tmp_path / "bucket"), *FREE, cwd=tmp_path)
    assert code == 1
    assert log.name in said


def test_a_second_signal_does_not_wait(start: Start) -> None:
    serving = start("--set", "broker.stop.grace.ms=8000")
    serving.process.send_signal(signal.SIGSTOP)
    # Both are there when it goes on; which is seen first does not matter.
    serving.process.send_signal(signal.SIGTERM)
    serving.process.send_signal(signal.SIGINT)
    serving.process.send_signal(signal.SIGCONT)
    assert serving.process.wait(5) in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM)


def test_strangers_on_its_ports_do_it_no_harm(start: Start) -> None:
    serving = start()
    for port in (serving.port, serving.http_port):
        for sent in (b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x01\x00", b""):
            with socket.create_connection(("127.0.0.1", port), 5) as stranger:
                stranger.sendall(sent)
    produce(serving.port, 5)
    assert serving.get("/readyz") == (200, "ready\n")
    assert serving.end()[0] == 0
    assert "Traceback" not in serving.err


def test_logs_may_be_json(start: Start) -> None:
    serving = start("--set", "log.format=json", "--set", "log.level=debug")
    assert serving.end()[0] == 0
    lines = serving.err.splitlines()
    assert lines
    assert all(line.startswith('{"time": "') and line.endswith("}") for line in lines)


def test_what_was_taken_under_load_is_there_and_answered(start: Start) -> None:
    """Every record that is in the log was answered, and the other way round."""
    broker = start()
    produce(broker.port, 1)
    load = Pipelining(broker.port, "t")
    load.send_until(400)
    broker.process.send_signal(signal.SIGTERM)
    load.read_to_the_end()
    assert broker.process.wait(15) == 0, broker.err
    again = start()
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{again.port}", "group.id": "g"})
    try:
        assert consumer.get_watermark_offsets(TopicPartition("t", 0), 15) == (
            0,
            1 + load.responses.count,
        )
    finally:
        consumer.close()
