"""What becomes of records that are produced: every one is accounted for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from neve.cli.input_format import InputError, Row
from neve.cli.produce import Sending, produce
from support.kafka_fakes import FakeCluster

TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT)


class FakeProducer:
    """Takes two records at a time; those with the value b"bad" are never acknowledged."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self._queue: list[tuple[Any, dict[str, Any]]] = []

    def __len__(self) -> int:
        return len(self._queue)

    def produce(self, topic: str, *, on_delivery: Any, **arguments: Any) -> None:
        if len(self._queue) == 2:
            raise BufferError
        self.sent.append((topic, arguments))
        self._queue.append((on_delivery, arguments))

    def poll(self, _: float) -> None:
        if self._queue:
            on_delivery, arguments = self._queue.pop(0)
            error = TIMED_OUT if arguments["value"] == b"bad" else None
            partition = arguments.get("partition", 0)
            on_delivery(error, SimpleNamespace(partition=lambda: partition))

    flush = poll


@pytest.fixture
def producer() -> FakeProducer:
    return FakeProducer()


@pytest.fixture
def cluster(producer: FakeProducer, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster({"t": {0: (0, 0), 1: (0, 0)}})
    monkeypatch.setattr(made, "producer", lambda **_: producer)
    return made


def test_keys_headers_partitions_and_tombstones(
    cluster: FakeCluster, producer: FakeProducer, capfd: pytest.CaptureFixture[str]
) -> None:
    sending = Sending(topic="t", key=b"d", headers=[("h", b"1")], partition=1, tombstones=True)
    rows = [Row(value=b"v"), Row(b"k", b"", 0, 99, [("own", None)])]
    assert produce(cluster, sending, rows, as_json=False) == 0
    assert producer.sent == [
        ("t", {"value": b"v", "key": b"d", "headers": [("h", b"1")], "partition": 1}),
        (
            "t",
            {
                "value": None,
                "key": b"k",
                "headers": [("own", None), ("h", b"1")],
                "partition": 0,
                "timestamp": 99,
            },
        ),
    ]
    told = "sent 2 records to t: 1 to partition 0, 1 to partition 1\n"
    assert capfd.readouterr().out == told


def test_a_full_queue_waits_and_loses_nothing(
    cluster: FakeCluster, producer: FakeProducer, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [Row(value=b"%d" % n) for n in range(10)]
    assert produce(cluster, Sending(topic="t"), rows, as_json=True) == 0
    assert json.loads(capfd.readouterr().out)["sent"] == 10
    assert [arguments["value"] for _, arguments in producer.sent] == [row.value for row in rows]


def test_what_was_not_acknowledged_is_told_and_ends_with_1(
    cluster: FakeCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = [Row(value=b"good"), Row(value=b"bad"), Row(value=b"bad")]
    assert produce(cluster, Sending(topic="t"), rows, as_json=True) == 1
    out, err = capfd.readouterr()
    found = json.loads(out)
    assert (found["sent"], found["failed"], found["errors"]) == (1, 2, ["Message timed out"])
    assert err == "neve: 2 of 3 records were not acknowledged: Message timed out\n"


@pytest.mark.parametrize("ending", [InputError("record 2"), KeyboardInterrupt()])
def test_what_was_read_before_the_input_broke_is_accounted_for(
    ending: BaseException, cluster: FakeCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    def rows() -> Iterator[Row]:
        yield Row(value=b"v")
        raise ending

    with pytest.raises(type(ending)):
        produce(cluster, Sending(topic="t"), rows(), as_json=False)
    assert capfd.readouterr().out == "sent 1 records to t: 1 to partition 0\n"
