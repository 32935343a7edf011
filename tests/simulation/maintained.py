"""A loaded leader beside all maintenance at once, and readers who know what they must read.

Producers write, a leader tiers and collects, another takes over now and then. Jobs merge, expire,
rebuild bundles that vanish, and doom whatever nobody lists without any patience; some are killed in
the middle. Readers go by way of the leader, as consumers do, and by way of the bucket alone, from
the log's start, over and over. Every record that they see must be the one that was acknowledged
there, and none may be passed over.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from neve import runtime
from neve.bucket.async_bucket import AsyncBucket
from neve.bucket.maintain.expire import expire_partition
from neve.bucket.maintain.indexes import build_partition_indexes
from neve.bucket.maintain.merge import merge_partition
from neve.cluster.node import Node
from neve.cluster.state import Topic
from neve.errors import NeveError
from neve.log.index_cache import IndexCache
from neve.log.reading.leader.readable_log import OffsetOutOfRangeError
from neve.log.reading.leader.reader import LogReader
from neve.log.remote import BucketRemoteStorage
from neve.records.batch import walk
from neve.records.reference import Record, build_batch, decode_batch
from neve.settings import (
    CacheSettings,
    FetchSettings,
    SegmentSettings,
    Settings,
    StoreSettings,
    WalSettings,
)
from neve.store.faults import Faults, FaultyStore, Latencies, Latency
from neve.store.memory import MemoryStore
from neve.store.url import Stack, stack
from simulation.jobs import repair
from simulation.truth import read_all
from support.maintenance_world import assert_clean
from support.node_world import take_over

TOPIC, PARTITIONS = "events", 2
SETTINGS = Settings(
    store=StoreSettings(request_timeout_ms=10_000),
    wal=WalSettings(linger_ms=0, inflight_max=4, tail_objects=16),
    segment=SegmentSettings(bytes=1_500, ms=2_000, checkpoint_numbers=4, index_interval=3),
    cache=CacheSettings(tail_bytes=2 * 1024),
)
RETENTION_BYTES = 7_000
TARGET_BYTES = 6_000
SLOW = Latencies.of(write=Latency(8, 80), read=Latency(4, 40))


class WrongReadError(AssertionError):
    """A reader saw another record than the acknowledged one, or none where there is one."""


@dataclass
class Life:
    """One bucket and everybody who uses it."""

    faults: Faults = field(default_factory=Faults)
    raw: MemoryStore = field(default_factory=MemoryStore)
    node: Node | None = None
    topic: Topic | None = None
    truth: dict[int, dict[int, bytes]] = field(default_factory=dict)
    alive: bool = True
    failure: BaseException | None = None
    counts: dict[str, int] = field(default_factory=dict)
    stores: list[FaultyStore] = field(default_factory=list)

    def count(self, what: str, more: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + more

    def stack(self) -> Stack:
        slow = FaultyStore(MemoryStore(self.raw.bucket), self.faults, latencies=SLOW)
        self.stores.append(slow)
        return stack(slow, SETTINGS.store)

    @property
    def some_partition(self) -> int:
        return runtime.chance().randrange(PARTITIONS)

    async def lead(self) -> None:
        node = await Node.start(self.stack().store, SETTINGS, node_id=1, probe=False)
        if self.topic is None:
            configs = {"retention.ms": "-1", "retention.bytes": str(RETENTION_BYTES)}
            self.topic = await node.cluster.create_topic(TOPIC, PARTITIONS, configs)
            self.truth = {partition: {} for partition in range(PARTITIONS)}
        await take_over(node, [TOPIC])
        self.node = node

    # -- the leader ----------------------------------------------------------------------------

    async def produce(self) -> None:
        node, topic = self.node, self.topic
        assert node is not None
        assert topic is not None
        partition = self.some_partition
        payload = runtime.token(40)
        batch = bytearray(build_batch([Record(0, runtime.now_ms(), None, payload)]))
        appended = node.leader(topic.name, partition).append(batch)
        await appended.commit.wait()
        self.truth[partition][appended.base_offset] = payload
        self.count("produced")

    async def tend(self) -> None:
        assert self.node is not None
        await self.node.run_due_work()
        await self.node.collect()

    async def take_over(self) -> None:
        await runtime.sleep(runtime.chance().uniform(5, 20))
        before = self.node
        await self.lead()
        self.count("takeovers")
        if before is not None:
            await before.abort()

    # -- maintenance ---------------------------------------------------------------------------

    async def merge(self) -> None:
        work = merge_partition(
            self.stack().store,
            TOPIC,
            self.some_partition,
            target_bytes=TARGET_BYTES,
            orphan_age_ms=runtime.chance().choice((0, 5_000)),
            settings=SETTINGS,
        )
        done = await self._perhaps_killed(work)
        if done is not None:
            self.count("merged", done.merged)

    async def expire(self) -> None:
        await runtime.sleep(1)
        work = expire_partition(self.stack().store, TOPIC, self.some_partition, settings=SETTINGS)
        done = await self._perhaps_killed(work)
        if done is not None:
            self.count("expired", done.segments)

    async def index(self) -> None:
        """Lose some bundle, and have it built again."""
        await runtime.sleep(2)
        assert self.node is not None
        partition = self.some_partition
        rows = await self.node.leader(TOPIC, partition).log.manifest.segments()
        if rows:
            self.raw.bucket.remove(runtime.chance().choice(rows).index_key or "")
        work = build_partition_indexes(self.stack().store, TOPIC, partition, settings=SETTINGS)
        done = await self._perhaps_killed(work)
        if done is not None:
            self.count("indexed", len(done.built))

    async def repair(self) -> None:
        await runtime.sleep(3)
        assert self.topic is not None
        await repair(self.stack().store, self.topic, self.some_partition)

    async def _perhaps_killed(self, work: Awaitable[object]) -> object | None:
        task = runtime.spawn(work)  # type: ignore[arg-type]
        if runtime.chance().random() < 0.3:
            await asyncio.wait([task], timeout=runtime.chance().uniform(0, 1.5))
            if not task.done():
                self.count("killed")
                task.cancel()
                await asyncio.wait([task])
                return None
        return await task

    # -- readers -------------------------------------------------------------------------------

    async def consume(self) -> None:
        """Read by way of a leader, from the log's start to its end."""
        await runtime.sleep(0.5)
        node = self.node
        assert node is not None
        stacked = self.stack()
        indexes = await IndexCache.open(BucketRemoteStorage(stacked.store), CacheSettings())
        fetch = FetchSettings(readahead_part_bytes=700, catchup_bytes=8_000)
        reader = LogReader(stacked.store, indexes, fetch)
        try:
            partition = self.some_partition
            log = node.leader(TOPIC, partition).log
            at = log.start_offset
            end = log.high_watermark
            while at < end:
                try:
                    chunk = await reader.read(log, at, 900)
                except OffsetOutOfRangeError:
                    if log.start_offset <= at:
                        raise
                    at = log.start_offset
                    continue
                for part in chunk.parts:
                    at = self._seen_batches(partition, bytes(part), at)
            self.count("consumed")
        finally:
            await reader.aclose()
            await indexes.aclose()

    def _seen_batches(self, partition: int, data: bytes, at: int) -> int:
        for position, header in walk(data):
            for record in decode_batch(data[position : position + header.size]):
                if record.offset >= at:
                    self._saw(partition, record.offset, record.value, at)
                    at = record.offset + 1
        return at

    def _saw(self, partition: int, offset: int, value: bytes | None, due: int) -> None:
        acknowledged = self.truth[partition].get(offset, value)
        if offset != due or value != acknowledged:
            raise WrongReadError(f"{partition}@{offset}: {value!r}, due {due}")

    async def scan(self) -> None:
        """Read by way of the bucket alone, from the log's start to its end."""
        await runtime.sleep(0.5)
        partition = self.some_partition
        async with await AsyncBucket.over(self.stack(), settings=SETTINGS) as bucket:
            due: int | None = None
            async for row in bucket.read(TOPIC, partition):
                self._saw(partition, row.offset, row.value, row.offset if due is None else due)
                due = row.offset + 1
        self.count("scanned")

    # -- all of it -----------------------------------------------------------------------------

    async def again(self, work: Callable[[], Awaitable[None]]) -> None:
        while self.alive:
            await runtime.sleep(runtime.chance().uniform(0.02, 0.3))
            with contextlib.suppress(NeveError):
                await work()

    def fail(self, failure: BaseException) -> None:
        self.failure = self.failure or failure

    async def play(self, seconds: float) -> None:
        await self.lead()
        background = runtime.Tasks(on_failure=self.fail)
        works = (
            *(self.produce,) * 4,
            *(self.merge,) * 2,
            *(self.consume,) * 2,
            self.scan,
            self.tend,
            self.expire,
            self.index,
            self.repair,
            self.take_over,
        )
        for each in works:
            background.start(self.again(each))
        await runtime.sleep(seconds)
        self.alive = False
        await background.close()
        if self.failure is not None:
            raise self.failure
        await self.finish()

    async def finish(self) -> None:
        """Stop everything, let the last job end, and look at all that is left."""
        assert self.node is not None
        await self.node.abort()
        for store in self.stores:
            await store.settle()
        for partition in range(PARTITIONS):
            await build_partition_indexes(self.raw, TOPIC, partition, settings=SETTINGS)
            await merge_partition(self.raw, TOPIC, partition, orphan_age_ms=0, settings=SETTINGS)
        node = await Node.start(self.raw, SETTINGS, node_id=9, probe=False)
        await take_over(node, [TOPIC])
        starts, logs = await read_all(self.raw, TOPIC)
        for partition, truth in self.truth.items():
            log = logs[partition]
            end = node.leader(TOPIC, partition).log.next_offset
            assert sorted(log) == list(range(starts[partition], end))
            for offset, payload in truth.items():
                if offset >= starts[partition]:
                    assert log.get(offset) == payload, (partition, offset)
        await node.run_due_work()
        await node.collect()
        await node.close()
        # A process that was killed as it took over may leave seals: the next tending's business.
        await assert_clean(self.raw, apart_from="wal/")
