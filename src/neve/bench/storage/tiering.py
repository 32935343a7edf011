"""Counts tiering's PUTs (segments, bundles, manifests) for the bytes written in a `segment.ms`.

A complete node appends, commits, tiers and rolls up for one `segment.ms`. All sizes are scaled down
by the same factor, so a run is fast and has the same number of requests as at full scale; time is
simulated and not scaled. The bound is 3 PUTs for each `segment.bytes` written, plus 3 for each
partition.
"""

from __future__ import annotations

import math
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
PERIOD_SECONDS = SETTINGS.segment.ms / 1000
# Divides segment.bytes: otherwise segments would be larger than that, and fewer than the bound has.
BATCH_BYTES = KIB
BATCHES_PER_SEGMENT = SETTINGS.segment.bytes // BATCH_BYTES
# Does not divide BATCHES_PER_SEGMENT, so that segments begin and end within a WAL object's slice.
BATCHES_PER_SLICE = 3
PUTS_PER_UNIT = 3
# More than the duration of a commit: the first appended records are then older than segment.ms.
LAST_TEND_SECONDS = 30.0


@dataclass(frozen=True)
class Load:
    """Load per segment.ms: busy partitions fill segments, the others get few records."""

    name: str
    partitions: int
    busy: int
    segments_each: int

    @property
    def ticks(self) -> int:
        """The number of slices that each busy partition writes."""
        return math.ceil(self.segments_each * BATCHES_PER_SEGMENT / BATCHES_PER_SLICE)

    @property
    def says(self) -> str:
        rest = self.partitions - self.busy
        trickle = f", {rest} trickle" if rest else ""
        return f"{self.busy} of {self.partitions} partitions fill {self.segments_each}{trickle}"


BUSY = Load("busy", partitions=1, busy=1, segments_each=8)
MANY = Load("many", partitions=20, busy=1, segments_each=4)
FAST = Load("fast", partitions=1, busy=1, segments_each=256)


async def _write(store: SlowBucket, load: Load) -> int:
    """Run a node under this load. Returns the number of bytes appended."""
    # Without the probe of a new bucket, whose PUTs do not belong to tiering.
    node = await Node.start(store, SETTINGS, node_id=1, puts_cost=True, probe=False)
    topic = await node.topics.create("load", load.partitions)
    started = runtime.monotonic()
    written = 0
    for tick in range(load.ticks):
        for partition in range(load.partitions):
            for _ in range(_batches_due(load, partition, tick)):
                batch = bytearray(batch_of_bytes(BATCH_BYTES))
                node.leader(topic.name, partition).append(batch)
                written += BATCH_BYTES
        due = started + PERIOD_SECONDS * (tick + 1) / load.ticks
        await runtime.sleep(max(0.0, due - runtime.monotonic()))
        await node.run_due_work()
    await runtime.sleep(LAST_TEND_SECONDS)
    await node.run_due_work()
    await node.close()
    return written


def _batches_due(load: Load, partition: int, tick: int) -> int:
    if partition < load.busy:
        return BATCHES_PER_SLICE
    return 1 if tick in {0, load.ticks // 2} else 0


def _measured(load: Load, seed: int) -> Figures:
    store = SlowBucket()
    written = runtime.simulate(_write(store, load), seed=seed)
    puts = Counter(_class_of(seen.key) for seen in store.writes)
    made = puts["kfs"] + puts["index"] + puts["manifest"]
    allowed = PUTS_PER_UNIT * (written // SETTINGS.segment.bytes + load.partitions)
    return {
        f"tiering.{load.name}": made / allowed,
        "puts": made,
        "puts_allowed": allowed,
        "segments": puts["kfs"],
        "manifest_puts": puts["manifest"],
        "wal_puts": puts["wal"],
    }


def _class_of(key: str) -> str:
    name = keys.segment_name(key)
    if name is not None:
        return name.suffix
    if keys.partition_of(key) is not None:
        return "manifest"
    return "wal" if keys.stream_of(key) is not None else "cluster"


def _of(load: Load, runs_max: int | None = None) -> Measurement:
    def measure(seed: int) -> Figures:
        return _measured(load, seed)

    row = Row(
        name=f"tiering.{load.name}",
        compares=f"tiering's PUTs in a segment.ms to those allowed: {load.says}",
        at_most=1.0,
        beside=("puts", "puts_allowed", "segments", "manifest_puts", "wal_puts"),
        facts={
            "scale": f"sizes are 1/{SCALE} of the defaults, times are not scaled",
            "segment.bytes": SETTINGS.segment.bytes,
            "segment.ms": SETTINGS.segment.ms,
            "batch_bytes": BATCH_BYTES,
            "partitions": load.partitions,
        },
    )
    return Measurement(
        label=f"tiering's PUTs, {load.name}", rows=(row,), measure=measure, runs_max=runs_max
    )


# The fast load takes long and its result hardly depends on the seed: a few runs are enough.
MEASUREMENTS = (_of(BUSY), _of(MANY), _of(FAST, runs_max=3))
