"""Nodes and their bucket: small settings, and batches whose bytes identify them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from neve import runtime
from neve.cluster.node import Node
from neve.cluster.records import CreateTopic
from neve.cluster.state import Topic
from neve.errors import FencedError, NeveError
from neve.log.partition import Appended
from neve.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from neve.records.reference import Record, build_batch
from neve.settings import CacheSettings, SegmentSettings, Settings, WalSettings
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.port import Store
from neve.store.wrapper import Call, Wrapper
from simulation.process import declare_others_dead
from simulation.truth import read_all, read_log

T = TypeVar("T")
TOPIC = "t"
TIMESTAMP = 1_000


def small_settings(
    *,
    segment_bytes: int = 400,
    segment_ms: int = 60_000,
    checkpoint_numbers: int = 1_000,
    tail_objects: int = 1_000,
    tail_bytes: int = 1 << 30,
    cache_bytes: int = 1 << 20,
) -> Settings:
    return Settings(
        wal=WalSettings(
            linger_ms=0, inflight_max=4, tail_objects=tail_objects, tail_bytes=tail_bytes
        ),
        segment=SegmentSettings(
            bytes=segment_bytes,
            ms=segment_ms,
            checkpoint_numbers=checkpoint_numbers,
            index_interval=2,
        ),
        cache=CacheSettings(tail_bytes=cache_bytes),
    )


def batch_of(
    values: Sequence[str],
    *,
    producer_id: int = NO_PRODUCER_ID,
    sequence: int = NO_SEQUENCE,
    timestamp: int = TIMESTAMP,
) -> bytearray:
    records = [Record(at, timestamp, None, value.encode()) for at, value in enumerate(values)]
    return bytearray(
        build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=NO_PRODUCER_EPOCH if producer_id == NO_PRODUCER_ID else 0,
            base_sequence=sequence,
        )
    )


def append(node: Node, values: Sequence[str], partition: int = 0, **about: int) -> Appended:
    topic = node.cluster.state.topic(TOPIC)
    assert topic is not None
    return node.leader(topic.name, partition).append(batch_of(values, **about))


async def send(node: Node, values: Sequence[str], partition: int = 0, **about: int) -> int:
    """Append one batch and wait for its commit; its base offset."""
    appended = append(node, values, partition, **about)
    await appended.commit.wait()
    return appended.base_offset


async def started(
    store: Store, settings: Settings | None = None, *, node_id: int = 1, partitions: int = 1
) -> Node:
    """A node that leads a new topic."""
    node = await Node.start(store, settings or small_settings(), node_id=node_id, probe=False)
    await node.topics.create(TOPIC, partitions)
    return node


async def create_unled(node: Node, name: str, partitions: int) -> Topic:
    """Create a topic as older versions and imports do: its partitions have no leader yet."""
    topic_id = runtime.token(16).hex()
    topic = CreateTopic(name=name, topic_id=topic_id, partitions=partitions, at_ms=0)
    await node.cluster.propose(lambda _: topic)
    return node.cluster.state.topics[topic_id]


async def take_over(node: Node, topics: Sequence[str] | None = None) -> None:
    """Lead everything, once all other processes are declared dead as their watchers would."""
    await declare_others_dead(node)
    await node.takeover.lead(topics)


async def successor(store: Store, settings: Settings | None = None, *, node_id: int = 2) -> Node:
    """A node that takes everything over."""
    node = await Node.start(store, settings or small_settings(), node_id=node_id)
    await take_over(node)
    return node


async def release(node: Node, to: Node, topic_name: str = TOPIC, partition: int = 0) -> None:
    """Move a partition from one live node to another."""
    topic = node.cluster.state.topic(topic_name)
    assert topic is not None
    log = node.leader(topic_name, partition).log
    row = (topic.topic_id, partition)
    assert await node.releases.release({row: to.incarnation}) == {row}
    assert node.leader_of(topic.id_bytes, partition) is None
    assert isinstance(log.closed, FencedError)
    await to.cluster.refresh()
    assert await to.takeover.lead_unled([row]) == {}


def topic_of(node: Node) -> Topic:
    topic = node.cluster.state.topic(TOPIC)
    assert topic is not None
    return topic


async def values_of(store: Store, partition: int = 0) -> list[str]:
    """All values of a partition, read from the bucket alone; offsets must have no hole."""
    starts, logs = await read_all(store, TOPIC)
    log = logs[partition]
    if log:
        assert sorted(log) == list(range(min(log), max(log) + 1)), "a hole"
        assert min(log) == starts[partition]
    return [log[offset].decode() for offset in sorted(log)]


async def values_of_topic(store: Store, topic: Topic, partition: int = 0) -> list[str]:
    """The same with a view of the cluster that may be old."""
    _, log = await read_log(store, topic, partition)
    return [log[offset].decode() for offset in sorted(log)]


def copied(bucket: MemoryBucket) -> MemoryBucket:
    other = MemoryBucket()
    other.objects = dict(bucket.objects)
    other.keys = list(bucket.keys)
    return other


class CrashedError(NeveError):
    """The process that asked is no more."""


class CrashingStore(Wrapper):
    """The store as one process sees it: at its call number `crash_at` the process dies.

    With `after` that call still takes effect; its answer does not arrive.
    """

    def __init__(
        self, bucket: MemoryBucket, crash_at: int | None = None, *, after: bool = False
    ) -> None:
        super().__init__(MemoryStore(bucket))
        self.bucket = bucket
        self.crash_at = crash_at
        self.after = after
        self.calls: list[Call] = []

    @property
    def crashed(self) -> bool:
        return self.crash_at is not None and len(self.calls) > self.crash_at

    async def around(self, call: Call, work: Callable[[], Awaitable[T]]) -> T:
        at = len(self.calls)
        self.calls.append(call)
        if self.crash_at is None or at < self.crash_at:
            return await work()
        if at == self.crash_at and self.after:
            await work()
        raise CrashedError(f"crashed at call {at}: {call}")


async def live(
    store: CrashingStore, settings: Settings, work: Callable[[Node], Awaitable[None]]
) -> None:
    """A process that starts a node and works with it, to the end or until it dies at a call."""
    node: Node | None = None
    try:
        node = await Node.start(store, settings, node_id=1, probe=False)
        await work(node)
    except NeveError:
        assert store.crashed
    finally:
        if node is not None:
            await node.abort()


def crash_everywhere(
    origin: MemoryBucket,
    life: Callable[[CrashingStore], Coroutine[Any, Any, T]],
    check: Callable[[MemoryBucket, T], Awaitable[None]],
    *,
    step: int,
    seed: int,
) -> list[Call]:
    """End a life at every `step`-th of its calls, before and after it; check each bucket it leaves.

    Each life has a copy of `origin`; `check` is given what it returned. The calls of a life that
    nothing ends.
    """
    whole = CrashingStore(copied(origin))
    runtime.simulate(life(whole), seed=seed)
    for at in range(0, len(whole.calls), step):
        for after in (False, True):

            async def run(at: int = at, after: bool = after) -> None:
                store = CrashingStore(copied(origin), at, after=after)
                lived = await life(store)
                try:
                    await check(store.bucket, lived)
                except BaseException as failure:
                    failure.add_note(f"crashed at {at}, after={after}: {store.calls[at]}")
                    raise

            runtime.simulate(run(), seed=seed)
    return whole.calls
