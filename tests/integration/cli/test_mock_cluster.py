"""Topics, records and loads against librdkafka's mock cluster: a real socket, a foreign broker.

The mock knows no administration, looks up no offset by time, and takes its time to rebalance: what
needs those is tested against a broker of our own.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition

from neve.cli.connection import Connection
from neve.cli.group_lag import first_timestamps, lags
from support.cli_runs import NEVE, neve

LINES = [f"line {n}" for n in range(50)]


@pytest.fixture(scope="module")
def mock() -> Iterator[str]:
    with subprocess.Popen([NEVE, "bench", "mock"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.fixture(scope="module")
def filled(mock: str) -> str:
    """A topic with 50 lines in partition 0 and 10 keyed records in partition 1."""
    creating = ["--allow-auto-topic-creation", "--json"]
    text = "".join(f"{line}\n" for line in LINES).encode()
    told = json.loads(neve(mock, "topic", "produce", "t", "-p", "0", *creating, data=text))
    assert (told["sent"], told["failed"], told["partitions"]) == (50, 0, {"0": 50})
    rows = b"".join(b"k%d\tv%d\n" % (n, n) for n in range(10))
    keyed = ["topic", "produce", "t", "-f", r"%k\t%v\n", "-p", "1", "-H", "a=1", "-H", "b=x=y"]
    assert neve(mock, *keyed, data=rows) == b"sent 10 records to t: 10 to partition 1\n"
    return "t"


def read(mock: str, *argv: str) -> list[str]:
    return neve(mock, "topic", "consume", *argv).decode().splitlines()


def test_everything_in_order(mock: str, filled: str) -> None:
    assert read(mock, "t", "-p", "0") == LINES
    rows = [line.split() for line in read(mock, "t", "-f", r"%p %o\n")]
    assert len(rows) == 60
    for number, count in (("0", 50), ("1", 10)):
        assert [int(o) for p, o in rows if p == number] == list(range(count))


@pytest.mark.parametrize(
    ("offsets", "first", "end"),
    [
        ("start", 0, 50),
        ("47", 47, 50),
        ("+2", 2, 50),
        ("-3", 47, 50),
        ("10:20", 10, 20),
        (":5", 0, 5),
        ("48:", 48, 50),
        (":end", 0, 50),
        ("-5:-3", 45, 47),
        ("45:99", 45, 50),
        ("70:", 0, 0),
    ],
)
def test_offsets(mock: str, filled: str, offsets: str, first: int, end: int) -> None:
    assert read(mock, "t", "-p", "0", "-o", offsets) == LINES[first:end]


def test_a_count_and_formats(mock: str, filled: str) -> None:
    fields = r"%t %p %o %k %v %K %V %h{%k=%v;} %v{hex} %%\n"
    assert read(mock, "t", "-p", "1", "-o", "3", "-n", "2", "-f", fields) == [
        "t 1 3 k3 v3 2 2 a=1;b=x=y; 7633 %",
        "t 1 4 k4 v4 2 2 a=1;b=x=y; 7634 %",
    ]
    (line,) = read(mock, "t", "-p", "1", "-n", "1", "--json")
    found = json.loads(line)
    assert (found["topic"], found["partition"], found["offset"]) == ("t", 1, 0)
    assert (found["key"], found["value"]) == ("k0", "v0")
    assert found["headers"] == [{"key": "a", "value": "1"}, {"key": "b", "value": "x=y"}]


def test_any_bytes_pass_from_topic_to_topic(mock: str) -> None:
    creating = ["--allow-auto-topic-creation", "-p", "2"]
    rows = [(None, b"\n\x00\xff"), (b"", b""), (b"k\n", None), (b"\xfe", b"x" * 3000)]
    data = b"".join(
        b"%d %d " % (-1 if k is None else len(k), -1 if v is None else len(v))
        + (k or b"")
        + (v or b"")
        for k, v in rows
    )
    neve(mock, "topic", "produce", "raw", "-f", "%K %V %k%v", *creating, data=data)
    assert neve(mock, "topic", "consume", "raw", "-f", "%K %V %k%v") == data
    lines = neve(mock, "topic", "consume", "raw", "--json")
    neve(mock, "topic", "produce", "copy", "-f", "json", *creating, data=lines)
    assert neve(mock, "topic", "consume", "copy", "-f", "%K %V %k%v") == data


def test_tombstones_keys_and_codecs(mock: str) -> None:
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        argv = ["topic", "produce", f"z-{codec}", "--allow-auto-topic-creation", "-p", "0"]
        neve(mock, *argv, "--compression", codec, "-Z", "-k", "key", data=b"a\n\nb")
        found = read(mock, f"z-{codec}", "-f", r"%k %v{json}\n")
        assert found == ['key "a"', "key null", 'key "b"']


def test_a_group_commits_what_it_has_written(mock: str, filled: str) -> None:
    assert min(read(mock, "t", "-g", "g", "-n", "60")) == "line 0"
    committed = neve_offsets(mock, "g")
    assert committed == {0: 50, 1: 10}


def neve_offsets(mock: str, group: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": mock, "group.id": group, "log_level": 0})
    try:
        found = consumer.committed([TopicPartition("t", 0), TopicPartition("t", 1)], timeout=10)
        return {each.partition: each.offset for each in found}
    finally:
        consumer.close()


def test_the_first_unconsumed_record_tells_the_age(mock: str) -> None:
    rows = b"".join(b"%d v\n" % (1_700_000_000_000 + n) for n in range(20))
    creating = ["--allow-auto-topic-creation", "-p", "0", "-f", "%d %v"]
    neve(mock, "topic", "produce", "aged", *creating, data=rows)
    with Connection({"bootstrap.servers": mock}, 5.0) as connection:
        found = first_timestamps(connection, {("aged", 0): 7, ("aged", 1): 0})
        offsets = {("aged", 0): 7, ("aged", 1): 0, ("gone", 0): 1}
        rows_of = {(lag.topic, lag.partition): lag for lag in lags(connection, offsets, [])}
    assert found == ({("aged", 0): 1_700_000_000_007}, {("aged", 1): 0})
    assert (rows_of["aged", 0].records, rows_of["aged", 1].records) == (13, 0)
    age_ms = time.time() * 1000 - 1_700_000_000_007
    assert rows_of["aged", 0].seconds == pytest.approx(age_ms / 1000, abs=30)
    assert (rows_of["aged", 1].seconds, rows_of["gone", 0].seconds) == (0.0, None)


def test_the_variable_says_where(mock: str, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEVE_BOOTSTRAP", mock)
    done = subprocess.run([NEVE, "topic", "list", "--json"], capture_output=True, check=True)
    assert "t" in [row["name"] for row in json.loads(done.stdout)]


def test_following_until_interrupted(mock: str, filled: str) -> None:
    neve(mock, "topic", "produce", "f", "--allow-auto-topic-creation", "-p", "0", data=b"old\n")
    command = [NEVE, "topic", "consume", "f", "--follow", "--bootstrap", mock]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"old\n"
        neve(mock, "topic", "produce", "f", "-p", "0", data=b"new\n")
        assert process.stdout.readline() == b"new\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == b""


def test_a_reader_that_goes_away_is_no_error(mock: str, filled: str) -> None:
    command = [NEVE, "topic", "consume", "t", "--bootstrap", mock]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(30) == 141
        assert process.stderr.read() == b""


def test_what_goes_wrong_is_one_line(mock: str, filled: str) -> None:
    produce, consume = ["topic", "produce"], ["topic", "consume"]
    neve(mock, *consume, "nope", code=1, told="topic nope does not exist")
    neve(mock, *produce, "nope", data=b"x\n", code=1, told="topic nope does not exist")
    neve(
        mock,
        *produce,
        "t",
        "-p",
        "9",
        code=1,
        told="partition 9 does not exist in topic t; valid partitions: 0-3",
    )
    neve(mock, *consume, "t", "-X", "nonsense=1", code=2, told='property: "nonsense"')
    neve(mock, "group", "list", code=1, told="does not support")
    neve(mock, "topic", "create", "x", "--timeout", "0.5", code=1, told="did not respond in time")


def test_a_record_that_cannot_be_read_is_told_and_those_before_it_are_sent(mock: str) -> None:
    argv = ["topic", "produce", "p", "--allow-auto-topic-creation", "-p", "0", "-f", r"%k=%v\n"]
    said = neve(mock, *argv, data=b"a=1\noops\nb=2\n", code=1, told="record 2 of the input")
    assert said == b"sent 1 records to p: 1 to partition 0\n"
    assert read(mock, "p") == ["1"]


def test_nobody_listens() -> None:
    neve("127.0.0.1:1", "topic", "list", code=1, told="no broker responds at 127.0.0.1:1")


# --- loads


def bench(mock: str, *argv: str) -> dict[str, object]:
    found = json.loads(neve(mock, "bench", *argv, "--json"))
    assert isinstance(found, dict)
    return found


def test_produce_and_consume_loads(mock: str) -> None:
    sent = bench(mock, "produce", "--topic", "load", "--records", "3007", "--value-bytes", "100")
    assert (sent["records"], sent["bytes"], sent["errors"]) == (3007, 300_700, 0)
    assert sent["latency_ms"]["samples"] == 7  # type: ignore[index]
    assert float(str(sent["mb_per_second"])) > 0
    received = bench(mock, "consume", "--topic", "load")
    assert (received["records"], received["bytes"]) == (3008, 300_800)  # and one to warm up
    assert bench(mock, "consume", "--topic", "load", "--records", "10")["records"] == 10


def test_loads_by_bytes_over_partitions(mock: str) -> None:
    argv = ["--bytes", "1MB", "--partitions", "4", "--idempotent", "--compression", "lz4"]
    sent = bench(mock, "produce", *argv)
    assert (sent["records"], sent["partitions"], sent["errors"]) == (976, 4, 0)


def test_latencies(mock: str) -> None:
    found = bench(mock, "latency", "--records", "20", "--value-bytes", "10")
    assert (found["records"], found["latency_ms"]["samples"]) == (20, 20)  # type: ignore[index]
    # The mock wakes no waiting fetch, so it must not wait long.
    argv = ["--records", "5", "--end-to-end", "-X", "fetch.wait.max.ms=5"]
    found = bench(mock, "latency", *argv)
    assert found["end_to_end_ms"]["samples"] == 5  # type: ignore[index]
    assert found["latency_ms"]["samples"] == 5  # type: ignore[index]


def test_loads_that_cannot_be_run(mock: str) -> None:
    neve(mock, "bench", "consume", "--topic", "nope", code=1, told="topic nope")
    neve(mock, "bench", "produce", "--partitions", "9", code=1, told="4 partitions, not 9")
    neve(
        mock,
        "bench",
        "produce",
        "--records",
        "1",
        "--seconds",
        "1",
        code=2,
        told="cannot be combined",
    )
    large = ["--value-bytes", "2000000", "--records", "5"]
    neve(mock, "bench", "produce", *large, code=1, told="Message size too large")
