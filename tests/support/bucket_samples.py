"""Buckets with real contents for the tests of readers, and functions that damage them."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from neve.bucket.async_bucket import AsyncBucket
from neve.bucket.model import Record
from neve.cluster.node import Node
from neve.errors import NeveError
from neve.log.manifest.records import Segment, Start, removal
from neve.records import reference
from neve.records.reference import build_batch
from neve.settings import Settings, load
from neve.store.memory import MemoryBucket, named_bucket
from neve.store.url import Stack, connect

QUICK = {
    "prefetch.retries": 1,
    "prefetch.retry.base.ms": 1,
    "prefetch.retry.cap.ms": 1,
    "reader.poll.ms": 1,
    "reader.cluster.poll.ms": 20,
    "segment.index.interval": 5,
}
ONE_AT_A_TIME = {"prefetch.window": 1, "prefetch.downloads": 1}
BATCH = 5


def settings(**more: object) -> Settings:
    named = {name.replace("__", "."): value for name, value in more.items()}
    return load(flags={**QUICK, **named})


def value_of(topic: str, partition: int, offset: int) -> bytes:
    return f"{topic}-{partition}@{offset}".encode()


def expected(topic: str, partition: int, first: int, end: int) -> list[tuple[int, int, bytes]]:
    return [(partition, o, value_of(topic, partition, o)) for o in range(first, end)]


def shown(records: Sequence[object]) -> list[tuple[int, int, bytes]]:
    return [(row.partition, row.offset, row.value) for row in records]  # type: ignore[attr-defined]


@dataclass
class Writer:
    """A node over a bucket in memory, and what it wrote."""

    stack: Stack
    node: Node
    chosen: Settings
    timestamps: dict[tuple[str, int, int], int] = field(default_factory=dict)

    @classmethod
    async def start(cls, url: str, node_id: int = 1, chosen: Settings | None = None) -> Writer:
        chosen = chosen or settings()
        stack = connect(url, chosen.store)
        node = await Node.start(stack.store, chosen, node_id=node_id, probe=False)
        return cls(stack, node, chosen)

    async def append(self, topic: str, partition: int, records: int, **options: object) -> None:
        """Records in batches of BATCH, committed when this returns."""
        log = self.node.leader(topic, partition).log
        commit = None
        for first in range(0, records, BATCH):
            base = log.next_offset
            rows = [
                reference.Record(i, 1000 + base + i, b"k", value_of(topic, partition, base + i))
                for i in range(min(BATCH, records - first))
            ]
            batch = bytearray(build_batch(rows, **options))  # type: ignore[arg-type]
            commit = log.append(batch).commit
        if commit is not None:
            await commit.wait()

    async def segments(self, topic: str, partition: int) -> list[Segment]:
        manifest = self.node.leader(topic, partition).log.manifest
        await manifest.refresh()
        return await manifest.segments()

    async def start_at(self, topic: str, partition: int, offset: int) -> None:
        """What retention does: move the log's start, and delete what lies below it."""
        manifest = self.node.leader(topic, partition).log.manifest
        gone = [row for row in await self.segments(topic, partition) if row.last < offset]
        await manifest.change(lambda _: [Start(offset, tuple(removal(row) for row in gone))])
        await manifest.collect()

    async def close(self) -> None:
        await self.node.close()
        await self.stack.close()

    async def abort(self) -> None:
        await self.node.abort()
        await self.stack.close()


async def layered(writer: Writer, topic: str, partitions: int = 1) -> None:
    """Two segments, a roll-up and plain WAL objects in each partition: 20 records in each."""
    await writer.node.topics.create(topic, partitions)
    for step in range(4):
        for partition in range(partitions):
            await writer.append(topic, partition, 20)
            if step < 2:
                await writer.node.leader(topic, partition).log.tier()
        if step == 2:
            await writer.node.rollups.roll_up()


def objects(url: str) -> MemoryBucket:
    return named_bucket(url.removeprefix("memory://"))


def damage(url: str, key: str, at: int | None = None) -> None:
    data = bytearray(objects(url).objects[key][0])
    data[len(data) // 2 if at is None else at] ^= 0x20
    objects(url).write(key, bytes(data))


def remove(url: str, key: str) -> None:
    objects(url).remove(key)


_urls = itertools.count()


def fresh_url() -> str:
    """A bucket that no other test has, not even a simulation of the same seed."""
    return f"memory://sample-{next(_urls)}"


async def collected(source: AsyncIterator[Record]) -> tuple[list[Record], NeveError | None]:
    """All that a reader gives, and the error at its end."""
    found: list[Record] = []
    try:
        async for row in source:
            found.append(row)
    except NeveError as error:
        return found, error
    return found, None


async def opened(url: str, chosen: Settings | None = None, **options: object) -> AsyncBucket:
    return await AsyncBucket.connect(url, settings=chosen or settings(), **options)  # type: ignore[arg-type]
