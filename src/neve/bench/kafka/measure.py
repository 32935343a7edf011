"""Measurements of every load: throughput, latencies, CPU time of this process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from neve import runtime
from neve.errors import NeveError


class BenchError(NeveError):
    """A load could not be run as requested."""


def cpu_seconds() -> float:
    """Return user and system time of this process, including librdkafka's threads."""
    spent = os.times()
    return spent.user + spent.system


class Stopwatch:
    """Measures wall and CPU time since its creation."""

    def __init__(self) -> None:
        self._started_at = runtime.monotonic()
        self._cpu = cpu_seconds()

    def seconds(self) -> float:
        return runtime.monotonic() - self._started_at

    def client_cpu_seconds(self) -> float:
        return cpu_seconds() - self._cpu


def throughput(records: int, size: int, watch: Stopwatch) -> dict[str, Any]:
    """Return amounts and rates until now. `size` is bytes of values; MB are millions of bytes."""
    seconds = max(watch.seconds(), 1e-9)
    return {
        "records": records,
        "bytes": size,
        "seconds": round(seconds, 4),
        "mb_per_second": round(size / seconds / 1e6, 2),
        "records_per_second": round(records / seconds, 1),
        "client_cpu_seconds": round(watch.client_cpu_seconds(), 3),
    }


def latencies(seconds: Sequence[float]) -> dict[str, Any]:
    """Return nearest-rank percentiles in milliseconds."""
    if not seconds:
        return {"samples": 0}
    ordered = sorted(seconds)

    def at(per_mille: int) -> float:
        rank = -(-len(ordered) * per_mille // 1000)  # rounded up: the nearest-rank percentile
        return round(ordered[max(rank, 1) - 1] * 1000, 4)

    return {
        "samples": len(ordered),
        "p50": at(500),
        "p99": at(990),
        "p99.9": at(999),
        "max": at(1000),
    }
