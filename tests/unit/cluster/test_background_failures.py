"""Background loops on a store that fails, and the end of their incarnation."""

from __future__ import annotations

import asyncio
import dataclasses
import logging

import pytest

from neve import runtime
from neve.cluster.background_loops import BackgroundLoops
from neve.cluster.log import ReplacedError
from neve.cluster.node import Node
from neve.cluster.streams import retire_streams
from neve.errors import FencedError, NeveError, StoreFailedError, UnavailableError
from neve.log.keys import cluster_log, segment_prefix, wal_stream
from neve.settings import ClusterSettings, MaintenanceSettings, SegmentSettings, Settings
from neve.store.faults import Faults, FaultyStore
from neve.store.memory import MemoryStore
from neve.store.port import Store
from neve.store.url import stack
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
from support.scripted_store import ScriptedStore, hold, in_simulation, refuse

# --- the end


@in_simulation
async def test_an_idle_process_notices_that_its_node_was_started_again(
    store: ScriptedStore,
) -> None:
    first = await started(store)
    async with upkeep(first) as told:
        second = await Node.start(store, small_settings(), node_id=1)
        await runtime.sleep(6)
        assert [type(error) for error in told] == [ReplacedError]
        assert "node 1 was started again" in str(told[0])
        assert first.ended is told[0]
        assert first.led.partitions == {}
        with pytest.raises(FencedError):
            first.leader(TOPIC, 0)
        await take_over(second)
        assert await send(second, ["b"]) == 0
        await second.abort()


@in_simulation
async def test_an_idle_process_notices_that_its_stream_was_sealed(store: ScriptedStore) -> None:
    first = await started(store)
    log = first.leader(TOPIC, 0).log
    async with upkeep(first) as told:
        await runtime.sleep(20)
        other = await successor(store)
        await runtime.sleep(11)
        assert [type(error) for error in told] == [FencedError]
        assert "other brokers have declared it dead" in str(told[0])
        assert isinstance(log.closed, FencedError)
        await other.abort()


@in_simulation
async def test_a_process_that_is_fenced_by_a_commit_says_so_too(store: ScriptedStore) -> None:
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
    caplog: pytest.LogCaptureFixture, store: ScriptedStore
) -> None:
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
async def test_a_mistake_ends_no_loop(
    caplog: pytest.LogCaptureFixture, store: ScriptedStore
) -> None:
    node = await started(store)

    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    store.when("create", lambda key: key.endswith(".kfs"), broken)  # type: ignore[arg-type]
    next_number = cluster_log().number(node.cluster.view.position)
    store.when("get_range", next_number, broken)  # type: ignore[arg-type]
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
async def test_partitions_that_could_not_be_led_at_first_are_led_later(
    store: ScriptedStore,
) -> None:
    node = await started(store)
    await node.cluster.create_topic("unled", 2)
    async with upkeep(node):
        await runtime.sleep(2)
        assert len(node.led.partitions) == 3


@in_simulation
async def test_a_hanging_partition_keeps_upkeep_from_nothing_else(store: ScriptedStore) -> None:
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
    await take_over(node)
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
async def test_a_stream_that_was_retired_unswept_is_not_damaged(store: ScriptedStore) -> None:
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
async def test_a_stream_that_cannot_be_swept_keeps_no_other_from_it(store: ScriptedStore) -> None:
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
    caplog: pytest.LogCaptureFixture, store: ScriptedStore
) -> None:
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
