"""The benchmark of a pipeline: throughput with a backlog, and latency at a steady rate."""

from __future__ import annotations

from typing import Any

from neve.bench.spark import backlog, steady
from neve.bench.spark.records import Progress
from neve.bench.spark.sessions import CORES

ROUNDS_DEFAULT = backlog.ROUNDS_DEFAULT
SECONDS_DEFAULT = steady.SECONDS_DEFAULT


def run(
    rounds: int = ROUNDS_DEFAULT,
    scale: float = 1.0,
    seconds: float = SECONDS_DEFAULT,
    on_progress: Progress = lambda *_: None,
) -> dict[str, Any]:
    """Measure both. Returns each figure with its rounds and its bound."""
    rows = [*backlog.measure(rounds, scale, on_progress), *steady.measure(seconds)]
    return {
        "benchmark": "lake",
        "cores": CORES,
        "rounds": rounds,
        "rows": rows,
        "passed": all(row["ok"] for row in rows),
    }
