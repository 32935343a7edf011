"""Latency from record to table while a topic is written at a steady rate.

The time starts with the record's timestamp and ends when the pipeline has committed a snapshot that
contains it, according to the table's offsets.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from neve import runtime
from neve.bench.broker.compare import Bound
from neve.bench.broker.processes import serve
from neve.bench.kafka import topics
from neve.bench.kafka.measure import BenchError
from neve.bench.spark.records import FIELDS, PARTITIONS, order
from neve.bench.spark.sessions import local_spark
from neve.lake.pipeline.config import parse_config
from neve.lake.pipeline.runner import Pipeline, TopicReport
from neve.lake.scan.tasks import StoreRef
from neve.lake.spark.session import PIPELINE_SETTINGS
from neve.lake.tables import catalog_of, read_progress

TOPIC = "orders"
RATE, SECONDS_DEFAULT, INTERVAL = 5_000, 90.0, "10s"
SLICE_SECONDS = 0.02
WITHIN_SECONDS = 20.0
WAIT_SECONDS = 60.0
MILLISECONDS = pa.timestamp("ms", "UTC")


def measure(seconds: float = SECONDS_DEFAULT) -> list[dict[str, Any]]:
    """Write for this many seconds. Returns p50 and p99 from a record's timestamp to its commit."""
    with tempfile.TemporaryDirectory(prefix="neve-bench-") as place:
        folder = Path(place)
        store = str(folder / "bucket")
        with serve(store) as broker, local_spark(folder, settings=PIPELINE_SETTINGS) as spark:
            commits = runtime.run(_both(spark, store, broker.address, seconds))
        waits = _waits(store, commits)
    return [
        Bound(
            "steady.p99", f"seconds from record to table, {RATE} a second", at_most=WITHIN_SECONDS
        ).row([float(np.quantile(waits, 0.99))]),
        Bound("steady.p50", "the same, half of them").row([float(np.quantile(waits, 0.5))]),
        Bound("steady.records", "records that were waited for").row([float(len(waits))]),
    ]


@dataclass
class _Commits:
    """The table's offsets after each step of the pipeline, with the time of the step."""

    store: str
    written: int | None = None
    seen: list[tuple[int, dict[int, int]]] = field(default_factory=list)

    def note(self, report: TopicReport) -> None:
        if report.failures:
            raise BenchError(f"the pipeline failed: {report.failures}")
        table = catalog_of({}, self.store).load_table(report.table)
        for progress in read_progress(table).values():
            self.seen.append((runtime.now_ms(), dict(progress.offsets)))

    def complete(self) -> bool:
        held = sum(self.seen[-1][1].values()) if self.seen else 0
        return self.written is not None and held >= self.written


async def _both(spark: Any, store: str, address: str, seconds: float) -> _Commits:
    commits = _Commits(store)
    config = parse_config(
        {
            "store": store,
            "interval": INTERVAL,
            "topics": [{"topic": TOPIC, "value": {"format": "json", "schema": FIELDS}}],
        }
    )
    until = runtime.monotonic() + seconds + WAIT_SECONDS

    def stop() -> bool:
        return commits.complete() or runtime.monotonic() > until

    def fill() -> None:
        with Pipeline(spark, config) as pipeline:
            pipeline.run(stop, commits.note)

    with topics.topic({"bootstrap.servers": address}, TOPIC, PARTITIONS):
        writing = runtime.spawn(_write(address, seconds))
        filling = runtime.spawn(runtime.offload(fill))
        commits.written = await writing
        await filling
    if not commits.complete():
        raise BenchError(f"after {WAIT_SECONDS:.0f} s more, the table still lacks records")
    return commits


async def _write(address: str, seconds: float) -> int:
    """Write records at a steady rate. Returns their number."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
    started = runtime.monotonic()
    count = 0
    while (passed := runtime.monotonic() - started) < seconds:
        while count < passed * RATE:
            producer.produce(TOPIC, order(count), partition=count % PARTITIONS)
            count += 1
        producer.poll(0)
        await runtime.sleep(SLICE_SECONDS)
    if await runtime.offload(producer.flush, WAIT_SECONDS):
        raise BenchError("records were not acknowledged")
    return count


def _waits(store: str, commits: _Commits) -> np.ndarray[Any, Any]:
    """Return the seconds from each record's timestamp to the first step that had it committed."""
    found = []
    with StoreRef(store).open() as bucket:
        for partition in range(PARTITIONS):
            parts = [
                batch.column("timestamp").cast(MILLISECONDS).cast(pa.int64()).to_numpy()
                for batch in bucket.arrow(TOPIC, partition, columns=("timestamp",))
            ]
            stamps = np.concatenate(parts)
            ends = np.array([offsets.get(partition, 0) for _, offsets in commits.seen])
            times = np.array([at_ms for at_ms, _ in commits.seen])
            first = np.searchsorted(ends, np.arange(len(stamps)), side="right")
            found.append((times[first] - stamps) / 1000)
    return np.concatenate(found)
