"""Topics written by real clients for Spark to read, and the records in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from support.brokers import RunningBroker, start_broker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BEGIN_MS = 1_700_000_000_000
QUICK = {"segment_bytes": 20_000, "wal_tail_objects": 4, "store_folder_fsync": False}
"""Many small segments, and roll-ups soon."""


class Sent(NamedTuple):
    """One record as it was produced."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


@dataclass
class Topics:
    """A broker on a folder, and every acknowledged record by topic, partition and offset."""

    folder: Path
    broker: RunningBroker
    sent: dict[tuple[str, int, int], Sent] = field(default_factory=dict)

    @classmethod
    def start(cls, folder: Path, **settings: object) -> Topics:
        return cls(
            folder / "bucket",
            start_broker(folder / "bucket", folder / "broker.log", **{**QUICK, **settings}),
        )

    @property
    def store(self) -> str:
        return str(self.folder)

    def stop(self) -> None:
        self.__dict__.pop("admin", None)  # it would go on trying to reach the broker
        self.broker.stop()

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.broker.bootstrap})

    def create(self, topic: str, partitions: int) -> None:
        # Records are years old: in a long run retention would take them from under the tests.
        forever = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
        for made in self.admin.create_topics([forever]).values():
            made.result(60)

    def ensure(self, topic: str) -> None:
        """One partition of it, unless it is there."""
        if topic not in self.admin.list_topics(timeout=60).topics:
            self.create(topic, 1)

    def grow(self, topic: str, partitions: int) -> None:
        for done in self.admin.create_partitions([NewPartitions(topic, partitions)]).values():
            done.result(60)

    def delete(self, topic: str) -> None:
        for done in self.admin.delete_topics([topic]).values():
            done.result(60)

    def produce(self, topic: str, partition: int, records: list[Sent], codec: str = "none") -> None:
        """Produce and wait for all acknowledgements."""
        producer = Producer(
            {"bootstrap.servers": self.broker.bootstrap, "compression.type": codec, "linger.ms": 5}
        )
        for record in records:

            def delivered(error: Any, message: Any, record: Sent = record) -> None:
                assert error is None, error
                self.sent[topic, message.partition(), message.offset()] = record

            producer.produce(
                topic,
                key=record.key,
                value=record.value,
                headers=list(record.headers) or None,
                partition=partition,
                timestamp=record.timestamp,
                on_delivery=delivered,
            )
        assert producer.flush(60) == 0

    def of(self, topic: str) -> dict[tuple[int, int], Sent]:
        """What was acknowledged of a topic, by partition and offset."""
        return {(place[1], place[2]): row for place, row in self.sent.items() if place[0] == topic}


def sample(number: int, size: int = 60) -> Sent:
    """A record of its own, with or without key, value and headers."""
    key = None if number % 7 == 0 else b"key-%d" % number
    value = None if number % 11 == 0 else (b"value %d " % number) * (size // 10)
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if number % 3 == 0:
        headers = (("first", b"h%d" % number), ("none", None), ("first", b""))
    return Sent(key, value, headers, BEGIN_MS + number)


def rows_of(frame: Any) -> dict[tuple[int, int], Sent]:
    """All rows of a frame with headers, by partition and offset; one that came twice is told."""
    found: dict[tuple[int, int], Sent] = {}
    for row in frame.selectExpr(
        "partition", "offset", "key", "value", "headers", "unix_millis(timestamp) as at"
    ).collect():
        place = (row["partition"], row["offset"])
        assert place not in found, f"{place} came twice"
        headers = tuple(
            (each["key"], None if each["value"] is None else bytes(each["value"]))
            for each in row["headers"] or ()
        )
        found[place] = Sent(_bytes(row["key"]), _bytes(row["value"]), headers, row["at"])
    return found


def _bytes(given: Any) -> bytes | None:
    return None if given is None else bytes(given)
