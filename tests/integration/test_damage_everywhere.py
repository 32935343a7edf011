"""Any object of a bucket, flipped or cut anywhere: a reader gives right records or a clear error.

The formats are tested byte by byte in tests/unit/log/formats. Here whole readers meet the damage:
every kind of object in turn, at places all over it. What is given out is always a run of right
records from the beginning, and an error says so wherever it is not all of them.
"""

from __future__ import annotations

import pytest

from neve import runtime
from neve.errors import NeveError
from support.bucket_samples import (
    Writer,
    collected,
    expected,
    fresh_url,
    layered,
    objects,
    opened,
    shown,
)

TOPIC = "t"
RECORDS = 80
PLACES = 40
HANG_SECONDS = 3_600
# What a key of each kind holds; the first that fits counts.
KINDS = {
    "roll-up": "/rollup/",
    "WAL checkpoint": "/checkpoint/",
    "manifest number": "/manifest/",
    "segment": ".kfs",
    "bundle": ".index",
    "cluster log": "meta/log/",
    "WAL number": "wal/",
}


def kind_of(key: str) -> str:
    return next(kind for kind, mark in KINDS.items() if mark in key)


async def written() -> str:
    url = fresh_url()
    writer = await Writer.start(url)
    await layered(writer, TOPIC)
    await writer.close()
    return url


async def read_everything(url: str) -> tuple[list[tuple[int, int, bytes]], NeveError | None]:
    async with runtime.deadline(HANG_SECONDS):
        try:
            bucket = await opened(url)
        except NeveError as error:
            return [], error
        try:
            records, error = await collected(bucket.read(TOPIC))
        finally:
            await bucket.close()
    return shown(records), error


async def check(url: str, key: str, damaged: bytes, what: str) -> None:
    whole = bytes(objects(url).objects[key][0])
    objects(url).write(key, damaged)
    try:
        found, error = await read_everything(url)
    finally:
        objects(url).write(key, whole)
    right = expected(TOPIC, 0, 0, RECORDS)
    assert found == right[: len(found)], f"{what}: wrong records"
    assert len(found) == RECORDS or error is not None, f"{what}: records left out in silence"


async def damage_one_kind(kind: str) -> int:
    url = await written()
    keys = [key for key in objects(url).objects if kind_of(key) == kind]
    for key in keys:
        whole = bytes(objects(url).objects[key][0])
        for at in sorted({int(step * (len(whole) - 1) / (PLACES - 1)) for step in range(PLACES)}):
            flipped = bytearray(whole)
            flipped[at] ^= 1 << (at % 8)
            await check(url, key, bytes(flipped), f"{key} flipped at {at}")
            await check(url, key, whole[:at], f"{key} cut at {at}")
    return len(keys)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_object_gives_right_records_or_an_error(kind: str) -> None:
    assert runtime.simulate(damage_one_kind(kind), seed=1) > 0


def test_the_bucket_is_whole_before_it_is_damaged() -> None:
    async def story() -> None:
        assert await read_everything(await written()) == (expected(TOPIC, 0, 0, RECORDS), None)

    runtime.simulate(story(), seed=1)
