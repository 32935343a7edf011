"""Background loops that are idle, that tier and that roll up."""

from __future__ import annotations

import dataclasses

from neve import runtime
from neve.cluster.node import Node
from neve.log.keys import wal_stream
from neve.settings import MaintenanceSettings, Settings
from support.background import segments, send, upkeep
from support.node_world import (
    TOPIC,
    small_settings,
    started,
    successor,
    take_over,
    topic_of,
    values_of,
)
from support.scripted_store import ScriptedStore, in_simulation, slow

# --- idle


def idle(partitions: int) -> tuple[float, dict[str, int]]:
    """Requests a second of an idle broker that has recovered so many partitions."""

    async def main() -> tuple[float, dict[str, int]]:
        store = ScriptedStore()
        node = await Node.start(store, Settings(), node_id=1, probe=False)
        await node.topics.create(TOPIC, partitions)
        for partition in range(0, partitions, 10):
            await send(node, ["a"], partition)
            if partition % 20:
                await node.leader(TOPIC, partition).log.tier()
        await node.abort()
        node = await Node.start(store, Settings(), node_id=1)
        await take_over(node)
        async with upkeep(node, Settings()):
            await runtime.sleep(120)  # the old stream is let go of and retired
            store.calls.clear()
            await runtime.sleep(1200)
            counts: dict[str, int] = {}
            for call in store.calls:
                kind = f"{call.operation} {call.key.split('/')[0]}"
                counts[kind] = counts.get(kind, 0) + 1
            return len(store.calls) / 1200, counts

    return runtime.simulate(main(), seed=1)


def test_an_idle_broker_asks_for_little_however_many_partitions_it_leads() -> None:
    few, _ = idle(20)
    many, counts = idle(400)
    assert many <= few + 0.01, counts
    assert many < 1, counts


@in_simulation
async def test_a_broker_that_commits_need_not_ask_whether_it_still_leads(
    store: ScriptedStore,
) -> None:
    node = await started(store)
    async with upkeep(node):
        for _ in range(20):
            await send(node, ["a"])
            await runtime.sleep(1)
        own = wal_stream(node.incarnation).prefix
        asked = [call for call in store.calls if call.key.startswith(own)]
        assert {call.operation for call in asked} == {"create"}


# --- tiering


@in_simulation
async def test_what_reaches_segment_bytes_is_tiered_at_once(store: ScriptedStore) -> None:
    node = await started(store, partitions=2)
    async with upkeep(node):
        for _ in range(3):
            await send(node, ["a" * 500])
            await runtime.sleep(0.01)
        assert len(segments(store, node)) == 3
        assert segments(store, node, 1) == []


@in_simulation
async def test_what_is_old_enough_is_tiered_without_another_commit(store: ScriptedStore) -> None:
    settings = small_settings(segment_ms=10_000)
    node = await started(store, settings)
    async with upkeep(node, settings):
        await send(node, ["a"])
        await runtime.sleep(9)
        assert segments(store, node) == []
        await runtime.sleep(2)
        assert len(segments(store, node)) == 1


@in_simulation
async def test_what_was_recovered_is_tiered_when_it_is_old_enough(store: ScriptedStore) -> None:
    settings = small_settings(segment_ms=10_000)
    old = await started(store, settings)
    await send(old, ["a"])
    await old.abort()
    node = await successor(store, settings)
    async with upkeep(node, settings):
        await runtime.sleep(12)
        assert len(segments(store, node)) == 1
        await runtime.sleep(2)
        assert len(topic_of(node).partitions[0].streams) == 1, "the old stream is let go of"


class CountingStore(ScriptedStore):
    """How many segments are uploaded at once."""

    def __init__(self) -> None:
        super().__init__()
        self.uploading = self.most = 0

    async def create(self, key: str, data: object) -> None:
        is_segment = key.endswith(".kfs")
        self.uploading += is_segment
        self.most = max(self.most, self.uploading)
        if is_segment:
            await runtime.sleep(1)
        try:
            await super().create(key, data)  # type: ignore[arg-type]
        finally:
            self.uploading -= is_segment


