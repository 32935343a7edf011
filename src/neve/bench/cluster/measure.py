"""Measures what clients notice of brokers that die, release partitions, or are replaced.

Failover: a partition with a long tail that no other broker has in memory; its leader is killed, and
the time counts until a record that was sent afterwards is acknowledged by another. Move: a broker
is drained under load. Replacement: a broker is killed, and another one with a new node id and an
empty disk is started. Traffic: bytes between brokers while producers write as fast as they can.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neve import runtime
from neve.bench.broker.compare import Bound
from neve.bench.broker.processes import load
from neve.bench.cluster.brokers import NODES, Brokers, Topics, wait_until
from neve.bench.cluster.writer import SteadyWriter
from neve.bench.kafka.measure import BenchError, Stopwatch, latencies

FAILOVERS_DEFAULT, TAIL_BYTES_DEFAULT = 30, 256_000_000
MOVED_DEFAULT, SECONDS_DEFAULT = 200, 10.0

SESSION_MS = 3_000
GET_DELAY_MS = 10
QUIET_MS = 1_000
SETTLE_SECONDS = 2.5
"""More than brokers wait before they balance the load, and for their next look at it."""

FAILOVER_PER_SECOND, MOVE_PER_SECOND = 100.0, 500.0
FAILOVERS_PER_PAUSE = 10
DIGITS = 7
TRAFFIC_PARTITIONS = 6
TRAFFIC_VALUE_BYTES = 1024
DRAIN_SECONDS_MAX = 120
# Nothing of the tail may become a segment.
TAIL_CONFIGS = {"segment.bytes": str(1 << 30), "segment.ms": str(7 * 86_400_000)}

Progress = Callable[[int, int | None], None]

BOUNDS = (
    Bound("failover.kill", "longest s from kill -9 to an acknowledgement elsewhere", at_most=6.0),
    Bound("failover.pause", "the same from SIGSTOP for a new client: noticed by silence alone"),
    Bound("move.longest", "longest s of a produce call while partitions move", at_most=1.0),
    Bound("move.p99", "p99 of produce calls while partitions move, against before", at_most=3.0),
    Bound("move.before", "ms of that p99 before"),
    Bound("move.seconds", "s until the drained broker leads nothing"),
    Bound("replace.seconds", "s until a new broker serves its share", at_most=15.0),
    Bound("peers.share", "bytes between brokers against bytes produced", at_most=0.001),
    Bound("peers.mb", "MB/s produced meanwhile", at_least=10.0),
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is measured."""

    failovers: int = FAILOVERS_DEFAULT
    tail_bytes: int = TAIL_BYTES_DEFAULT
    moved: int = MOVED_DEFAULT
    seconds: float = SECONDS_DEFAULT

    def __post_init__(self) -> None:
        if min(self.failovers, self.tail_bytes, self.moved, self.seconds) <= 0:
            raise BenchError("every amount of the cluster benchmark must be greater than 0")

    @property
    def pauses(self) -> int:
        return -(-self.failovers // FAILOVERS_PER_PAUSE)

    @property
    def steps(self) -> int:
        return self.failovers + self.pauses + 3


def run(plan: Plan, on_progress: Progress = lambda *_: None) -> dict[str, Any]:
    """Measure everything. Returns each figure with its single values and its bound."""
    done = 0

    def step() -> None:
        nonlocal done
        on_progress(done, plan.steps)
        done += 1

    figures: dict[str, list[float]] = {}
    for measured in (_failover, _move_and_replace, _traffic):
        with tempfile.TemporaryDirectory(prefix="neve-bench-") as folder:
            figures |= measured(folder, plan, step)
    rows = [figure(bound, figures[bound.name]) for bound in BOUNDS]
    return {"benchmark": "cluster", "passed": all(row["ok"] for row in rows), "rows": rows}


def figure(bound: Bound, values: list[float]) -> dict[str, Any]:
    """Return a row of the result. The longest of several values decides."""
    longest = round(max(values), DIGITS)
    rounds = [round(value, DIGITS) for value in values]
    return {**bound.row([longest]), "median": longest, "rounds": rounds}


# -- failover --------------------------------------------------------------------------------------


def _failover(folder: str, plan: Plan, step: Callable[[], None]) -> dict[str, list[float]]:
    settings = (
        f"cluster.session.ms={SESSION_MS}",
        f"cluster.rebalance.delay.ms={QUIET_MS}",
        f"store.get.delay.ms={GET_DELAY_MS}",
    )
    with Brokers(folder, *settings) as brokers:
        topics = Topics(brokers.config)
        topics.create("tail", 1, TAIL_CONFIGS)
        load("produce", brokers.bootstrap, "--topic", "tail", "--bytes", str(plan.tail_bytes))
        failover = _Failover(brokers, topics)
        killed, paused = [], []
        for _ in range(plan.failovers):
            step()
            killed.append(failover.after_kill())
        for _ in range(plan.pauses):
            step()
            paused.append(failover.after_pause())
    return {"failover.kill": killed, "failover.pause": paused}


class _Failover:
    """Takes the leader of the tail away, again and again."""

    def __init__(self, brokers: Brokers, topics: Topics) -> None:
        self._brokers = brokers
        self._topics = topics
        self._writer = SteadyWriter(brokers.config, "tail", [0], FAILOVER_PER_SECOND)

    def after_kill(self) -> float:
        leader = self._leader()
        began = runtime.monotonic()
        self._brokers.kill(leader)
        seconds = self._until_acknowledged(began)
        self._brokers.start(leader)
        return seconds

    def after_pause(self) -> float:
        """Measure with a client that never met the paused broker.

        Others wait for its answer as long as their own time-outs say: a minute with librdkafka.
        """
        leader = self._leader()
        began = runtime.monotonic()
        self._brokers.pause(leader)
        try:
            config = self._brokers.config_without(leader)
            topics = Topics(config)
            wait_until(
                "another broker leads", lambda: topics.leaders("tail")[0] not in (leader, -1)
            )
            SteadyWriter(config, "tail", [0], FAILOVER_PER_SECOND).write_to_all()
            return runtime.monotonic() - began
        finally:
            self._brokers.resume(leader)

    def _leader(self) -> int:
        """Wait until all brokers are up and the leader is settled, and write to it."""
        leader = self._topics.settle("tail", SETTLE_SECONDS)[0]
        self._writer.write_for(0.5)
        self._writer.flush()
        return leader

    def _until_acknowledged(self, began: float) -> float:
        """Return the time until the first acknowledgement of a record that was sent since."""
        known = len(self._writer.acknowledged)
        first = self._writer.acknowledged
        self._writer.write_while(
            lambda: len(first) == known or not any(row.sent_at >= began for row in first[known:])
        )
        found = min(row.sent_at + row.seconds for row in first[known:] if row.sent_at >= began)
        self._writer.flush()
        return found - began


# -- planned moves ---------------------------------------------------------------------------------


def _move_and_replace(folder: str, plan: Plan, step: Callable[[], None]) -> dict[str, list[float]]:
    with Brokers(folder, f"cluster.session.ms={SESSION_MS}") as brokers:
        topics = Topics(brokers.config)
        partitions = plan.moved * len(NODES)
        topics.create("moving", partitions)
        writer = SteadyWriter(brokers.config, "moving", range(partitions), MOVE_PER_SECOND)
        writer.write_to_all()
        step()
        figures = _move(folder, writer, plan.seconds)
        writer.flush()
        step()
        return figures | {"replace.seconds": [_replace(brokers, partitions)]}


def _move(folder: str, writer: SteadyWriter, seconds: float) -> dict[str, list[float]]:
    """Drain the last broker under load. The time before, and that with the move, are as long."""
    known = len(writer.acknowledged)
    writer.write_for(seconds)
    writer.flush()
    before = [row.seconds for row in writer.acknowledged[known:]]
    began = runtime.monotonic()
    with _Command("drain", str(NODES[-1]), "--wait", str(DRAIN_SECONDS_MAX), store=folder) as drain:
        writer.write_while(drain.runs)
        moved_seconds = runtime.monotonic() - began
        result = drain.result()
    if result["partitions_left"]:
        raise BenchError(f"{result['partitions_left']} partitions have not moved")
    writer.write_for(seconds - moved_seconds)
    writer.flush()
    during = [row.seconds for row in writer.acknowledged if row.sent_at >= began]
    with _Command("undrain", str(NODES[-1]), store=folder) as undrain:
        undrain.result()
    return {
        "move.longest": [max(during)],
        "move.p99": [latencies(during)["p99"] / latencies(before)["p99"]],
        "move.before": [latencies(before)["p99"]],
        "move.seconds": [moved_seconds],
    }


def _replace(brokers: Brokers, partitions: int) -> float:
    """Kill the last broker, start another, and write to all that it leads as soon as it should."""
    topics = Topics(brokers.config)
    lost, new = NODES[-1], NODES[-1] + 1
    share = partitions // len(NODES)
    wait_until(
        "every broker leads its share",
        lambda: min(Counter(topics.leaders("moving").values())[each] for each in NODES) >= share,
    )
    began = runtime.monotonic()
    brokers.kill(lost)
    brokers.forget(lost)
    brokers.start(new)
    topics = Topics(brokers.config)
    led: list[int] = []

    def leads_its_share() -> bool:
        led[:] = [number for number, leader in topics.leaders("moving").items() if leader == new]
        return len(led) >= share

    wait_until("the new broker leads its share", leads_its_share)
    SteadyWriter(brokers.config, "moving", led, MOVE_PER_SECOND).write_to_all()
    return runtime.monotonic() - began


class _Command:
    """`neve cluster …` in a separate process. A context manager, which ends it."""

    def __init__(self, *arguments: str, store: str) -> None:
        command = [sys.executable, "-m", "neve.cli", "cluster", *arguments]
        self._process = subprocess.Popen(  # noqa: S603
            [*command, "--store", store, "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> _Command:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def runs(self) -> bool:
        return self._process.poll() is None

    def result(self) -> dict[str, Any]:
        printed, errors = self._process.communicate()
        if not printed:
            raise BenchError(f"neve cluster failed: {errors.strip()}")
        result: dict[str, Any] = json.loads(printed)
        return result


# -- traffic between brokers -----------------------------------------------------------------------


def _traffic(folder: str, plan: Plan, step: Callable[[], None]) -> dict[str, list[float]]:
    with Brokers(folder) as brokers:
        Topics(brokers.config).create("traffic", TRAFFIC_PARTITIONS)
        arguments = ("--topic", "traffic", "--partitions", str(TRAFFIC_PARTITIONS))
        load("produce", brokers.bootstrap, *arguments, "--bytes", str(TRAFFIC_VALUE_BYTES * 1000))
        step()
        between, produced, watch = brokers.peer_bytes(), brokers.produced_bytes(), Stopwatch()
        load("produce", brokers.bootstrap, *arguments, "--seconds", str(plan.seconds))
        seconds = watch.seconds()
        between = brokers.peer_bytes() - between
        produced = brokers.produced_bytes() - produced
    return {"peers.share": [between / produced], "peers.mb": [produced / seconds / 1e6]}
