"""Buckets for the tests of maintenance: partitions of many small segments, and their invariants."""

from __future__ import annotations

from neve import runtime
from neve.bucket.verify import Options, Report, Severity, verify
from neve.cluster.node import Node
from neve.log.keys import manifest as manifest_keys
from neve.log.manifest.manifest import Manifest
from neve.log.manifest.records import Segment
from neve.store.memory import MemoryBucket, MemoryStore
from neve.store.port import Store
from support.node_world import TOPIC, send, small_settings, started, topic_of

VALUES_A_SEGMENT = 4


async def filled(
    store: Store, segments: int, *, partitions: int = 1, producer_id: int = 7, tail: int = 1
) -> tuple[Node, list[str]]:
    """A node whose partitions have so many small segments each, and a short tail; partition 0's."""
    node = await started(store, small_settings(), partitions=partitions)
    values: list[str] = []
    for partition in range(partitions):
        sequence = 0
        for number in range(segments + tail):
            some = [f"{partition}/{number}/{at}" for at in range(VALUES_A_SEGMENT)]
            about = {"producer_id": producer_id, "sequence": sequence}
            await send(node, some, partition, **about)
            sequence += len(some)
            if number < segments:
                assert await node.leader(TOPIC, partition).log.tier()
            if partition == 0:
                values += some
    return node, values


def filled_bucket(segments: int, **about: int) -> tuple[MemoryBucket, list[str]]:
    """The same with the node gone."""
    bucket = MemoryBucket()

    async def fill() -> list[str]:
        node, values = await filled(MemoryStore(bucket), segments, **about)
        await node.close()
        return values

    return bucket, runtime.simulate(fill(), seed=3)


def manifest_of(node: Node, store: Store, partition: int = 0) -> Manifest:
    topic = topic_of(node)
    return Manifest(store, manifest_keys(topic.name, topic.id_bytes, partition))


async def listed(manifest: Manifest) -> list[Segment]:
    await manifest.refresh()
    return await manifest.segments()


async def looked_at(store: Store) -> Report:
    """What verify says; nothing is under way, so nothing needs time to settle."""
    return await verify(store, Options(probe=False, settle_seconds=0))


async def assert_clean(store: Store, *, apart_from: str | None = None) -> None:
    """Nothing is wrong and nothing is left over, unless with keys that begin like this."""
    report = await looked_at(store)
    wrong = [*report.wrong, *report.garbage]
    told = [(row.severity, row.key, row.what) for row in wrong]
    assert not [row for row in told if apart_from is None or not row[1].startswith(apart_from)]


async def assert_no_worse_than_orphans(store: Store) -> None:
    """What a killed job may leave: objects that nobody lists, and nothing else."""
    report = await looked_at(store)
    assert report.ok, report.wrong
    assert all(row.severity is Severity.ORPHAN for row in report.garbage), report.garbage