@in_simulation
async def test_only_so_many_partitions_are_tiered_at_once_and_in_their_order() -> None:
    store = CountingStore()
    settings = dataclasses.replace(
        small_settings(), maintenance=MaintenanceSettings(tiering_concurrency=2)
    )
    node = await started(store, settings, partitions=6)
    async with upkeep(node, settings):
        for partition in range(6):
            await send(node, ["a" * 500], partition)
        await runtime.sleep(3.5)
        assert store.most == 2
        done = [call.key for call in store.calls if call.key.endswith(".kfs")]
        order = [int(key.split("/")[2]) for key in done]
        assert [sorted(order[at : at + 2]) for at in (0, 2, 4)] == [[0, 1], [2, 3], [4, 5]]


@in_simulation
async def test_what_segments_take_up_while_they_are_built_is_bounded() -> None:
    store = CountingStore()
    bounded = MaintenanceSettings(tiering_concurrency=4, tiering_memory_bytes=2_000)
    settings = dataclasses.replace(small_settings(), maintenance=bounded)
    node = await started(store, settings, partitions=6)
    async with upkeep(node, settings):
        for partition in range(6):
            await send(node, ["a" * 500], partition)
        await runtime.sleep(3.5)
        assert store.most == 2  # each takes twice segment.bytes
        assert all(segments(store, node, partition) for partition in range(6))


@in_simulation
async def test_slices_larger_than_their_segments_are_counted_as_a_whole() -> None:
    store = CountingStore()
    bounded = MaintenanceSettings(tiering_concurrency=4, tiering_memory_bytes=12_000)
    settings = dataclasses.replace(small_settings(cache_bytes=0), maintenance=bounded)
    node = await started(store, settings, partitions=2)
    for partition in range(2):
        for _ in range(20):
            await send(node, ["a" * 500], partition)
    assert await node.rollups.roll_up()  # joins 20 slices to one of each partition
    async with upkeep(node, settings):
        await runtime.sleep(10)
        assert store.most == 1
        assert len(segments(store, node, 0)) > 1


@in_simulation
async def test_what_arrives_while_a_segment_waits_for_memory_is_not_in_it(
    store: ScriptedStore,
) -> None:
    node = await started(store, small_settings(segment_bytes=1 << 20))
    await send(node, ["a" * 500])
    leader = node.leader(TOPIC, 0)
    async with node.queues.memory.taken(node.queues.memory.bytes_max):
        tiering = runtime.spawn(leader.tier())
        await runtime.sleep(1)
        await send(node, ["b" * 100_000])
    assert await tiering
    assert leader.log.tiered_offset == 1, "its memory was reserved for the first record"
    assert node.queues.memory.used == 0
    assert await leader.tier()
    assert leader.log.tiered_offset == 2
    await node.abort()


@in_simulation
async def test_a_segment_larger_than_the_bound_is_built_alone() -> None:
    store = CountingStore()
    bounded = MaintenanceSettings(tiering_concurrency=4, tiering_memory_bytes=0)
    settings = dataclasses.replace(small_settings(), maintenance=bounded)
    node = await started(store, settings, partitions=2)
    async with upkeep(node, settings):
        for partition in range(2):
            await send(node, ["a" * 500], partition)
        await runtime.sleep(2.5)
        assert store.most == 1
        assert all(segments(store, node, partition) for partition in range(2))


@in_simulation
async def test_a_busy_partition_starves_no_other(store: ScriptedStore) -> None:
    node = await started(store, partitions=2)
    store.when("create", lambda key: key.endswith(".kfs"), slow(0.5), times=None)
    settings = dataclasses.replace(
        small_settings(), maintenance=MaintenanceSettings(tiering_concurrency=1)
    )
    async with upkeep(node, settings):
        for _ in range(40):
            await send(node, ["a" * 500], 0)
        await send(node, ["b" * 500], 1)
        await runtime.sleep(2.5)
        assert len(segments(store, node, 1)) == 1
        assert 1 <= len(segments(store, node, 0)) < 6


@in_simulation
async def test_a_stream_past_its_bounds_is_rolled_up(store: ScriptedStore) -> None:
    settings = small_settings(tail_objects=5)
    node = await started(store, settings)
    async with upkeep(node, settings):
        for _ in range(12):
            await send(node, ["a"])
            await runtime.sleep(0.01)
        await runtime.sleep(1)
        keys = wal_stream(node.incarnation)
        assert len(store.listed(keys.checkpoints)) == 1
        assert len([key for key in store.listed(keys.prefix) if keys.number_of(key)]) < 5
        assert await values_of(store) == ["a"] * 12
