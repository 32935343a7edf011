"""Tiering's PUTs: segments, bundles and manifests, against what was written and how long.

A whole node runs for one or more `segment.ms`: it appends, commits, tiers and rolls up. Sizes are
scaled down together, so that a run is quick and every count is that of the full scale; time is
simulated and not scaled. Allowed are 3 PUTs for each `segment.bytes` written and 3 for each
partition and `segment.ms`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from neve import runtime
from neve.bench.storage.batches import batch_of_bytes
from neve.bench.storage.rows import Figures, Measurement, Row
from neve.bench.storage.slow_bucket import SlowBucket
from neve.cluster.node import Node
from neve.log import keys
from neve.settings import KIB, SegmentSettings, Settings, WalSettings

SCALE = 1024
SETTINGS = Settings(
    segment=SegmentSettings(bytes=SegmentSettings().bytes // SCALE),
    wal=WalSettings(
        object_bytes=WalSettings().object_bytes // SCALE,
        tail_bytes=WalSettings().tail_bytes // SCALE,
    ),
)
# Divides a segment: with batches that overshoot it, segments would be fewer than the bound allows.
BATCH_BYTES = KIB
BATCHES_PER_SEGMENT = SETTINGS.segment.bytes // BATCH_BYTES
TICKS_PER_PERIOD = 60
PUTS_PER_SEGMENT = 3


@dataclass(frozen=True)
class Load:
    """Who writes how much: some partitions fill segments, the others trickle."""

    name: str
    says: str
    partitions: int
    busy: int
    segments_per_period: int
    periods: int

    @property
    def seconds(self) -> float:
        return self.periods * SETTINGS.segment.ms / 1000


LOADS = (
    Load("busy", "1 partition that fills 24 segments in each segment.ms", 1, 1, 24, 2),
    Load("many", "100 partitions, 4 of which fill 6 segments in a segment.ms", 100, 4, 6, 1),
)


async def _write(store: SlowBucket, load: Load) -> int:
    """Run a node under this load; how many bytes were appended."""
    node = await Node.start(store, SETTINGS, node_id=1, linger_ms=100)
    topic = await node.create_topic("load", load.partitions)
    ticks = load.periods * TICKS_PER_PERIOD
    written = 0
    started = runtime.monotonic()
    for tick in range(ticks):
        for partition in range(load.partitions):
            for _ in range(_batches_due(load, partition, tick)):
                node.append(topic.id_bytes, partition, bytearray(batch_of_bytes(BATCH_BYTES)))
                written += BATCH_BYTES
        await runtime.sleep(load.seconds / ticks)
        await node.tend()
    # What was appended first is now a segment.ms old, and a commit's time older than that.
    await runtime.sleep(max(0.0, started + load.seconds + 30 - runtime.monotonic()))
    await node.tend()
    await node.close()
    return written


def _batches_due(load: Load, partition: int, tick: int) -> int:
    if partition >= load.busy:
        return 1 if tick % 20 == partition % 20 else 0
    per_period = load.segments_per_period * BATCHES_PER_SEGMENT
    return per_period * (tick + 1) // TICKS_PER_PERIOD - per_period * tick // TICKS_PER_PERIOD


def _measured(load: Load, seed: int) -> Figures:
    store = SlowBucket()
    written = runtime.simulate(_write(store, load), seed=seed)
    puts = Counter(_class_of(seen.key) for seen in store.writes)
    made = puts["kfs"] + puts["index"] + puts["manifest"]
    units = written // SETTINGS.segment.bytes + load.partitions * load.periods
    allowed = PUTS_PER_SEGMENT * units
    return {
        f"tiering.{load.name}": made / allowed,
        f"{load.name}_puts": made,
        f"{load.name}_allowed": allowed,
        f"{load.name}_segments": puts["kfs"],
        f"{load.name}_wal_puts": puts["wal"],
    }


def _class_of(key: str) -> str:
    name = keys.segment_name(key)
    if name is not None:
        return name.suffix
    if keys.partition_of(key) is not None:
        return "manifest"
    return "wal" if keys.stream_of(key) is not None else "cluster"


def measure(seed: int) -> Figures:
    return {name: value for load in LOADS for name, value in _measured(load, seed).items()}


MEASUREMENT = Measurement(
    label="tiering's PUTs",
    measure=measure,
    rows=tuple(
        Row(
            name=f"tiering.{load.name}",
            compares=f"tiering's PUTs to those allowed: {load.says}",
            at_most=1.0,
            beside=tuple(
                f"{load.name}_{figure}" for figure in ("puts", "allowed", "segments", "wal_puts")
            ),
            facts={
                "scale": f"1/{SCALE} of the default sizes, time as it is",
                "segment.bytes": SETTINGS.segment.bytes,
                "segment.ms": SETTINGS.segment.ms,
                "batch_bytes": BATCH_BYTES,
                "partitions": load.partitions,
                "periods": load.periods,
            },
        )
        for load in LOADS
    ),
)
