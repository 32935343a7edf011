"""Benchmarks a broker with a topic much larger than its memory.

The topic is written, then read from its start through a store that delays every get by 10 ms. This
cold read comes from disk, because all segments are dropped from the page cache first. A producer
and a consumer at the end of another topic run alone, then during a second cold read, and the
latencies are compared. Two references are measured in each round: a read from memory, as the rate
at which a client can receive, and plain reads of the bucket's files, as the rate of the disk.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from neve.bench.broker.compare import Bound
from neve.bench.broker.processes import Load, Process, load, serve
from neve.bench.kafka.measure import Stopwatch
from neve.settings import Settings

ROUNDS_DEFAULT = 5
GET_DELAY_MS = 10
MEMORY_BYTES_MAX = Settings().broker.memory_bytes
CACHED_BYTES = 64_000_000
BESIDE_SECONDS = 10
READ_BYTES = 1024 * 1024
DISK_BYTES_MAX = 512 * 1024 * 1024
TOPIC, CACHED_TOPIC = "backlog", "cached"

Progress = Callable[[int, int | None], None]

BOUNDS = (
    Bound("memory.share", "the broker's peak memory against its bound", at_most=1.0),
    Bound("cold.share", "MB/s of the cold read against one from memory", at_least=0.5),
    Bound("beside.share", "MB/s of the cold read beside a producer against one from memory"),
    Bound("producer.p99", "p99 of acks=all beside the cold read against alone", at_most=2.0),
    Bound("tailing.p99", "p99 to a waiting consumer beside the cold read against alone", at_most=2),
    Bound("cold.mb", "MB/s of the cold read"),
    Bound("disk.mb", "MB/s of plain reads of the bucket's files, just before"),
)


def run(size: int, rounds: int, on_progress: Progress = lambda *_: None) -> dict[str, Any]:
    """Write a topic of `size` bytes and read it back. Returns each figure with its bound."""
    steps = 2 + 4 * rounds
    done = 0

    def step(kind: str, address: str, *arguments: str) -> dict[str, Any]:
        nonlocal done
        on_progress(done, steps)
        done += 1
        return load(kind, address, *arguments)

    figures: dict[str, list[float]] = {bound.name: [] for bound in BOUNDS}
    with (
        tempfile.TemporaryDirectory(prefix="neve-bench-") as folder,
        serve(folder, f"store.get.delay.ms={GET_DELAY_MS}", http="127.0.0.1:0") as broker,
    ):
        address = broker.address
        step("produce", address, "--topic", TOPIC, "--bytes", str(size))
        step("produce", address, "--topic", CACHED_TOPIC, "--bytes", str(CACHED_BYTES))
        for _ in range(rounds):
            broker.settle()
            cached = _cached_speed(address, step)
            figures["disk.mb"].append(_disk_speed(Path(folder)))
            _leave_the_cache(Path(folder))
            cold = step("consume", address, "--topic", TOPIC)["mb_per_second"]
            alone = step("latency", address, *_probe())
            _leave_the_cache(Path(folder))
            beside, beside_mb = _beside(broker, step)
            figures["cold.mb"].append(cold)
            figures["cold.share"].append(cold / cached)
            figures["beside.share"].append(beside_mb / cached)
            figures["producer.p99"].append(_p99(beside, "latency_ms") / _p99(alone, "latency_ms"))
            figures["tailing.p99"].append(
                _p99(beside, "end_to_end_ms") / _p99(alone, "end_to_end_ms")
            )
        figures["memory.share"].append(broker.memory_peak_bytes() / MEMORY_BYTES_MAX)
    rows = [bound.row(figures[bound.name]) for bound in BOUNDS]
    return {"benchmark": "backlog", "passed": all(row["ok"] for row in rows), "rows": rows}


def _disk_speed(folder: Path) -> float:
    """Read segment files sequentially, not from the page cache. Returns MB/s."""
    _leave_the_cache(folder)
    buffer = bytearray(READ_BYTES)
    size = 0
    watch = Stopwatch()
    for name in _segments(folder):
        with name.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                size += count
        if size >= DISK_BYTES_MAX:
            break
    return size / watch.seconds() / 1e6


def _leave_the_cache(folder: Path) -> None:
    """Drop all segments from the page cache, if the system supports it."""
    if not hasattr(os, "posix_fadvise"):
        return
    for name in _segments(folder):
        with name.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _segments(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.kfs"))


def _cached_speed(address: str, step: Callable[..., dict[str, Any]]) -> float:
    """Return the median MB/s of three reads from memory: one is too short to be reliable."""
    first = step("consume", address, "--topic", CACHED_TOPIC)["mb_per_second"]
    more = [load("consume", address, "--topic", CACHED_TOPIC)["mb_per_second"] for _ in range(2)]
    speed: float = statistics.median([first, *more])
    return speed


def _probe() -> tuple[str, ...]:
    return ("--acks", "all", "--end-to-end", "--seconds", str(BESIDE_SECONDS))


def _beside(broker: Process, step: Callable[..., dict[str, Any]]) -> tuple[dict[str, Any], float]:
    """Measure latency to a waiting consumer during a cold read.

    Returns the result of the latency load, and the MB/s that the broker sent to all consumers.
    """
    seconds = str(BESIDE_SECONDS + 5)
    reading = Load("consume", broker.address, "--topic", TOPIC, "--seconds", seconds)
    watch = Stopwatch()
    sent = broker.counter("neve_fetched_bytes_total")
    result = step("latency", broker.address, *_probe())
    mb_per_second = (broker.counter("neve_fetched_bytes_total") - sent) / watch.seconds() / 1e6
    reading.result()
    return result, mb_per_second


def _p99(result: dict[str, Any], name: str) -> float:
    value: float = result[name]["p99"]
    return value
