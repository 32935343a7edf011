"""Compares a scan across cold segments with Neve's bundles and with KIP-405's separate indexes.

In both cases the prefetching reader has its default settings and a link of 10 Gbit/s, and reads the
same ranges of data ahead; each segment's indexes are fetched before its first range. Only requests
to the store take simulated time. Checking and decoding would take none, so they are left out.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable

from neve import runtime
from neve.bench.storage.cold_segments import (
    KIP405_KINDS,
    ColdSegments,
    SeparateIndexes,
    cold_segments,
)
from neve.bench.storage.rows import Figures, Measurement, Row
from neve.bench.storage.slow_bucket import LINK_BYTES_PER_SECOND, SlowBucket, took_seconds
from neve.log.downloads import PART_BYTES_DEFAULT, Download, split_ranges
from neve.log.index_cache import IndexCache
from neve.log.manifest.records import Segment
from neve.log.prefetch import PrefetchReader
from neve.log.remote import BucketRemoteStorage
from neve.log.segment.kfs import HEADER_BYTES
from neve.settings import CacheSettings, PrefetchSettings

SEGMENTS = 50
SEGMENT_BYTES = 16_000_000
BATCH_BYTES = 16_000

LoadIndex = Callable[[Segment], Awaitable[object]]


@functools.cache
def _cold() -> ColdSegments:
    return cold_segments(SEGMENTS, SEGMENT_BYTES, BATCH_BYTES)


async def _scan(store: SlowBucket, load_index: LoadIndex) -> None:
    async def ranges() -> AsyncGenerator[Download[memoryview], None]:
        for segment in _cold().segments:
            await load_index(segment)
            for part in split_ranges(segment.key, segment.bytes, start=HEADER_BYTES):
                yield part

    async with PrefetchReader(store, PrefetchSettings()) as reader:
        async for _ in reader.read(ranges()):
            pass


async def _with_bundles(store: SlowBucket) -> float:
    async with await IndexCache.open(BucketRemoteStorage(store), CacheSettings()) as cache:
        return await took_seconds(_scan(store, cache.get))


async def _with_separate_indexes(store: SlowBucket) -> float:
    remote = SeparateIndexes(store)
    return await took_seconds(
        _scan(store, lambda segment: remote.fetch_indexes(segment, KIP405_KINDS))
    )


def measure(seed: int) -> Figures:
    ours, theirs = (
        SlowBucket(_cold().bucket, link_bytes_per_second=LINK_BYTES_PER_SECOND) for _ in range(2)
    )
    bundle_seconds = runtime.simulate(_with_bundles(ours), seed=seed)
    separate_seconds = runtime.simulate(_with_separate_indexes(theirs), seed=seed)
    return {
        "scan.index_requests": _index_requests(ours) / _index_requests(theirs),
        "scan.time": bundle_seconds / separate_seconds,
        "index_requests": _index_requests(ours),
        "kip405_index_requests": _index_requests(theirs),
        "requests": len(ours.requests),
        "kip405_requests": len(theirs.requests),
        "scan_ms": bundle_seconds * 1000,
        "kip405_ms": separate_seconds * 1000,
    }


def _index_requests(store: SlowBucket) -> int:
    return sum(not seen.key.endswith(".kfs") for seen in store.reads)


_SCALE = {
    "segments": SEGMENTS,
    "segment_bytes": SEGMENT_BYTES,
    "range_bytes": PART_BYTES_DEFAULT,
    "link_bytes_per_second": LINK_BYTES_PER_SECOND,
}

MEASUREMENT = Measurement(
    label="cold scan",
    measure=measure,
    rows=(
        Row(
            name="scan.index_requests",
            compares="index requests of a cold scan of 50 segments of 16 MB, to KIP-405's way",
            at_most=0.34,
            beside=("index_requests", "kip405_index_requests", "requests", "kip405_requests"),
            facts=_SCALE,
        ),
        Row(
            name="scan.time",
            compares="a cold scan of 50 segments of 16 MB, to the same with KIP-405's indexes",
            at_most=0.6,
            beside=("scan_ms", "kip405_ms"),
            facts=_SCALE,
        ),
    ),
)
