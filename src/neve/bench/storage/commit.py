"""Compares a WAL commit of a single producer with one PUT, which every commit needs.

The producer appends one batch at a time without linger, so every commit writes one object. It is
compared with the same number of plain creates from the same seed.
"""

from __future__ import annotations

from neve import runtime
from neve.bench.storage.batches import batch_of_bytes
from neve.bench.storage.rows import Figures, Measurement, Row
from neve.bench.storage.slow_bucket import SlowBucket
from neve.log.wal.object import SliceMeta
from neve.log.wal.writer import WalWriter
from neve.settings import WalSettings

COMMITS = 20
BATCH_BYTES = 1024
TOPIC_ID = bytes(16)


async def _committing() -> float:
    writer = WalWriter(SlowBucket(), 1, WalSettings(), linger_ms=0)
    batch = batch_of_bytes(BATCH_BYTES)
    started = runtime.monotonic()
    for offset in range(COMMITS):
        await writer.append(SliceMeta(TOPIC_ID, 0, 0, offset, offset, 0), batch).wait()
    took_seconds = runtime.monotonic() - started
    await writer.close()
    return took_seconds


async def _putting() -> float:
    store = SlowBucket()
    started = runtime.monotonic()
    for number in range(COMMITS):
        await store.create(f"{number:020d}", batch_of_bytes(BATCH_BYTES))
    return runtime.monotonic() - started


def measure(seed: int) -> Figures:
    commits_seconds = runtime.simulate(_committing(), seed=seed)
    puts_seconds = runtime.simulate(_putting(), seed=seed)
    return {
        "commit.put": commits_seconds / puts_seconds,
        "commit_ms": commits_seconds / COMMITS * 1000,
        "put_ms": puts_seconds / COMMITS * 1000,
    }


MEASUREMENT = Measurement(
    label="WAL commit",
    measure=measure,
    rows=(
        Row(
            name="commit.put",
            compares="a single producer's commit, one batch at a time, to one PUT",
            at_most=1.15,
            beside=("commit_ms", "put_ms"),
            facts={"commits_per_run": COMMITS, "wal.linger.ms": 0},
        ),
    ),
)
