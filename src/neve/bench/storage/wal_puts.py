"""Counts the WAL's PUTs for the same bytes, spread over 1, 100 and 10,000 partitions.

The same batches arrive at the same times: first slowly, so that the linger time ends each object,
then in a burst, so that its size does. Only the partitions of the batches differ.
"""

from __future__ import annotations

from neve import runtime
from neve.bench.storage.batches import batch_of_bytes
from neve.bench.storage.rows import Figures, Measurement, Row
from neve.bench.storage.slow_bucket import SlowBucket
from neve.log.wal.object import SliceMeta
from neve.log.wal.writer import WalWriter
from neve.settings import KIB, WalSettings

PARTITION_COUNTS = (1, 100, 10_000)
BATCHES = 10_000
BATCH_BYTES = 512
LINGER_MS = 100
SETTINGS = WalSettings(object_bytes=64 * KIB)
TICK_SECONDS = 0.01
SLOW_BATCHES_PER_TICK = 10
BURST_BATCHES_PER_TICK = 100
SLOW_BATCHES = BATCHES // 2
TOPIC_ID = bytes(16)


async def _produce(store: SlowBucket, partitions: int) -> None:
    writer = WalWriter(store, 1, SETTINGS, linger_ms=LINGER_MS)
    batch = batch_of_bytes(BATCH_BYTES)
    appended = 0
    while appended < BATCHES:
        slow = appended < SLOW_BATCHES
        arriving = range(
            appended, appended + (SLOW_BATCHES_PER_TICK if slow else BURST_BATCHES_PER_TICK)
        )
        for number in arriving:
            offset, partition = divmod(number, partitions)
            writer.append(SliceMeta(TOPIC_ID, partition, 0, offset, offset, 0), batch)
        appended += len(arriving)
        await runtime.sleep(TICK_SECONDS)
        await writer.room()
    await writer.close()


def measure(seed: int) -> Figures:
    puts: list[int] = []
    for partitions in PARTITION_COUNTS:
        store = SlowBucket()
        runtime.simulate(_produce(store, partitions), seed=seed)
        puts.append(len(store.writes))
    return {
        "wal.puts": max(puts) / min(puts),
        **{
            f"puts_{partitions}": count
            for partitions, count in zip(PARTITION_COUNTS, puts, strict=True)
        },
    }


MEASUREMENT = Measurement(
    label="WAL PUTs",
    measure=measure,
    rows=(
        Row(
            name="wal.puts",
            compares="most to fewest WAL PUTs for the same bytes at 1, 100 and 10,000 partitions",
            at_most=1.05,
            beside=tuple(f"puts_{partitions}" for partitions in PARTITION_COUNTS),
            facts={
                "bytes": BATCHES * BATCH_BYTES,
                "batch_bytes": BATCH_BYTES,
                "wal.object.bytes": SETTINGS.object_bytes,
                "wal.linger.ms": LINGER_MS,
            },
        ),
    ),
)
