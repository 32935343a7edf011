"""Produce load: throughput and latency up to the acknowledgement.

The same chunk of the same value is sent repeatedly, so that Python does almost nothing per record.
One record of each chunk has a callback, which samples the latency. The end offsets before and after
show whether all records arrived, so no other producer may write to the topic meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from neve import runtime
from neve.bench.kafka import topics
from neve.bench.kafka.measure import BenchError, Stopwatch, latencies, throughput
from neve.bench.kafka.topics import Config

CHUNK_RECORDS = 500
QUEUE_RECORDS = 50_000
QUEUE_BYTES = 64 * 1024 * 1024
"""Large enough for five full requests in flight, small enough to stay in the CPU's caches."""

PROGRESS_EVERY_CHUNKS = 50
FLUSH_SECONDS = 120.0

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, kw_only=True)
class Load:
    """The options of the load."""

    topic: str | None = None
    records: int | None = None
    size: int | None = None
    seconds: float | None = None
    value_bytes: int = 1024
    acks: str = "all"
    idempotent: bool = False
    compression: str = "none"
    partitions: int = 1
    inflight: int = 5
    linger_ms: float = 5

    @property
    def records_max(self) -> int | None:
        if self.size is not None:
            return max(self.size // self.value_bytes, 1)
        return self.records


class _Samples:
    """Latencies of the sampled records, one per chunk, and the number of failures by reason."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.reasons: dict[str, int] = {}

    def delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.seconds.append(message.latency())
        else:
            self.reasons[error.str()] = self.reasons.get(error.str(), 0) + 1


def run(config: Config, load: Load, on_progress: Progress = lambda *_: None) -> dict[str, Any]:
    """Run the load. Returns the results."""
    with topics.topic(config, load.topic, load.partitions) as name:
        return _run(config, load, name, on_progress)


def _run(config: Config, load: Load, name: str, on_progress: Progress) -> dict[str, Any]:
    producer = _producer(config, load)
    value = runtime.token(load.value_bytes)
    _warm_up(producer, name, value, load.partitions)
    before = topics.ends(config, name, load.partitions)
    samples = _Samples()
    watch = Stopwatch()
    sent = _send(producer, load, name, _chunk(value, samples), watch, on_progress=on_progress)
    unsent = producer.flush(FLUSH_SECONDS)
    measured = throughput(sent - unsent, (sent - unsent) * load.value_bytes, watch)
    arrived = topics.stored(config, name, before, sent)
    return {
        "benchmark": "produce",
        "bootstrap": config["bootstrap.servers"],
        "topic": name,
        "value_bytes": load.value_bytes,
        "acks": load.acks,
        "idempotent": load.idempotent,
        "compression": load.compression,
        "partitions": load.partitions,
        "inflight": load.inflight,
        "linger_ms": load.linger_ms,
        **measured,
        "latency_ms": latencies(samples.seconds),
        "errors": max(sent - arrived, sum(samples.reasons.values()), unsent),
        "error_reasons": sorted(samples.reasons),
    }


def _producer(config: Config, load: Load) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            "acks": load.acks,
            "enable.idempotence": load.idempotent,
            "compression.type": load.compression,
            "max.in.flight.requests.per.connection": load.inflight,
            "linger.ms": load.linger_ms,
            "queue.buffering.max.messages": QUEUE_RECORDS,
            "queue.buffering.max.kbytes": QUEUE_BYTES // 1024,
            **config,
        }
    )


def _warm_up(producer: Any, name: str, value: bytes, partitions: int) -> None:
    """Send one record per partition, to set up connections and producer id before timing."""
    failures: list[str] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error.str())

    for number in range(partitions):
        producer.produce(name, value, partition=number, on_delivery=delivered)
    if producer.flush(topics.ANSWER_SECONDS) or failures:
        why = failures[0] if failures else f"no answer within {topics.ANSWER_SECONDS:g} s"
        raise BenchError(f"topic {name}: a first record was not acknowledged: {why}")


def _chunk(value: bytes, samples: _Samples) -> list[dict[str, Any]]:
    plain: dict[str, Any] = {"value": value}
    return [plain] * (CHUNK_RECORDS - 1) + [{"value": value, "callback": samples.delivered}]


def _send(
    producer: Any,
    load: Load,
    name: str,
    chunk: Sequence[dict[str, Any]],
    watch: Stopwatch,
    *,
    on_progress: Progress,
) -> int:
    """Enqueue records until the load ends. Returns their number."""
    hand_over, poll = producer.produce_batch, producer.poll
    most, seconds = load.records_max, load.seconds
    sent = rounds = 0
    rows = list(chunk)
    while (most is None or sent < most) and (seconds is None or watch.seconds() < seconds):
        if most is not None and most - sent < len(rows):
            rows = rows[sent - most :]
        try:
            taken = hand_over(name, rows, partition=rounds % load.partitions)
        except BufferError:
            taken = 0
        sent += taken
        if taken < len(rows):  # the queue is full: confluent-kafka set "_error" in refused rows
            rows[0].pop("_error", None)
            rows[-1].pop("_error", None)
            poll(0.002)
        else:
            poll(0)
        rounds += 1
        if rounds % PROGRESS_EVERY_CHUNKS == 0:
            on_progress(sent, most)
    return sent
