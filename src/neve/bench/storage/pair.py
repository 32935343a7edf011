"""Compares the parallel upload of a segment and its bundle with the slower PUT, and with serial.

Both uploads use the same seed, so each object has the same latency in both. The bounded rows use
small objects and show latency alone. The row with a whole segment over a link shows how much is
saved if transferring the bytes takes longer than the latency.
"""

from __future__ import annotations

import functools

from neve import runtime
from neve.bench.storage.rows import Figures, Measurement, Row
from neve.bench.storage.slow_bucket import LINK_BYTES_PER_SECOND, SlowBucket, took_seconds
from neve.log.segment.upload import upload_pair
from neve.settings import MIB
from neve.store.port import Store

SEGMENT_KEY, INDEX_KEY = "segment.kfs", "segment.index"
SMALL = b"x" * 1024
SEGMENT_BYTES = 64 * MIB
# For each 100 records of 1 KB: an entry of 12 bytes, a checksum of 4, usually a timestamp of 16.
INDEX_BYTES = SEGMENT_BYTES // (100 * 1024) * 32
ESTIMATED_SAVING_PERCENT = (30, 45)


async def _upload(store: Store, segment: bytes, index: bytes) -> None:
    await upload_pair(store, SEGMENT_KEY, segment, INDEX_KEY, index)


async def _one_by_one(store: Store, segment: bytes, index: bytes) -> None:
    await store.create(SEGMENT_KEY, segment)
    await store.create(INDEX_KEY, index)


def measure(seed: int) -> Figures:
    async def both(store: SlowBucket) -> float:
        return await took_seconds(_upload(store, SMALL, SMALL))

    async def serial(store: SlowBucket) -> float:
        return await took_seconds(_one_by_one(store, SMALL, SMALL))

    observed = SlowBucket()
    pair_seconds = runtime.simulate(both(observed), seed=seed)
    serial_seconds = runtime.simulate(serial(SlowBucket()), seed=seed)
    slower_seconds = max(seen.seconds for seen in observed.writes)
    return {
        "pair.slower": pair_seconds / slower_seconds,
        "pair.serial": pair_seconds / serial_seconds,
        **_linked(seed),
        "pair_ms": pair_seconds * 1000,
        "slower_put_ms": slower_seconds * 1000,
        "serial_ms": serial_seconds * 1000,
        "saving_percent": 100 * (1 - pair_seconds / serial_seconds),
    }


def _linked(seed: int) -> Figures:
    """Measure the same with a whole segment over a link of limited bandwidth."""

    async def timed(*, pair: bool) -> float:
        store = SlowBucket(link_bytes_per_second=LINK_BYTES_PER_SECOND)
        way = _upload if pair else _one_by_one
        return await took_seconds(way(store, _segment(), bytes(INDEX_BYTES)))

    pair_seconds = runtime.simulate(timed(pair=True), seed=seed)
    serial_seconds = runtime.simulate(timed(pair=False), seed=seed)
    return {
        "pair.linked": pair_seconds / serial_seconds,
        "linked_pair_ms": pair_seconds * 1000,
        "linked_serial_ms": serial_seconds * 1000,
    }


@functools.cache
def _segment() -> bytes:
    return bytes(SEGMENT_BYTES)


MEASUREMENT = Measurement(
    label="pair upload",
    measure=measure,
    rows=(
        Row(
            name="pair.slower",
            compares="uploading a segment and its bundle, to the slower of its own two PUTs",
            at_most=1.1,
            beside=("pair_ms", "slower_put_ms"),
        ),
        Row(
            name="pair.serial",
            compares="uploading a segment and its bundle, to one PUT after the other",
            at_most=0.75,
            beside=("pair_ms", "serial_ms", "saving_percent"),
            facts={"estimated_saving_percent": list(ESTIMATED_SAVING_PERCENT)},
        ),
        Row(
            name="pair.linked",
            compares="the same for 64 MiB over 10 Gbit/s, where bytes outweigh latency",
            at_most=None,
            beside=("linked_pair_ms", "linked_serial_ms"),
            facts={"segment_bytes": SEGMENT_BYTES, "index_bytes": INDEX_BYTES},
        ),
    ),
)
