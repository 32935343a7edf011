"""Measures how a cluster grows: real brokers on this machine, simulated ones on a model of S3.

Real: throughput of one, two and three brokers. Simulated, on the virtual clock: what an idle
cluster costs, how often the cluster log can change, failovers, and a join. The processor time of
one broker in the large cluster is measured apart, in real time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neve.bench.broker.compare import Bound
from neve.bench.kafka.measure import BenchError
from neve.bench.scale import processor, simulated, throughput
from neve.bench.scale.cluster import Size

SECONDS_DEFAULT = 10.0
BROKERS_DEFAULT, PARTITIONS_DEFAULT = 100, 50_000
SMALL_BROKERS, SMALL_PARTITIONS = 3, 300
COUNTS = (1, 2, 3)
SEED = 1

Progress = Callable[[int, int | None], None]

BOUNDS = (
    *(
        Bound(f"throughput.{count}", f"MB/s of {count} brokers, a producer each")
        for count in COUNTS
    ),
    *(Bound(f"puts.{count}", f"WAL PUTs a second and broker, {count} brokers") for count in COUNTS),
    Bound("idle3.dollars", "dollars a month for requests of 3 idle brokers", at_most=5.0),
    Bound("idle3.requests", "requests of each an hour"),
    Bound("idle.dollars", "dollars a month for requests of the large cluster, idle"),
    Bound("idle.requests", "requests of each broker an hour"),
    Bound("log.changes", "changes a second of the cluster log, 10 brokers at once"),
    Bound("failover.killed", "s from the death of a broker until all partitions are served"),
    Bound("failover.killed.balanced", "s until brokers lead equally many again"),
    Bound("failover.killed.records", "records in the cluster log for that"),
    Bound("failover.silent", "the same, from when a broker falls silent"),
    Bound("failover.silent.balanced", "s until brokers lead equally many again"),
    Bound("failover.silent.records", "records in the cluster log for that"),
    Bound("join.seconds", "s until a new broker serves its share"),
    Bound("join.records", "records in the cluster log until the load is balanced"),
    Bound("cpu.checkpoint", "ms of processor time of one broker to read the checkpoint"),
    Bound("cpu.change", "ms of processor time of one broker for one change"),
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured."""

    brokers: int = BROKERS_DEFAULT
    partitions: int = PARTITIONS_DEFAULT
    seconds: float = SECONDS_DEFAULT
    idle_seconds: float = simulated.IDLE_SECONDS_DEFAULT

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.idle_seconds <= 0:
            raise BenchError("every amount of the scale benchmark must be greater than 0")
        _ = self.size  # raises if there is no such cluster

    @property
    def size(self) -> Size:
        return Size(brokers=self.brokers, partitions=self.partitions)

    @property
    def steps(self) -> int:
        return len(COUNTS) + len(simulated.STEPS) + 2


def run(plan: Plan, on_progress: Progress = lambda *_: None) -> dict[str, Any]:
    """Measure everything. Returns each figure with its bound."""
    done = 0

    def step() -> None:
        nonlocal done
        on_progress(done, plan.steps)
        done += 1

    figures: dict[str, float] = {}
    for count in COUNTS:
        step()
        figures |= throughput.measure(count, plan.seconds)
    step()
    small = Size(brokers=SMALL_BROKERS, partitions=SMALL_PARTITIONS)
    idle = simulated.measure_idle(small, plan.idle_seconds, seed=SEED)
    figures |= {name.replace("idle", "idle3"): value for name, value in idle.items()}
    figures |= simulated.measure_changes(
        plan.size, plan.idle_seconds, seed=SEED, step=lambda _: step()
    )
    step()
    figures |= processor.measure(plan.size)
    rows = [bound.row([figures[bound.name]]) for bound in BOUNDS]
    return {
        "benchmark": "scale",
        "brokers": plan.brokers,
        "partitions": plan.partitions,
        "passed": all(row["ok"] for row in rows),
        "rows": rows,
    }
