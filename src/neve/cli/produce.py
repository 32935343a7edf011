"""Implementation of `neve topic produce`: records from standard input to a topic.

A record counts as sent once the broker has acknowledged it. If one is not acknowledged, the command
prints the reason and exits with 1. Memory is bounded by librdkafka's queue: when it is full,
reading waits.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from neve import runtime
from neve.cli import output
from neve.cli.connection import Connection, plain, unknown_partition
from neve.cli.input_format import Row

QUEUE_WAIT_SECONDS = 0.1
POLL_EVERY_ROWS = 256
REASONS_MAX = 5
DELIVERY_TIMEOUT_MS = 30_000
"""librdkafka's default is five minutes, which looks like a hang."""


@dataclass(frozen=True, kw_only=True)
class Sending:
    """The options for sending records."""

    topic: str
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    tombstones: bool = False
    compression: str = "none"
    acks: str = "all"
    auto_create: bool = False


@dataclass
class Outcome:
    """The numbers of records read, sent and failed."""

    read: int = 0
    sent: int = 0
    failed: int = 0
    by_partition: dict[int, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.sent += 1
            partition = message.partition()
            self.by_partition[partition] = self.by_partition.get(partition, 0) + 1
            return
        self.failed += 1
        reason = plain(error)
        if reason not in self.reasons and len(self.reasons) < REASONS_MAX:
            self.reasons.append(reason)


def produce(connection: Connection, sending: Sending, rows: Iterable[Row], *, as_json: bool) -> int:
    """Send all rows. Returns the exit code: 1 if a record was not acknowledged."""
    if sending.auto_create:
        connection.metadata()
    else:
        known = connection.partitions(sending.topic)
        if sending.partition is not None and sending.partition not in known:
            raise unknown_partition(sending.topic, sending.partition, known)
    producer = connection.producer(
        acks=sending.acks,
        compression__type=sending.compression,
        message__timeout__ms=DELIVERY_TIMEOUT_MS,
        linger__ms=5,
    )
    outcome = Outcome()
    started_at = runtime.monotonic()
    try:
        _send(producer, sending, rows, outcome)
    finally:
        # Also after Ctrl-C or invalid input: wait for the records already queued.
        _drain(producer, outcome)
        _report(sending.topic, outcome, runtime.monotonic() - started_at, as_json=as_json)
    return 1 if outcome.failed else 0


def _send(producer: Any, sending: Sending, rows: Iterable[Row], outcome: Outcome) -> None:
    with output.progress("records", hidden=os.isatty(output.STANDARD_INPUT)) as bar:
        for row in rows:
            arguments = _arguments(sending, row)
            while True:
                try:
                    producer.produce(sending.topic, on_delivery=outcome.delivered, **arguments)
                    break
                except BufferError:
                    producer.poll(QUEUE_WAIT_SECONDS)
            outcome.read += 1
            if outcome.read % POLL_EVERY_ROWS == 0:
                producer.poll(0)
                bar.show(outcome.sent, outcome.read)


def _arguments(sending: Sending, row: Row) -> dict[str, Any]:
    value = None if sending.tombstones and not row.value else row.value
    arguments: dict[str, Any] = {
        "value": value,
        "key": sending.key if row.key is None else row.key,
    }
    headers = [*row.headers, *sending.headers]
    if headers:
        arguments["headers"] = headers
    partition = sending.partition if row.partition is None else row.partition
    if partition is not None:
        arguments["partition"] = partition
    if row.timestamp_ms is not None:
        arguments["timestamp"] = row.timestamp_ms
    return arguments


def _drain(producer: Any, outcome: Outcome) -> None:
    """Wait until each record is acknowledged or has failed. librdkafka bounds the time."""
    with output.progress("records") as bar:
        while len(producer):
            producer.flush(QUEUE_WAIT_SECONDS)
            bar.show(outcome.sent + outcome.failed, outcome.read)


def _report(topic: str, outcome: Outcome, seconds: float, *, as_json: bool) -> None:
    if as_json:
        output.write_json(
            {
                "topic": topic,
                "sent": outcome.sent,
                "failed": outcome.failed,
                "partitions": {
                    str(number): count for number, count in sorted(outcome.by_partition.items())
                },
                "seconds": round(seconds, 3),
                "errors": outcome.reasons,
            }
        )
    else:
        where = ", ".join(
            f"{count} to partition {number}" for number, count in _some(outcome.by_partition)
        )
        print(f"sent {outcome.sent} records to {topic}" + (f": {where}" if where else ""))
    if outcome.failed:
        output.complain(
            f"{outcome.failed} of {outcome.read} records were not acknowledged: "
            + "; ".join(outcome.reasons)
        )


def _some(counts: dict[int, int]) -> Iterator[tuple[int, int]]:
    rows = sorted(counts.items())
    return iter(rows if len(rows) <= 8 else [])
