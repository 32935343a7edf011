"""Background loops: due work is done soon, idle work costs nothing, a failure ends no loop."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from neve import runtime
from neve.cluster.background_loops import BackgroundLoops
from neve.cluster.node import Node
from neve.cluster.streams import retire_streams
from neve.errors import FencedError, NeveError, StoreFailedError, UnavailableError
from neve.log.keys import cluster_log, segment_prefix, topic_prefix, wal_stream
from neve.settings import ClusterSettings, MaintenanceSettings, SegmentSettings, Settings
from neve.store.faults import Faults, FaultyStore
from neve.store.memory import MemoryStore
from neve.store.port import Store
from neve.store.url import stack
from support.node_world import (
    TOPIC,
    append,
    batch_of,
    small_settings,
    started,
    successor,
    topic_of,
    values_of,
)
from support.scripted_store import ScriptedStore, hold, in_simulation, refuse, slow


async def send(node: Node, values: list[str], partition: int = 0) -> int:
    """A batch of records of today, which retention leaves alone."""
    appended = append(node, values, partition, timestamp=runtime.now_ms())
    await appended.commit.wait()
    return appended.base_offset


@asynccontextmanager
async def upkeep(node: Node, settings: Settings | None = None) -> AsyncIterator[list[NeveError]]:
    """BackgroundLoops at work; what it says when the incarnation is over."""
    told: list[NeveError] = []
    running = BackgroundLoops(node, settings or small_settings(), on_fenced=told.append)
    running.start()
    try:
        yield told
    finally:
        await running.close()
        await node.abort()


def segments(store: ScriptedStore, node: Node, partition: int = 0) -> list[str]:
    topic = topic_of(node)
    keys = store.listed(segment_prefix(topic.name, topic.id_bytes, partition))
    return [key for key in keys if key.endswith(".kfs")]


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
        await node.takeover.lead()
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
async def test_a_broker_that_commits_need_not_ask_whether_it_still_leads() -> None:
    store = ScriptedStore()
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
async def test_what_reaches_segment_bytes_is_tiered_at_once() -> None:
    store = ScriptedStore()
    node = await started(store, partitions=2)
    async with upkeep(node):
        for _ in range(3):
            await send(node, ["a" * 500])
            await runtime.sleep(0.01)
        assert len(segments(store, node)) == 3
        assert segments(store, node, 1) == []


@in_simulation
async def test_what_is_old_enough_is_tiered_without_another_commit() -> None:
    store = ScriptedStore()
    settings = small_settings(segment_ms=10_000)
    node = await started(store, settings)
    async with upkeep(node, settings):
        await send(node, ["a"])
        await runtime.sleep(9)
        assert segments(store, node) == []
        await runtime.sleep(2)
        assert len(segments(store, node)) == 1


@in_simulation
async def test_what_was_recovered_is_tiered_when_it_is_old_enough() -> None:
    store = ScriptedStore()
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
async def test_a_busy_partition_starves_no_other() -> None:
    store = ScriptedStore()
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
async def test_a_stream_past_its_bounds_is_rolled_up() -> None:
    store = ScriptedStore()
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


# --- retention and collection


def retention_settings(check_ms: int = 1_000) -> Settings:
    upkeep = MaintenanceSettings(retention_check_ms=check_ms, gc_interval_ms=1_000)
    return dataclasses.replace(small_settings(), maintenance=upkeep)


@in_simulation
async def test_segments_go_when_their_time_has_come_and_their_objects_too() -> None:
    store = ScriptedStore()
    node = await started(store, retention_settings())
    await node.topics.set_configs(TOPIC, {"retention.ms": "60000"})
    async with upkeep(node, retention_settings()):
        for _ in range(3):
            await send(node, ["a" * 500])
            await runtime.sleep(19)
        assert len(segments(store, node)) == 3
        asked = len([call for call in store.calls if call.key.startswith("topics/")])
        await runtime.sleep(2)
        assert len([call for call in store.calls if call.key.startswith("topics/")]) == asked
        await runtime.sleep(5)
        assert len(segments(store, node)) == 2
        assert node.leader(TOPIC, 0).log.start_offset == 1
        await runtime.sleep(60)
        assert segments(store, node) == []


@in_simulation
async def test_records_expire_though_they_were_never_tiered() -> None:
    store = ScriptedStore()
    node = await started(store, retention_settings())
    await node.topics.set_configs(TOPIC, {"retention.ms": "5000"})
    async with upkeep(node, retention_settings()):
        await runtime.sleep(30)
        await send(node, ["old"])
        await runtime.sleep(3)
        await send(node, ["new"])
        await runtime.sleep(3)
        assert await values_of(store) == ["new"]
        await runtime.sleep(4)
        assert await values_of(store) == []
        assert await send(node, ["next"]) == 2


@in_simulation
async def test_a_log_that_grows_past_its_size_shrinks_but_not_at_every_segment() -> None:
    store = ScriptedStore()
    settings = retention_settings(check_ms=10_000)
    node = await started(store, settings)
    await node.topics.set_configs(TOPIC, {"retention.bytes": "2000", "retention.ms": "-1"})
    async with upkeep(node, settings):
        starts = set()
        for _ in range(40):
            await send(node, ["a" * 500])
            await runtime.sleep(0.5)
            starts.add(node.leader(TOPIC, 0).log.start_offset)
        assert len(starts) <= 4
        await runtime.sleep(15)
        assert 3 <= len(segments(store, node)) <= 4


@in_simulation
async def test_changed_configs_are_followed() -> None:
    store = ScriptedStore()
    node = await started(store, retention_settings())
    async with upkeep(node, retention_settings()):
        await send(node, ["a" * 500])
        await runtime.sleep(100)
        assert len(segments(store, node)) == 1
        await node.topics.set_configs(TOPIC, {"retention.ms": "1000"})
        await runtime.sleep(5)
        assert segments(store, node) == []


@in_simulation
async def test_an_internal_topic_keeps_what_its_state_needs_and_no_more() -> None:
    store = ScriptedStore()
    node = await Node.start(store, retention_settings(), node_id=1, probe=False)
    topic = await node.topics.create("__consumer_offsets", 1, {"retention.ms": "1"})
    async with upkeep(node, retention_settings()):
        for at in range(6):
            batch = batch_of([f"{at}" * 500], timestamp=1)
            await node.leader(topic.name, 0).append(batch).commit.wait()
            await runtime.sleep(2)
        log = node.leader("__consumer_offsets", 0).log
        await runtime.sleep(30)
        keys = store.listed(segment_prefix(topic.name, topic.id_bytes, 0))
        assert log.tiered_offset == 6
        assert len([key for key in keys if key.endswith(".kfs")]) == 2
        assert log.start_offset == log.state_floor == 4


@in_simulation
async def test_a_deleted_topic_is_purged_in_the_background() -> None:
    """Soon, and not when what is doomed is collected."""
    store = ScriptedStore()
    settings = dataclasses.replace(
        retention_settings(),
        cluster=ClusterSettings(purge_delay_ms=60_000),
        maintenance=MaintenanceSettings(gc_interval_ms=3_600_000),
    )
    node = await started(store, settings)
    await send(node, ["a" * 500])
    async with upkeep(node, settings):
        await runtime.sleep(1)
        prefix = topic_prefix(TOPIC, topic_of(node).id_bytes)
        assert store.listed(prefix) != []
        await node.topics.delete(TOPIC)
        await runtime.sleep(2)
        assert store.listed(prefix) == []
        assert node.cluster.state.deleted
        await runtime.sleep(65)
        assert node.cluster.state.deleted == {}


# --- the end


@in_simulation
async def test_an_idle_process_notices_that_its_node_was_started_again() -> None:
    store = ScriptedStore()
    first = await started(store)
    async with upkeep(first) as told:
        second = await Node.start(store, small_settings(), node_id=1)
        await runtime.sleep(6)
        assert [type(error) for error in told] == [FencedError]
        assert "node 1 was started again" in str(told[0])
        assert first.ended is told[0]
        assert first.led.partitions == {}
        with pytest.raises(FencedError):
            first.leader(TOPIC, 0)
        await second.takeover.lead()
        assert await send(second, ["b"]) == 0
        await second.abort()


@in_simulation
async def test_an_idle_process_notices_that_its_stream_was_sealed() -> None:
    store = ScriptedStore()
    first = await started(store)
    log = first.leader(TOPIC, 0).log
    async with upkeep(first) as told:
        await runtime.sleep(20)
        other = await successor(store)
        await runtime.sleep(11)
        assert [type(error) for error in told] == [FencedError]
        assert "node 2 has taken its place" in str(told[0])
        assert isinstance(log.closed, FencedError)
        await other.abort()


@in_simulation
async def test_a_process_that_is_fenced_by_a_commit_says_so_too() -> None:
    store = ScriptedStore()
    first = await started(store)
    async with upkeep(first) as told:
        other = await successor(store)
        with pytest.raises(FencedError):
            await send(first, ["a"])
        assert len(told) == 1
        await runtime.sleep(30)
        assert len(told) == 1
        await other.abort()


@in_simulation
async def test_closing_on_purpose_is_no_end_to_tell() -> None:
    node = await started(ScriptedStore())
    async with upkeep(node) as told:
        await node.close()
    assert told == []


# --- failures


@in_simulation
async def test_a_failure_is_told_once_tried_again_and_keeps_nobody_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = ScriptedStore()
    node = await started(store, partitions=3)
    bad = segment_prefix(TOPIC, topic_of(node).id_bytes, 0)
    store.when("create", lambda key: key.startswith(bad), refuse(StoreFailedError), times=None)
    with caplog.at_level(logging.INFO, logger="neve"):
        async with upkeep(node):
            for partition in range(3):
                await send(node, ["a" * 500], partition)
            await runtime.sleep(600)
            assert [len(segments(store, node, at)) for at in range(3)] == [0, 1, 1]
            told = [record.getMessage() for record in caplog.records]
            assert len(told) == 1
            assert told[0].startswith("tiering t-0 failed and will be retried: ")
            tries = [call for call in store.calls if call.key.startswith(bad)]
            assert 5 < len(tries) < 60, "with growing pauses"
            store.scripts.clear()
            await runtime.sleep(70)
            assert len(segments(store, node, 0)) == 1
    assert caplog.records[-1].getMessage() == "tiering t-0 works again"


@in_simulation
async def test_a_mistake_ends_no_loop(caplog: pytest.LogCaptureFixture) -> None:
    store = ScriptedStore()
    node = await started(store)

    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    store.when("create", lambda key: key.endswith(".kfs"), broken)  # type: ignore[arg-type]
    store.when("list", cluster_log().checkpoints, broken)  # type: ignore[arg-type]
    async with upkeep(node):
        await send(node, ["a" * 500])
        await runtime.sleep(30)
        assert len(segments(store, node)) == 1
        assert len([row for row in caplog.records if row.exc_info]) == 2
        other = await Node.start(store, small_settings(), node_id=1)
        await runtime.sleep(6)
        assert node.ended is not None
        await other.abort()


@in_simulation
async def test_partitions_that_could_not_be_led_at_first_are_led_later() -> None:
    store = ScriptedStore()
    node = await started(store)
    await node.cluster.create_topic("unled", 2)
    async with upkeep(node):
        await runtime.sleep(2)
        assert len(node.led.partitions) == 3


@in_simulation
async def test_a_hanging_partition_keeps_upkeep_from_nothing_else() -> None:
    store = ScriptedStore()
    node = await started(store, partitions=2)
    bad = segment_prefix(TOPIC, topic_of(node).id_bytes, 0)
    store.when("create", lambda key: key.startswith(bad), hold(asyncio.Event()), times=None)
    async with upkeep(node):
        for _ in range(3):
            await send(node, ["a" * 500], 0)
            await send(node, ["b" * 500], 1)
            await runtime.sleep(1)
        assert len(segments(store, node, 1)) == 3


# --- all of it at once, on a bad store

BUSY = Settings(
    segment=SegmentSettings(bytes=2_000, ms=2_000, checkpoint_numbers=4, index_interval=10),
    cluster=ClusterSettings(poll_ms=500, purge_delay_ms=20_000),
    maintenance=MaintenanceSettings(interval_ms=100, gc_interval_ms=500, retention_check_ms=500),
    wal=dataclasses.replace(small_settings().wal, tail_objects=12),
    cache=dataclasses.replace(small_settings().cache, tail_bytes=4_000),
)
FAULTS = Faults(fails=0.03, slow_down=0.03, fails_after_effect=0.03, lands_late=0.01)


async def _produce(node: Node, partition: int, told: list[str]) -> None:
    for at in range(120):
        value = f"{partition}-{at}-" + "x" * 100
        await node.writer.room()
        await send(node, [value], partition)
        told.append(value)
        await runtime.sleep(runtime.chance().uniform(0, 0.1))


async def _life(store: Store, told: dict[int, list[str]]) -> None:
    node = await Node.start(store, BUSY, node_id=1, probe=False)
    await node.takeover.lead()
    running = BackgroundLoops(node, BUSY)
    running.start()
    try:
        if node.cluster.state.topic(TOPIC) is None:
            await node.topics.create(TOPIC, 3)
        await runtime.gather(*(_produce(node, at, told[at]) for at in range(3)))
    finally:
        await running.close()
        await node.abort()


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_with_all_of_it_going_on_at_once(seed: int) -> None:
    async def main() -> None:
        raw = MemoryStore()
        told: dict[int, list[str]] = {at: [] for at in range(3)}
        for _ in range(2):
            faulty = FaultyStore(raw, FAULTS)
            await _life(stack(faulty, BUSY.store).store, told)
            await faulty.settle()
        for partition, values in told.items():
            assert await values_of(raw, partition) == values
        objects = [row.key for row in await raw.list("topics/")]
        assert len([key for key in objects if key.endswith(".kfs")]) > 10

    runtime.simulate(main(), seed=seed)


# --- failures that must not cost more than themselves


LOOKS_MAX = 600


def test_a_roll_up_that_failed_once_is_tried_again_without_a_rush() -> None:
    looks = 0

    async def main() -> None:
        nonlocal looks
        # A segment is made of most that has come: the roll-up is cheap then, and made early.
        settings = small_settings(segment_bytes=60_000, tail_bytes=100_000)
        store = ScriptedStore()
        node = await started(store, settings)
        checkpoints = wal_stream(node.incarnation).checkpoints
        store.when("create", lambda key: key.startswith(checkpoints), refuse(UnavailableError))
        wait = node.queues.wait

        async def counted(seconds: float) -> None:
            nonlocal looks
            looks += 1
            if looks > LOOKS_MAX:
                await runtime.sleep(1)  # in a rush no time would pass
            await wait(seconds)

        node.queues.wait = counted  # type: ignore[method-assign]
        async with upkeep(node, settings):
            for _ in range(70):
                await send(node, ["x" * 1_000])
            await runtime.sleep(60)
            assert store.scripts[0].times == 0, "the roll-up has failed"

    runtime.simulate(main(), seed=1)
    assert looks < LOOKS_MAX


@in_simulation
async def test_a_stream_that_was_retired_unswept_is_not_damaged() -> None:
    store = ScriptedStore()
    settings = small_settings(segment_ms=1_000)
    old = await started(store, settings)
    await send(old, ["a"])
    await old.abort()
    prefix = wal_stream(old.incarnation).prefix
    store.when("delete", lambda key: key.startswith(prefix), refuse(UnavailableError))
    node = await successor(store, settings, node_id=1)
    assert old.incarnation in node.rollups.unswept
    await runtime.sleep(2)
    assert await node.maintenance.tier_due() == []
    await node.maintenance.record_tiered_streams()
    assert await retire_streams(store, node.cluster) > 0
    await node.rollups.sweep()
    assert node.rollups.unswept == {}
    await node.abort()


@in_simulation
async def test_a_stream_that_cannot_be_swept_keeps_no_other_from_it() -> None:
    store = ScriptedStore()
    first = await started(store)
    await send(first, ["a"])
    await first.abort()
    checkpoints = wal_stream(first.incarnation).checkpoints

    def is_first(key: str) -> bool:
        return key.startswith(checkpoints)

    store.when("create", is_first, refuse(UnavailableError), times=None)
    second = await successor(store, node_id=1)
    await send(second, ["b"])
    await second.abort()
    later = wal_stream(second.incarnation).checkpoints
    store.when("create", lambda key: key.startswith(later), refuse(UnavailableError))
    third = await successor(store, node_id=1)
    assert sorted(third.rollups.unswept) == [first.incarnation, second.incarnation]
    store.scripts.clear()
    lost = wal_stream(first.incarnation).number(0)
    store.bucket.objects.pop(lost)
    store.bucket.keys.remove(lost)
    for _ in range(2):
        with pytest.raises(NeveError, match=f"{first.incarnation:020d}"):
            await third.rollups.sweep()
        assert [*third.rollups.unswept] == [first.incarnation], "what is lost is not hidden"
    await third.abort()


@in_simulation
async def test_what_a_successor_moved_is_no_damage_to_a_process_that_wakes_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = ScriptedStore()
    settings = small_settings(segment_ms=1_000)
    old = await started(store, settings)
    for value in "abc":
        await send(old, [value])
    await old.rollups.roll_up()
    await send(old, ["d"])
    leader = old.leader(TOPIC, 0)
    new = await successor(store, settings)
    await runtime.sleep(2)
    await new.run_due_work()
    await new.collect()
    old.own_stream._tail = None  # it has to read its stream again
    with pytest.raises(FencedError):
        await old.rollups.resolve(old.incarnation)
    async with upkeep(old, settings):
        old.queues.tiering.set_if_earlier(leader, runtime.monotonic())
        await runtime.sleep(20)
        assert old.ended is not None
    assert "damaged" not in caplog.text
    await new.abort()
