"""Consume load: throughput from the start of a topic to its end when the load begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neve import runtime
from neve.bench.kafka import topics
from neve.bench.kafka.measure import BenchError, Stopwatch, throughput
from neve.bench.kafka.topics import Config

# The default max.poll.records of Kafka's Java consumer. With thousands of records per call the
# client is half as fast, because they no longer fit the CPU's caches, and one call occupies a core
# for longer than several acknowledgements take.
BATCH_RECORDS = 500
POLL_SECONDS = 0.2
SILENCE_SECONDS = 30.0

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The topic to read, and optional limits on records and seconds."""

    topic: str
    records: int | None = None
    seconds: float | None = None


@dataclass
class _Counted:
    records: int = 0
    size: int = 0
    first_seconds: float | None = None


def run(
    config: Config, reading: Reading, on_progress: Progress = lambda *_: None
) -> dict[str, Any]:
    """Read a topic. Returns the results. Raises BenchError if it is empty or reading stalls."""
    from confluent_kafka import Consumer, TopicPartition

    bounds = topics.ends(config, reading.topic)
    expected = sum(high - low for low, high in bounds.values())
    if expected == 0:
        raise BenchError(f"topic {reading.topic} is empty: fill it with `neve bench produce`")
    wanted = expected if reading.records is None else min(expected, reading.records)
    consumer = Consumer(
        {
            "group.id": f"neve-bench-{runtime.token(4).hex()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **config,
        }
    )
    try:
        watch = Stopwatch()
        consumer.assign(
            [
                TopicPartition(reading.topic, number, low)
                for number, (low, high) in bounds.items()
                if high > low
            ]
        )
        counted = _read(consumer, reading, bounds, wanted, watch, on_progress=on_progress)
        measured = throughput(counted.records, counted.size, watch)
    finally:
        consumer.close()
    return {
        "benchmark": "consume",
        "bootstrap": config["bootstrap.servers"],
        "topic": reading.topic,
        "partitions": len(bounds),
        **measured,
        "first_record_ms": round((counted.first_seconds or 0.0) * 1000, 3),
        "errors": 0,
    }


def _read(
    consumer: Any,
    reading: Reading,
    bounds: dict[int, tuple[int, int]],
    wanted: int,
    watch: Stopwatch,
    *,
    on_progress: Progress,
) -> _Counted:
    counted = _Counted()
    heard_at = 0.0
    while counted.records < wanted:
        # `consume` waits until the batch is full. So the first record is requested alone, to time
        # it, and never more records than remain.
        most = min(BATCH_RECORDS, wanted - counted.records) if counted.records else 1
        messages = consumer.consume(most, POLL_SECONDS)
        seconds = watch.seconds()
        if messages:
            sizes = list(map(len, messages))  # sizes of values, without copying the values
            if 0 in sizes:
                _refuse_errors(messages)
            if counted.first_seconds is None:
                counted.first_seconds = seconds
            counted.records += len(sizes)
            counted.size += sum(sizes)
            heard_at = seconds
            on_progress(counted.records, wanted)
        elif _at_end(consumer, bounds):  # some offsets hold no records, so the count falls short
            break
        elif seconds - heard_at > SILENCE_SECONDS:
            raise BenchError(
                f"nothing came for {SILENCE_SECONDS:g} s after {counted.records} of {wanted} "
                f"records of topic {reading.topic}"
            )
        if reading.seconds is not None and seconds > reading.seconds:
            break
    return counted


def _refuse_errors(messages: list[Any]) -> None:
    for message in messages:
        if message.error() is not None:
            raise BenchError(f"{message.topic()}-{message.partition()}: {message.error().str()}")


def _at_end(consumer: Any, bounds: dict[int, tuple[int, int]]) -> bool:
    return all(
        each.offset >= bounds[each.partition][1]
        for each in consumer.position(consumer.assignment())
    )
