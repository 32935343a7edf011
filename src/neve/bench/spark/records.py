"""The records of the benchmarks. Each is computed from its number: the same for every broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neve.bench.kafka import topics
from neve.bench.kafka.measure import BenchError

PARTITIONS = 4
START_MS = 1_760_000_000_000
FLUSH_SECONDS = 300
POLL_EVERY = 1000
QUEUE_RECORDS = 200_000

Progress = Callable[[int, int | None], None]
Value = Callable[[int], bytes]


@dataclass(frozen=True)
class Shape:
    """A number of records of one kind."""

    name: str
    count: int
    value: Value


def text_of(size: int) -> Value:
    """Return a function that makes a different text of `size` bytes for each number."""

    def value(number: int) -> bytes:
        return (b"%012d-%08x-" % (number, number * 2654435761 % 2**32)).ljust(size, b".")

    return value


FIELDS = {
    "id": "long",
    "customer": "string",
    "total": "double",
    "currency": "string",
    "paid": "boolean",
    "items": "int",
    "at": "timestamp",
    "country": "string",
    "note": "string",
    "weight": "double",
}


def order(number: int) -> bytes:
    """Return a flat JSON object of ten fields."""
    return (
        b'{"id":%d,"customer":"customer-%d","total":%d.%02d,"currency":"EUR","paid":%s,"items":%d,'
        b'"at":"2026-03-%02dT%02d:%02d:%02dZ","country":"%s","note":"leave it with the %d%s '
        b'neighbour","weight":%d.5}'
    ) % (
        number,
        number % 9973,
        number % 500,
        number % 100,
        b"true" if number % 3 else b"false",
        number % 12,
        1 + number % 28,
        number % 24,
        number % 60,
        number % 59,
        (b"NO", b"AT", b"NL", b"PT", b"IT")[number % 5],
        1 + number % 9,
        b"th",
        number % 40,
    )


def produce(address: str, shape: Shape) -> None:
    """Write all records of a shape. Keys, timestamps and partitions follow from the number."""
    from confluent_kafka import Producer

    config = {"bootstrap.servers": address}
    failures: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            **config,
            "enable.idempotence": True,  # without it a retry may change the order of records
            "linger.ms": 20,
            "batch.size": 65536,
            "queue.buffering.max.messages": QUEUE_RECORDS,
            "on_delivery": delivered,
        }
    )
    with topics.topic(config, shape.name, PARTITIONS):
        for number in range(shape.count):
            if number % POLL_EVERY == 0:
                producer.poll(0)
                while len(producer) > QUEUE_RECORDS - 2 * POLL_EVERY:
                    producer.poll(0.01)
            producer.produce(
                shape.name,
                shape.value(number),
                b"key-%08d" % (number % 100_000),
                partition=number % PARTITIONS,
                timestamp=START_MS + number,
            )
        if producer.flush(FLUSH_SECONDS) or failures:
            raise BenchError(f"{shape.name}: records were not acknowledged: {failures[:1]}")
