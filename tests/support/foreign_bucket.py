"""A KafScale bucket in memory, built from the description of its format."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from neve.records.crc import crc32c
from neve.records.reference import Record, build_batch
from neve.store.memory import MemoryBucket

PLACE = "production/orders/0"
COUNTS = (2, 3, 5)


def value(offset: int) -> bytes:
    return b"order %d" % offset


def batches(base: int, counts: Sequence[int], codec: int = 0, **about: int) -> list[bytes]:
    found = []
    for count in counts:
        rows = [Record(base + at, 1000 + base + at, b"k", value(base + at)) for at in range(count)]
        found.append(build_batch(rows, codec=codec, **about))  # type: ignore[arg-type]
        base += count
    return found


def segment(base: int, parts: Sequence[bytes], count: int) -> bytes:
    body = b"".join(parts)
    return (
        struct.pack(">4sHHqiqI", b"KAFS", 1, 0, base, count, 1_700_000_000_000, 0)
        + body
        + struct.pack(">Iq4s", crc32c(body), base + count - 1, b"END!")
    )


def index(base: int, parts: Sequence[bytes], counts: Sequence[int], interval: int = 1) -> bytes:
    entries, position, since = [], 32, interval
    for part, count in zip(parts, counts, strict=True):
        if since >= interval:
            entries.append(struct.pack(">qi", base, position))
            since = 0
        since += count
        base += count
        position += len(part)
    header = struct.pack(">4sHiiH", b"IDX\0", 1, len(entries), interval, 0)
    return header + b"".join(entries)


def times(first: int, last: int) -> bytes:
    return struct.pack(">4sIqqqq", b"KFTF", 1, 1000 + first, 1000 + last, first, last)


def add(
    bucket: MemoryBucket,
    base: int,
    counts: Sequence[int] = COUNTS,
    *,
    place: str = PLACE,
    indexed: bool = True,
    timed: bool = False,
    codec: int = 0,
) -> str:
    """Put one segment there; its key without the ending."""
    parts = batches(base, counts, codec)
    key = f"{place}/segment-{base:020d}"
    bucket.write(f"{key}.kfs", segment(base, parts, sum(counts)))
    if indexed:
        bucket.write(f"{key}.index", index(base, parts, counts))
    if timed:
        bucket.write(f"{key}.kfst", times(base, base + sum(counts) - 1))
    return key


def damage(bucket: MemoryBucket, key: str, at: int | None = None) -> None:
    data = bytearray(bucket.objects[key][0])
    data[len(data) // 2 if at is None else at] ^= 0x20
    bucket.write(key, bytes(data))
