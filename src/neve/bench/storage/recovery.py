"""Compares reading the tail of a dead WAL stream: with the prefetching reader, or one by one.

Objects of a real WAL stream are read completely and decoded. The prefetching reader and the serial
loop start the downloads in the same order from the same seed, so each object has the same latency.
"""

from __future__ import annotations

import functools

from neve import runtime
from neve.bench.storage.batches import batch_of_bytes
from neve.bench.storage.rows import Figures, Measurement, Row
from neve.bench.storage.slow_bucket import SlowBucket, took_seconds
from neve.log.downloads import Download, whole_object
from neve.log.keys import wal_stream
from neve.log.prefetch import PrefetchReader
from neve.log.wal import object as wal_object
from neve.log.wal.object import Kind, SliceMeta, WalObject
from neve.log.wal.reader import WalReader
from neve.settings import PrefetchSettings
from neve.store.memory import MemoryBucket
from neve.store.port import Store

OBJECTS = 32
INCARNATION = 1
TOPIC_ID = bytes(16)
FLUSS = PrefetchSettings(window=4, downloads=3)
NEVE = PrefetchSettings(window=16, downloads=8)


@functools.cache
def _stream() -> MemoryBucket:
    """Return a bucket with one WAL stream, which callers must not change."""
    bucket = MemoryBucket()
    keys = wal_stream(INCARNATION)
    batch = batch_of_bytes(1024)
    for number in range(OBJECTS):
        meta = SliceMeta(TOPIC_ID, 0, 0, number, number, 0)
        encoded = wal_object.encode(
            Kind.DATA,
            [(meta, [batch])],
            incarnation=INCARNATION,
            number=number,
            author=bytes(wal_object.AUTHOR_BYTES),
            created_ms=0,
        )
        bucket.write(keys.number(number), encoded.data)
    return bucket


def _downloads() -> list[Download[WalObject]]:
    keys = wal_stream(INCARNATION)

    def download(number: int) -> Download[WalObject]:
        key = keys.number(number)
        decode = functools.partial(
            wal_object.decode, key=key, incarnation=INCARNATION, number=number
        )
        return whole_object(key, len(_stream().objects[key][0]), decode)

    return [download(number) for number in range(OBJECTS)]


async def _serial(store: Store) -> None:
    for download in _downloads():
        await download.fetch(store)


async def _ahead(store: Store, settings: PrefetchSettings) -> None:
    async with PrefetchReader(store, settings) as reader:
        async for _ in reader.read(_downloads()):
            pass


async def _wal_reader(store: Store) -> None:
    await WalReader(store, INCARNATION).tail(whole=True)


def measure(seed: int) -> Figures:
    async def timed(settings: PrefetchSettings | None) -> float:
        store = SlowBucket(_stream())
        work = _serial(store) if settings is None else _ahead(store, settings)
        return await took_seconds(work)

    async def tail() -> float:
        return await took_seconds(_wal_reader(SlowBucket(_stream())))

    serial_seconds = runtime.simulate(timed(None), seed=seed)
    fluss_seconds = runtime.simulate(timed(FLUSS), seed=seed)
    neve_seconds = runtime.simulate(timed(NEVE), seed=seed)
    tail_seconds = runtime.simulate(tail(), seed=seed)
    return {
        "recovery.window4": fluss_seconds / serial_seconds,
        "recovery.window16": neve_seconds / serial_seconds,
        "recovery.tail": tail_seconds / serial_seconds,
        "serial_ms": serial_seconds * 1000,
        "window4_ms": fluss_seconds * 1000,
        "window16_ms": neve_seconds * 1000,
        "tail_ms": tail_seconds * 1000,
    }


MEASUREMENT = Measurement(
    label="recovery",
    measure=measure,
    rows=(
        Row(
            name="recovery.window4",
            compares="reading 32 objects ahead, a window of 4 and 3 at once, to one by one",
            at_most=0.52,
            beside=("window4_ms", "serial_ms"),
        ),
        Row(
            name="recovery.window16",
            compares="reading 32 objects ahead, a window of 16 and 8 at once, to one by one",
            at_most=0.28,
            beside=("window16_ms", "serial_ms"),
        ),
        Row(
            name="recovery.tail",
            compares="the WAL reader's whole tail of 32 objects, checkpoint looks included, "
            "to their GETs one by one",
            at_most=None,
            beside=("tail_ms", "serial_ms"),
        ),
    ),
)
