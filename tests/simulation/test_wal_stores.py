"""The WAL in stores of its own, one per rack: far away, down for a while, and gone for good."""

from __future__ import annotations

import dataclasses

import pytest

from neve import runtime
from neve.bucket.abandon import PartitionLoss, abandon_wal, plan_abandonment
from neve.bucket.async_bucket import AsyncBucket
from neve.bucket.verify import Options, verify
from neve.bucket.verify.findings import Severity
from neve.cluster.log import ClusterLog
from neve.errors import InvalidError
from neve.protocol.codes import ErrorCode
from neve.settings import Settings
from neve.store.url import stack
from simulation.cluster_network import TOPIC
from simulation.truth import read_all
from simulation.wal_store_scene import BROKERS, PARTITIONS, RETRIABLE, Scene, play

DOWN_SECONDS = 60.0
# The time-out of a client's request, and some more.
CALL_SECONDS_MAX = 1.0
FAILOVER_SECONDS_MAX = 12.0


def test_brokers_write_to_the_store_of_their_rack_and_read_from_all() -> None:
    async def story(scene: Scene) -> None:
        await scene.fill()
        bucket = scene.cluster.bucket
        assert not [key for key in bucket.keys if key.startswith("wal/")]
        state = await scene.state()
        for row in state.brokers.values():
            assert row.wal_store is not None
            assert row.wal_store.name == row.rack
            prefix = f"wal/{row.incarnation:020d}/"
            for rack, others in scene.cluster.wal_buckets.items():
                assert any(key.startswith(prefix) for key in others.keys) == (rack == row.rack)
        # Its successors read its stream from the store of another rack.
        mine = await scene.led_by(1)
        scene.kill(1)
        await scene.until(lambda: 1 not in scene.cluster.running)
        assert await scene.until_served(mine) < FAILOVER_SECONDS_MAX
        for partition in range(PARTITIONS):
            found = await scene.values(partition)
            assert list(found.values()) == scene.acknowledged[partition]
        _, logs = await read_all(scene.store, TOPIC)
        for partition, log in logs.items():
            values = [log[offset].decode() for offset in sorted(log)]
            assert values == scene.acknowledged[partition]

    play(story)


def test_partitions_of_a_dead_leader_wait_for_its_wal_store_and_others_do_not_notice() -> None:
    async def story(scene: Scene) -> None:
        await scene.fill()
        mine = await scene.led_by(1)
        others = [number for number in range(PARTITIONS) if number not in mine]
        assert mine
        before = {node_id: scene.broker(node_id).node.incarnation for node_id in (2, 3)}
        scene.cut(1)
        scene.kill(1)
        await scene.until(lambda: 1 not in scene.cluster.running)
        ends_at = runtime.monotonic() + DOWN_SECONDS
        asked = 0
        while runtime.monotonic() < ends_at:
            asked += 1
            for partition in mine:
                assert (await scene.produce(partition, "lost"))[0] in RETRIABLE
                assert (await scene.latest(partition))[0] in RETRIABLE
                assert (await scene.fetch(partition, 0))[0] in RETRIABLE
            for partition in others:
                began = runtime.monotonic()
                code, _ = await scene.produce(partition, f"{partition}-while-down-{asked}")
                assert code == ErrorCode.NONE
                assert runtime.monotonic() - began < CALL_SECONDS_MAX
            await runtime.sleep(0.5)
        assert asked >= 5
        # The brokers whose stores answer were neither expired nor started again.
        assert before == {node: scene.broker(node).node.incarnation for node in (2, 3)}
        scene.heal(1)
        await scene.until_served(mine)
        for partition in range(PARTITIONS):
            assert list((await scene.values(partition)).values()) == scene.acknowledged[partition]
        code, offset = await scene.produce(mine[0], "after")
        assert (code, offset) == (ErrorCode.NONE, len(scene.acknowledged[mine[0]]) - 1)

    play(story)


def test_a_broker_whose_own_wal_store_is_down_is_not_declared_dead_for_it() -> None:
    async def story(scene: Scene) -> None:
        await scene.fill()
        mine = await scene.led_by(1)
        before = {node_id: scene.broker(node_id).node.incarnation for node_id in BROKERS}
        scene.cut(1)
        ends_at = runtime.monotonic() + DOWN_SECONDS
        while runtime.monotonic() < ends_at:
            for partition in mine:
                assert (await scene.latest(partition))[0] in RETRIABLE
            # Other changes of the cluster still reach it.
            await runtime.sleep(1)
        code, _ = await scene.produce(mine[0], "refused")
        assert code in RETRIABLE
        log = ClusterLog(scene.store)
        await log.refresh()
        await log.create_topic("later", 1)
        position = log.view.position
        own = scene.broker(1).node.cluster
        await scene.until(lambda: own.view.position >= position, seconds=10)
        scene.heal(1)
        await scene.until_served(mine)
        assert before == {node: scene.broker(node).node.incarnation for node in BROKERS}
        for partition in mine:
            found = list((await scene.values(partition)).values())
            # What timed out may have been stored.
            assert [row for row in found if row != "refused"] == scene.acknowledged[partition]

    play(story)
