"""Compares a broker with librdkafka's mock cluster, and measures the broker's CPU time per load."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from neve import runtime
from neve.bench.broker import pipelined
from neve.bench.broker.processes import Process, load, mock, serve
from neve.bench.kafka import topics

ROUNDS_DEFAULT = 5
PRODUCE_BYTES = 512_000_000
CACHED_BYTES = 112_000_000  # less than tail.cache.bytes
CACHED_PASSES = 5
LATENCY_RECORDS = 2_000
REQUESTS = 100_000
SETTLE_SECONDS = 1.0
MACHINE_STEPS = 100_000
MACHINE_COPIES = 25
_MACHINE_BLOCK = bytes(1 << 20)
WARM_UP_LOADS = 3  # from the third load on, the broker's CPU time per load is stable

Progress = Callable[[int, int | None], None]


@dataclass(frozen=True)
class Bound:
    """The name of a figure and its bounds. Without bounds it is shown and always passes."""

    name: str
    compares: str
    at_least: float | None = None
    at_most: float | None = None

    def row(self, values: list[float]) -> dict[str, Any]:
        median = statistics.median(values)
        low = self.at_least is None or median >= self.at_least
        high = self.at_most is None or median <= self.at_most
        return {
            "name": self.name,
            "compares": self.compares,
            "median": round(median, 4),
            "rounds": [round(value, 4) for value in values],
            "at_least": self.at_least,
            "at_most": self.at_most,
            "ok": low and high,
        }


BOUNDS = (
    Bound("produce.memory", "MB/s against the mock's, bucket in memory", at_least=0.5),
    Bound("produce.folder", "MB/s against the mock's, local folder with fsync", at_least=0.3),
    Bound("cpu.produce", "broker CPU seconds a GB produced, bucket in memory", at_most=1.0),
    Bound("cpu.consume", "broker CPU seconds a GB consumed from memory", at_most=0.5),
    Bound("latency.acks1", "p50 with one in flight against the mock's", at_most=3.0),
    Bound("requests.acks1", "small requests a second of broker CPU, acks=1", at_least=30_000),
    Bound("requests.all", "small requests a second of broker CPU, acks=all", at_least=30_000),
    Bound("produce.mock", "the mock's MB/s"),
    Bound("latency.mock", "the mock's p50 in ms"),
    Bound("machine.ms", "processor time for one fixed piece of work, before each step"),
)


@dataclass
class _Figures:
    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)


def run(rounds: int = ROUNDS_DEFAULT, on_progress: Progress = lambda *_: None) -> dict[str, Any]:
    """Measure everything `rounds` times. Returns each figure with its rounds and its bound."""
    figures = _Figures()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="neve-bench-"))
        bench = _Bench(
            stack.enter_context(mock()),
            stack.enter_context(serve("memory://")),
            stack.enter_context(serve(folder)),
        )
        bench.warm_up()
        steps = [step for number in range(rounds) for step in bench.steps(figures, number)]
        for done, step in enumerate(steps):
            on_progress(done, len(steps))
            figures.add("machine.ms", _machine_ms())
            step()
    rows = [bound.row(figures.values[bound.name]) for bound in BOUNDS]
    return {"benchmark": "broker", "passed": all(row["ok"] for row in rows), "rows": rows}


class _Bench:
    def __init__(self, peer: Process, memory: Process, folder: Process) -> None:
        self._peer = peer
        self._memory = memory
        self._folder = folder

    def warm_up(self) -> None:
        """Exclude one-time costs from the measurement: page faults, code compiled on first use.

        A bucket in memory grows with the written data, and its memory is reused after a topic is
        deleted. Only writes to reused memory have the cost of a long-running broker.
        """
        for _ in range(WARM_UP_LOADS):
            for process in (self._memory, self._folder, self._peer):
                _produced(process)

    def steps(self, figures: _Figures, number: int) -> Iterator[Callable[[], None]]:
        """Yield the steps of one round. The first step rotates with the round's number."""
        steps = [self._produce, self._latency, self._consume, self._requests]
        for at in range(len(steps)):
            step = steps[(at + number) % len(steps)]
            yield lambda step=step: step(figures)  # type: ignore[misc]

    def _produce(self, figures: _Figures) -> None:
        peer = _produced(self._peer)["mb_per_second"]
        before = self._memory.cpu_seconds()
        memory = _produced(self._memory)
        spent = self._memory.cpu_seconds() - before
        folder = _produced(self._folder)["mb_per_second"]
        figures.add("produce.mock", peer)
        figures.add("produce.memory", memory["mb_per_second"] / peer)
        figures.add("produce.folder", folder / peer)
        figures.add("cpu.produce", spent / (memory["bytes"] / 1e9))

    def _latency(self, figures: _Figures) -> None:
        arguments = ("--acks", "1", "--records", str(LATENCY_RECORDS))
        peer = load("latency", self._peer.address, *arguments)["latency_ms"]["p50"]
        own = load("latency", self._memory.address, *arguments)["latency_ms"]["p50"]
        figures.add("latency.mock", peer)
        figures.add("latency.acks1", own / peer)

    def _consume(self, figures: _Figures) -> None:
        """Read a topic that fits the broker's cache several times."""
        config = {"bootstrap.servers": self._memory.address}
        with topics.topic(config, None, 1) as name:
            size = f"{CACHED_BYTES}"
            load("produce", self._memory.address, "--topic", name, "--bytes", size)
            before = self._memory.cpu_seconds()
            read = sum(
                load("consume", self._memory.address, "--topic", name)["bytes"]
                for _ in range(CACHED_PASSES)
            )
            spent = self._memory.cpu_seconds() - before
        figures.add("cpu.consume", spent / (read / 1e9))

    def _requests(self, figures: _Figures) -> None:
        config = {"bootstrap.servers": self._memory.address}
        with topics.topic(config, None, 1) as name:
            for acks, figure in ((1, "requests.acks1"), (-1, "requests.all")):
                before = self._memory.cpu_seconds()
                pipelined.run(self._memory.address, name, REQUESTS, acks)
                spent = self._memory.cpu_seconds() - before
                figures.add(figure, REQUESTS / max(spent, 1e-9))


def _produced(process: Process) -> dict[str, Any]:
    result = load("produce", process.address, "--bytes", str(PRODUCE_BYTES))
    settle()
    return result


def settle() -> None:
    """Give the broker time to tier and delete data of the last load before the next load."""
    runtime.run(runtime.sleep(SETTLE_SECONDS))


def _machine_ms() -> float:
    """Return the CPU time of a fixed piece of work, as a measure of the machine's current speed.

    On cores that are shared with other virtual machines it can double from one minute to the next,
    and absolute figures change with it.
    """
    before = runtime.cpu_seconds()
    seen: dict[int, tuple[int, str]] = {}
    for step in range(MACHINE_STEPS):
        seen[step & 1023] = (step, str(step))
    for _ in range(MACHINE_COPIES):
        bytearray(_MACHINE_BLOCK)
    return (runtime.cpu_seconds() - before) * 1000
