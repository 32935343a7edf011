"""Measures the throughput of one, two and three brokers, and the PUTs of each into the WAL."""

from __future__ import annotations

import tempfile

from neve.bench.broker.processes import Load
from neve.bench.cluster.brokers import NODES, Brokers, Topics
from neve.bench.kafka.measure import Stopwatch

PARTITIONS_PER_BROKER = 4
VALUE_BYTES = 1024
# Numbers are consecutive, and each is one object.
WAL_PUTS = "neve_wal_committed_number"

Figures = dict[str, float]


def measure(count: int, seconds: float) -> Figures:
    """Return what `count` brokers on a local folder take, with a producer for each of them."""
    folder = tempfile.TemporaryDirectory(prefix="neve-bench-")
    with folder as store, Brokers(store, nodes=NODES[:count]) as brokers:
        partitions = PARTITIONS_PER_BROKER * count
        Topics(brokers.config).create("load", partitions)
        arguments = (
            "--topic", "load", "--partitions", str(partitions),
            "--value-bytes", str(VALUE_BYTES), "--seconds", str(seconds),
        )  # fmt: skip
        puts, produced, watch = brokers.total(WAL_PUTS), brokers.produced_bytes(), Stopwatch()
        loads = [Load("produce", brokers.bootstrap, *arguments) for _ in range(count)]
        for each in loads:
            each.result()
        passed = watch.seconds()
        puts = brokers.total(WAL_PUTS) - puts
        produced = brokers.produced_bytes() - produced
    return {
        f"throughput.{count}": produced / passed / 1e6,
        f"puts.{count}": puts / passed / count,
    }
