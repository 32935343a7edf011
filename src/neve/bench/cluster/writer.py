"""A producer that sends single records at a steady rate, and knows how long each took."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from neve import runtime
from neve.bench.kafka.measure import BenchError

VALUE_BYTES = 1024
QUEUE_SECONDS = 120.0
POLL_SECONDS = 0.001


class Acknowledged(NamedTuple):
    """One record: when it was handed to the producer, how long until its acknowledgement."""

    sent_at: float
    seconds: float
    partition: int


class SteadyWriter:
    """Writes to partitions in turn with acks=all, idempotent. Fails if a record is given up."""

    def __init__(
        self, config: Mapping[str, Any], topic: str, partitions: Sequence[int], per_second: float
    ) -> None:
        from confluent_kafka import Producer

        self._producer = Producer(
            {
                "linger.ms": 0,
                "message.timeout.ms": int(QUEUE_SECONDS * 1000),
                **config,
                "acks": "all",
                "enable.idempotence": True,
            }
        )
        self._topic = topic
        self._partitions = list(partitions)
        self._gap_seconds = 1 / per_second
        self._due_at = runtime.monotonic()
        self._sent = 0
        self._value = runtime.token(VALUE_BYTES)
        self._failure: str | None = None
        self.acknowledged: list[Acknowledged] = []

    @property
    def waiting(self) -> int:
        """The number of records without acknowledgement."""
        return self._sent - len(self.acknowledged)

    def write_while(self, goes_on: Callable[[], bool]) -> None:
        """Write as long as the condition holds. It is asked after every record."""
        self._due_at = runtime.monotonic()
        while goes_on():
            now = runtime.monotonic()
            if now >= self._due_at:
                # Time that was lost is not caught up on: that would be a burst.
                self._due_at = max(self._due_at + self._gap_seconds, now)
                self._write_one(now)
            self._poll(POLL_SECONDS)

    def write_for(self, seconds: float) -> None:
        ends_at = runtime.monotonic() + seconds
        self.write_while(lambda: runtime.monotonic() < ends_at)

    def write_to_all(self) -> None:
        """Write one record to every partition, and wait for the acknowledgements."""
        for _ in self._partitions:
            self._write_one(runtime.monotonic())
        self.flush()

    def flush(self) -> None:
        ends_at = runtime.monotonic() + QUEUE_SECONDS
        while self.waiting:
            self._poll(0.05)
            if runtime.monotonic() > ends_at:
                raise BenchError(f"{self.waiting} records are not acknowledged")

    def _write_one(self, now: float) -> None:
        partition = self._partitions[self._sent % len(self._partitions)]
        self._sent += 1

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                self._failure = f"partition {partition}: {error.str()}"
            row = Acknowledged(now, runtime.monotonic() - now, partition)
            self.acknowledged.append(row)

        self._producer.produce(self._topic, self._value, partition=partition, on_delivery=delivered)

    def _poll(self, seconds: float) -> None:
        self._producer.poll(seconds)
        if self._failure is not None:
            raise BenchError(f"a record was given up: {self._failure}")
