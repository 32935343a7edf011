"""Latency load: the time of one record to its acknowledgement, and to a waiting consumer.

At most one record is in flight, so no time is spent in queues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from neve import runtime
from neve.bench.kafka import topics
from neve.bench.kafka.measure import BenchError, Stopwatch, latencies, throughput
from neve.bench.kafka.topics import Config

RECORD_SECONDS_MAX = 30.0
WARM_UP_RECORDS = 20
PROGRESS_EVERY_RECORDS = 50

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, kw_only=True)
class Probe:
    """The options of the load. `end_to_end` also measures the time to a waiting consumer."""

    topic: str | None = None
    records: int | None = None
    seconds: float | None = None
    value_bytes: int = 1024
    acks: str = "all"
    end_to_end: bool = False


@dataclass
class _Times:
    acknowledged: list[float] = field(default_factory=list)
    consumed: list[float] = field(default_factory=list)


def run(config: Config, probe: Probe, on_progress: Progress = lambda *_: None) -> dict[str, Any]:
    """Send records one by one. Returns the results."""
    with topics.topic(config, probe.topic, 1) as name:
        flight = _Flight(config, probe, name)
        try:
            for _ in range(WARM_UP_RECORDS):
                flight.one()
            flight.times = _Times()
            watch = Stopwatch()
            sent = _drive(flight, probe, watch, on_progress)
            measured = throughput(sent, sent * probe.value_bytes, watch)
        finally:
            flight.close()
    times = flight.times
    return {
        "benchmark": "latency",
        "bootstrap": config["bootstrap.servers"],
        "topic": name,
        "value_bytes": probe.value_bytes,
        "acks": probe.acks,
        **measured,
        "latency_ms": latencies(times.acknowledged),
        **({"end_to_end_ms": latencies(times.consumed)} if probe.end_to_end else {}),
        "errors": 0,
    }


def _drive(flight: _Flight, probe: Probe, watch: Stopwatch, on_progress: Progress) -> int:
    sent = 0
    while (probe.records is None or sent < probe.records) and (
        probe.seconds is None or watch.seconds() < probe.seconds
    ):
        flight.one()
        sent += 1
        if sent % PROGRESS_EVERY_RECORDS == 0:
            on_progress(sent, probe.records)
    return sent


class _Flight:
    """Sends one record at a time and collects its times."""

    def __init__(self, config: Config, probe: Probe, name: str) -> None:
        from confluent_kafka import Producer

        self.times = _Times()
        self._name = name
        self._value = runtime.token(probe.value_bytes)
        self._producer = Producer({"linger.ms": 0, **config, "acks": probe.acks})
        self._answered_at: float | None = None
        self._error: Any = None
        self._consumer: Any = _waiting_consumer(config, name) if probe.end_to_end else None

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def one(self) -> None:
        """Send one record, and wait for its acknowledgement and, if there is one, the consumer."""
        self._answered_at = self._error = None
        started_at = runtime.monotonic()
        self._producer.produce(self._name, self._value, partition=0, on_delivery=self._delivered)
        if self._consumer is not None:
            # Wait for the consumer first: waiting for the acknowledgement would add to the
            # consumer's time. librdkafka measures the time of the acknowledgement itself.
            self._consume(started_at)
        while self._answered_at is None:
            if runtime.monotonic() - started_at > RECORD_SECONDS_MAX:
                raise BenchError(f"no acknowledgement within {RECORD_SECONDS_MAX:g} s")
            self._producer.poll(0.2)
        if self._error is not None:
            raise BenchError(f"a record was not acknowledged: {self._error.str()}")
        if self._consumer is None:
            self.times.acknowledged.append(self._answered_at - started_at)

    def _delivered(self, error: Any, message: Any) -> None:
        self._answered_at = runtime.monotonic()
        self._error = error
        if error is None and self._consumer is not None:
            self.times.acknowledged.append(message.latency())

    def _consume(self, started_at: float) -> None:
        while True:
            message = self._consumer.poll(0.2)
            now = runtime.monotonic()
            if message is not None and message.error() is not None:
                raise BenchError(f"{self._name}: {message.error().str()}")
            if message is not None:
                self.times.consumed.append(now - started_at)
                return
            if now - started_at > RECORD_SECONDS_MAX:
                raise BenchError(f"the record was not consumed within {RECORD_SECONDS_MAX:g} s")


def _waiting_consumer(config: Config, name: str) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    _, end = topics.ends(config, name, 1)[0]
    consumer = Consumer(
        {
            "group.id": f"neve-bench-{runtime.token(4).hex()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **config,
        }
    )
    consumer.assign([TopicPartition(name, 0, end)])
    return consumer
