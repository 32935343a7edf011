"""Compares fetching a cold segment's indexes: one bundle through the index cache, or 3 objects."""

from __future__ import annotations

import functools

from neve import runtime
from neve.bench.storage.cold_segments import (
    KIP405_KINDS,
    ColdSegments,
    SeparateIndexes,
    cold_segments,
)
from neve.bench.storage.rows import Figures, Measurement, Row
from neve.bench.storage.slow_bucket import SlowBucket, took_seconds
from neve.log.index_cache import IndexCache
from neve.log.remote import BucketRemoteStorage
from neve.settings import KIB, MIB, CacheSettings


@functools.cache
def _cold() -> ColdSegments:
    return cold_segments(1, MIB, KIB)


async def _bundle(store: SlowBucket) -> float:
    async with await IndexCache.open(BucketRemoteStorage(store), CacheSettings()) as cache:
        return await took_seconds(cache.get(_cold().segments[0]))


async def _separate(store: SlowBucket) -> float:
    fetched = SeparateIndexes(store).fetch_indexes(_cold().segments[0], KIP405_KINDS)
    return await took_seconds(fetched)


def measure(seed: int) -> Figures:
    ours, theirs = SlowBucket(_cold().bucket), SlowBucket(_cold().bucket)
    bundle_seconds = runtime.simulate(_bundle(ours), seed=seed)
    separate_seconds = runtime.simulate(_separate(theirs), seed=seed)
    return {
        "index.requests": len(ours.requests),
        "index.time": bundle_seconds / separate_seconds,
        "kip405_requests": len(theirs.requests),
        "bundle_ms": bundle_seconds * 1000,
        "kip405_ms": separate_seconds * 1000,
    }


MEASUREMENT = Measurement(
    label="index of a cold segment",
    measure=measure,
    rows=(
        Row(
            name="index.requests",
            compares="requests for the indexes of a cold segment; KIP-405's way beside",
            at_most=1,
            beside=("kip405_requests",),
        ),
        Row(
            name="index.time",
            compares="fetching the indexes of a cold segment, to KIP-405's three one by one",
            at_most=0.45,
            beside=("bundle_ms", "kip405_ms"),
        ),
    ),
)
