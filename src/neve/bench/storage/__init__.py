"""Compares Neve's use of the bucket with simpler designs, in time and in number of requests.

Every row is the median of many seeded runs of Neve's own classes on a simulated clock, over a store
in memory with log-normal latencies, without request limits, retries or hedging. A run with the same
seed is identical, so the result depends only on the code, not on the machine. docs/benchmarks.md
explains each figure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from neve.bench.storage import commit, index, pair, recovery, scan, tiering, wal_puts
from neve.bench.storage.rows import Figures, summary
from neve.bench.storage.slow_bucket import GET_LATENCY, LINK_BYTES_PER_SECOND, PUT_LATENCY
from neve.errors import InvalidError

RUNS_DEFAULT = 200
MEASUREMENTS = (
    *(module.MEASUREMENT for module in (pair, index, scan, recovery, commit, wal_puts)),
    *tiering.MEASUREMENTS,
)

OnProgress = Callable[[int, int, str], None]


def run(
    runs: int = RUNS_DEFAULT, *, seed: int = 1, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """Measure everything, `runs` times each with consecutive seeds. The result is JSON-compatible.

    Calls `on_progress` with the number of completed runs, their total, and the current label.
    """
    if runs < 1:
        raise InvalidError(f"runs = {runs}: must be >= 1")
    total = sum(measurement.runs(runs) for measurement in MEASUREMENTS)
    done = 0
    results: list[dict[str, Any]] = []
    for measurement in MEASUREMENTS:
        figures: list[Figures] = []
        for number in range(measurement.runs(runs)):
            if on_progress is not None:
                on_progress(done, total, measurement.label)
            figures.append(measurement.measure(seed + number))
            done += 1
        results += [summary(row, figures) for row in measurement.rows]
    if on_progress is not None:
        on_progress(done, total, "done")
    ok = all(row["ok"] for row in results)
    return {
        "benchmark": "storage",
        "clock": "simulated",
        "runs": runs,
        "seed": seed,
        "model": {
            "put_ms": {"median": PUT_LATENCY.median_ms, "p99": PUT_LATENCY.p99_ms},
            "get_ms": {"median": GET_LATENCY.median_ms, "p99": GET_LATENCY.p99_ms},
            "distribution": "log-normal",
            "link_bytes_per_second": LINK_BYTES_PER_SECOND,
        },
        "results": results,
        "ok": ok,
        # The same as `ok`, under the name that all benchmarks use.
        "passed": ok,
    }
