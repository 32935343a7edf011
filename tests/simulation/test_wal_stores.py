"""The WAL in stores of its own, one per rack: far away, down for a while, and gone for good."""

from __future__ import annotations

import dataclasses

import pytest

from neve import runtime
from neve.bucket.abandon import OFFSETS_LEAPT, PartitionLoss, abandon_wal, plan_abandonment
from neve.bucket.async_bucket import AsyncBucket
from neve.bucket.verify import Options, verify
from neve.bucket.verify.context import manifest_of
from neve.bucket.verify.findings import PartitionRef, Severity
from neve.cluster.log import ClusterLog
from neve.errors import InvalidError
from neve.log.wal.reader import WalReader
from neve.protocol.codes import ErrorCode
from neve.settings import Settings
from neve.store.memory import MemoryStore
from neve.store.url import stack
from simulation.network_clients import TOPIC
from simulation.truth import read_all
from simulation.wal_store_scene import BROKERS, PARTITIONS, PLAN, RETRIABLE, Scene, play

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
        mine = await scene.led_by(3)
        before = {node_id: scene.broker(node_id).node.incarnation for node_id in BROKERS}
        scene.cut(3)
        ends_at = runtime.monotonic() + DOWN_SECONDS
        while runtime.monotonic() < ends_at:
            for partition in mine:
                assert (await scene.latest(partition))[0] in RETRIABLE
            await runtime.sleep(1)
        code, _ = await scene.produce(mine[0], "refused")
        assert code in RETRIABLE
        # Changes of the cluster still reach it. (The first broker, as janitor, reads them anyway.)
        log = ClusterLog(scene.store)
        await log.refresh()
        await log.create_topic("later", 1)
        position = log.view.position
        own = scene.broker(3).node.cluster
        await scene.until(lambda: own.view.position >= position, seconds=10)
        scene.heal(3)
        await scene.until_served(mine)
        assert before == {node: scene.broker(node).node.incarnation for node in BROKERS}
        for partition in mine:
            found = list((await scene.values(partition)).values())
            # What timed out may have been stored.
            assert [row for row in found if row != "refused"] == scene.acknowledged[partition]

    play(story)


def test_a_leader_elsewhere_whose_older_records_cannot_be_reached_serves_the_newer_ones() -> None:
    settings = dataclasses.replace(
        PLAN.settings, cache=dataclasses.replace(PLAN.settings.cache, tail_bytes=0)
    )

    async def story(scene: Scene) -> None:
        await scene.fill(4)
        number, *_ = await scene.led_by(1)
        cluster = ClusterLog(scene.store)
        await cluster.refresh()
        await cluster.set_draining(1, draining=True)
        await scene.until(lambda: not scene.broker(1).node.led.partitions)
        await scene.until_served([number])
        scene.cut(1)
        for _ in range(5):
            code, values = await scene.fetch(number, 0, max_wait_ms=5_000)
            assert code in RETRIABLE, values
            code, offset = await scene.produce(number, "newer")
            assert code == ErrorCode.NONE
            assert (await scene.fetch(number, offset))[1] == {offset: "newer"}
            assert await scene.latest(number) == (ErrorCode.NONE, offset + 1)
            await runtime.sleep(4)
        scene.heal(1)
        assert list((await scene.values(number)).values()) == scene.acknowledged[number]

    play(story, plan=dataclasses.replace(PLAN, settings=settings))


# -- gone for good ---------------------------------------------------------------------------------


async def tier(scene: Scene, partition: int) -> int:
    """Tier a partition at its leader. Returns the offset up to which it is in segments."""
    for node_id, broker in scene.cluster.running.items():
        topic = broker.node.cluster.state.topic(TOPIC)
        assert topic is not None
        leader = broker.node.leader_of(topic.id_bytes, partition)
        if leader is not None:
            await scene.network.host(f"b{node_id}").run(leader.tier())
            return leader.log.tiered_offset
    raise AssertionError(f"no broker leads {partition}")


async def check_readers(scene: Scene, expected: dict[int, dict[int, str]], lost: int) -> None:
    """Readers without a broker find what is left, and verify reports a loss and no damage."""
    bucket = await AsyncBucket.over(stack(scene.store, Settings().store), settings=Settings())
    found: dict[int, dict[int, str]] = {number: {} for number in range(PARTITIONS)}
    async for record in bucket.read(TOPIC):
        found[record.partition][record.offset] = (record.value or b"").decode()
    assert found == expected
    assert bucket.skipped == lost
    report = await verify(scene.store, Options(probe=False, settle_seconds=0))
    serious = (Severity.DAMAGE, Severity.GAP, Severity.RULE, Severity.ORPHAN)
    assert [row for row in report.findings if row.severity in serious] == []


def test_what_a_lost_wal_store_held_is_listed_and_given_up() -> None:
    async def story(scene: Scene) -> None:
        await scene.fill(4)
        mine = await scene.led_by(1)
        assert len(mine) == 2
        tiered, untiered = mine
        assert await tier(scene, tiered) == 4
        code, offset = await scene.produce(tiered, "behind the segment")
        assert (code, offset) == (ErrorCode.NONE, 4)
        epochs = {number: (await scene.topic()).partitions[number].epoch for number in mine}
        scene.destroy(1)
        scene.kill(1)
        await scene.until(lambda: 1 not in scene.cluster.running)
        await runtime.sleep(30)  # it is declared dead, and its partitions wait
        for number in mine:
            assert (await scene.latest(number))[0] in RETRIABLE

        # Without --accept-loss nothing changes; the list is exact.
        before = dict(scene.cluster.bucket.objects)
        with pytest.raises(InvalidError, match="--accept-loss"):
            await abandon_wal(scene.store, "r1", accept_loss=False)
        planned = await plan_abandonment(scene.store, "r1")
        losses = {loss.partition: loss for loss in planned.losses}
        assert losses == {
            tiered: PartitionLoss(TOPIC, tiered, (), 4),
            untiered: PartitionLoss(TOPIC, untiered, (), 0),
        }
        assert not planned.done
        assert {key: row for key, row in scene.cluster.bucket.objects.items() if key in before} == (
            before
        )
        with pytest.raises(InvalidError, match="no stream of this cluster lies in"):
            await plan_abandonment(scene.store, "r9")

        done = await abandon_wal(scene.store, "r1", accept_loss=True)
        assert dataclasses.replace(done, done=False) == planned
        await scene.until_served(mine)
        topic = await scene.topic()
        for number, start in ((tiered, 4 + OFFSETS_LEAPT), (untiered, OFFSETS_LEAPT)):
            assert topic.partitions[number].epoch > epochs[number]
            code, offset = await scene.produce(number, "new")
            assert (code, offset) == (ErrorCode.NONE, start)
        expected = {
            number: dict(enumerate(scene.acknowledged[number]))
            for number in range(PARTITIONS)
            if number not in mine
        }
        expected[tiered] = dict(enumerate(scene.acknowledged[tiered][:4]))
        expected[tiered][4 + OFFSETS_LEAPT] = "new"
        expected[untiered] = {OFFSETS_LEAPT: "new"}
        for number, values in expected.items():
            assert await scene.values(number) == values
        await check_readers(scene, expected, lost=0)
        # A second time there is nothing left to give up.
        with pytest.raises(InvalidError, match="no stream of this cluster lies in"):
            await abandon_wal(scene.store, "r1", accept_loss=True)

    play(story)


@pytest.mark.parametrize("writes_before", [False, True])
def test_offsets_are_not_assigned_again_where_a_later_leader_shows_the_end(
    writes_before: bool,
) -> None:
    async def story(scene: Scene) -> None:
        await scene.fill(4)
        number, *_ = await scene.led_by(1)
        cluster = ClusterLog(scene.store)
        await cluster.refresh()
        await cluster.set_draining(1, draining=True)
        await scene.until(lambda: not scene.broker(1).node.led.partitions)
        await scene.until_served([number])
        if writes_before:
            assert await scene.produce(number, "at the next leader") == (ErrorCode.NONE, 4)
        scene.destroy(1)
        scene.kill(1)
        await scene.until(lambda: 1 not in scene.cluster.running)
        planned = await plan_abandonment(scene.store, "r1")
        losses = {loss.partition: loss for loss in planned.losses}
        assert losses[number] == PartitionLoss(TOPIC, number, ((0, 4),), None)
        await abandon_wal(scene.store, "r1", accept_loss=True)
        await scene.until_served([number])
        code, offset = await scene.produce(number, "after")
        assert (code, offset) == (ErrorCode.NONE, 5 if writes_before else 4)
        expected = {at: dict(enumerate(scene.acknowledged[at])) for at in range(PARTITIONS)}
        for loss in planned.losses:
            for at in range(4):
                del expected[loss.partition][at]
        await runtime.sleep(5)  # the leader had the lost records in memory
        assert await scene.values(number) == expected[number]
        # Also to a leader that has to recover the partition, and to one that tiers it.
        assert await tier(scene, number) == max(expected[number]) + 1
        assert await scene.produce(number, "tail") == (ErrorCode.NONE, offset + 1)
        expected[number][offset + 1] = "tail"
        await check_readers(scene, expected, lost=4 * len(planned.losses))

    play(story)


def test_a_leader_that_has_to_recover_does_not_assign_given_up_offsets_again() -> None:
    async def story(scene: Scene) -> None:
        await scene.fill(4)
        number, *_ = await scene.led_by(1)
        cluster = ClusterLog(scene.store)
        await cluster.refresh()
        await cluster.set_draining(1, draining=True)
        await scene.until(lambda: not scene.broker(1).node.led.partitions)
        await scene.until_served([number])
        leader = 2 if number in await scene.led_by(2) else 3
        scene.destroy(1)
        for node_id in (1, leader):
            scene.kill(node_id)
        await runtime.sleep(30)
        assert (await scene.latest(number))[0] in RETRIABLE
        await abandon_wal(scene.store, "r1", accept_loss=True)
        await scene.until_served([number])
        assert await scene.latest(number) == (ErrorCode.NONE, 4)
        assert await scene.produce(number, "after") == (ErrorCode.NONE, 4)
        assert await scene.fetch(number, 0) == (ErrorCode.NONE, {4: "after"})
        assert await tier(scene, number) == 5
        assert await scene.fetch(number, 0) == (ErrorCode.NONE, {4: "after"})

    play(story)


def test_what_a_consumer_has_seen_does_not_change_where_the_end_is_not_known() -> None:
    async def story(scene: Scene) -> None:
        await scene.fill(4)
        number, *_ = await scene.led_by(1)
        assert await tier(scene, number) == 4
        for at in range(4, 7):
            assert await scene.produce(number, f"seen-{at}") == (ErrorCode.NONE, at)
        seen = await scene.values(number)
        assert sorted(seen) == list(range(7))
        scene.destroy(1)
        scene.kill(1)
        await scene.until(lambda: 1 not in scene.cluster.running)
        await runtime.sleep(30)
        planned = await plan_abandonment(scene.store, "r1")
        # A run that is interrupted before the cluster log has it is repeated.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ClusterLog, "abandon_wal", _interrupted)
            with pytest.raises(InterruptedError):
                await abandon_wal(scene.store, "r1", accept_loss=True)
        assert await plan_abandonment(scene.store, "r1") == planned
        done = await abandon_wal(scene.store, "r1", accept_loss=True)
        assert dataclasses.replace(done, done=False) == planned
        await scene.until_served([number])
        behind = 4 + OFFSETS_LEAPT
        assert await scene.latest(number) == (ErrorCode.NONE, behind)
        # The consumer goes on where it was, and waits.
        assert await scene.fetch(number, 7) == (ErrorCode.NONE, {})
        written = {}
        for at in range(5):
            code, offset = await scene.produce(number, f"new-{at}")
            assert (code, offset) == (ErrorCode.NONE, behind + at)
            written[offset] = f"new-{at}"
        assert await scene.fetch(number, 7) == (ErrorCode.NONE, written)
        found = await scene.values(number)
        assert all(found.get(offset, value) == value for offset, value in seen.items())
        assert {key: value for key, value in found.items() if key >= 4} == written
        # Of segments too, of which none spans the leap.
        assert await tier(scene, number) == behind + 5
        assert await scene.fetch(number, 5) == (ErrorCode.NONE, written)

    play(story)


async def _interrupted(*_: object) -> None:
    raise InterruptedError


def test_the_end_is_known_from_a_later_leader_that_has_written_nothing() -> None:
    async def story(scene: Scene) -> None:
        await scene.fill(4)
        number, *_ = mine = await scene.led_by(1)
        scene.kill(1)
        await scene.until(lambda: 1 not in scene.cluster.running)
        await scene.until_served(mine)
        await runtime.sleep(5)
        scene.destroy(1)
        planned = await plan_abandonment(scene.store, "r1")
        losses = {loss.partition: loss for loss in planned.losses}
        assert losses == {at: PartitionLoss(TOPIC, at, ((0, 4),), None) for at in mine}
        await abandon_wal(scene.store, "r1", accept_loss=True)
        # Its leader has served all along, and goes on above what was lost.
        assert await scene.produce(number, "after") == (ErrorCode.NONE, 4)
        await runtime.sleep(10)
        assert await scene.values(number) == {4: "after"}
        assert not [key for key in scene.cluster.bucket.keys if key.startswith("meta/stream-ends")]

    play(story)


def test_a_segment_ends_before_a_leap() -> None:
    async def story(scene: Scene) -> None:
        await scene.fill(4)
        number, *_ = await scene.led_by(2)
        cluster = ClusterLog(scene.store)
        await cluster.refresh()
        await cluster.set_draining(2, draining=True)
        await scene.until(lambda: not scene.broker(2).node.led.partitions)
        await scene.until_served([number])
        leader = 1 if number in await scene.led_by(1) else 3
        assert await scene.produce(number, "lost") == (ErrorCode.NONE, 4)
        scene.destroy(leader)
        scene.kill(leader)
        await runtime.sleep(30)
        await abandon_wal(scene.store, f"r{leader}", accept_loss=True)
        await scene.until_served([number])
        behind = 4 + OFFSETS_LEAPT
        assert await scene.produce(number, "new") == (ErrorCode.NONE, behind)
        assert await tier(scene, number) == 4
        assert await tier(scene, number) == behind + 1
        expected = dict(enumerate(scene.acknowledged[number][:4])) | {behind: "new"}
        assert await scene.values(number) == expected
        topic = await scene.topic()
        place = PartitionRef(TOPIC, topic.topic_id, number)
        manifest = manifest_of(scene.store, place)
        await manifest.refresh()
        rows = [(row.base, row.last) for row in await manifest.segments()]
        assert rows == [(0, 3), (behind, behind)]

    play(story)


def test_a_live_broker_whose_wal_store_is_given_up_is_ended_and_what_it_led_moves() -> None:
    async def story(scene: Scene) -> None:
        await scene.fill()
        mine = await scene.led_by(1)
        incarnation = scene.broker(1).node.incarnation
        scene.destroy(1)
        await runtime.sleep(20)
        planned = await plan_abandonment(scene.store, "r1")
        assert planned.live_nodes == (1,)
        # It has noted in the bucket which offsets it has assigned.
        losses = {loss.partition: loss for loss in planned.losses}
        assert losses == {at: PartitionLoss(TOPIC, at, ((0, 3),), None) for at in mine}
        await abandon_wal(scene.store, "r1", accept_loss=True)
        assert not [key for key in scene.cluster.bucket.keys if key.startswith("meta/stream-ends")]
        await scene.until_served(mine)
        state = await scene.state()
        assert incarnation not in state.brokers
        assert not [key for key, row in state.wal_stores().items() if row.name == "r1"]
        for number in mine:
            assert await scene.produce(number, "new") == (ErrorCode.NONE, 3)
            assert await scene.fetch(number, 0) == (ErrorCode.NONE, {3: "new"})
        # With a new store of that name, it joins again.
        scene.heal(1)
        await scene.until(lambda: 1 in scene.cluster.running)
        state = await scene.state()
        own = state.brokers[scene.broker(1).node.incarnation].wal_store
        assert own is not None
        assert own.name == "r1"
        assert own.store_id != planned.store.store_id

    play(story)


def test_a_wal_store_that_was_emptied_is_not_taken_for_streams_that_ended() -> None:
    async def story(scene: Scene) -> None:
        await scene.fill()
        mine = await scene.led_by(1)
        scene.destroy(1)
        scene.heal(1)  # it answers, and has nothing
        scene.kill(1)
        await scene.until(lambda: 1 not in scene.cluster.running)
        await runtime.sleep(40)
        for number in mine:
            assert (await scene.latest(number))[0] in RETRIABLE
        # Nor does a broker begin a new stream there, while the old ones are needed.
        scene.cluster.down.discard(1)
        await runtime.sleep(20)
        assert 1 not in scene.cluster.running
        assert not scene.cluster.wal_buckets["r1"].keys
        await abandon_wal(scene.store, "r1", accept_loss=True)
        await scene.until(lambda: 1 in scene.cluster.running)
        await scene.until_served(mine)

    play(story)


def test_a_store_that_answers_after_all_is_sealed_and_shows_what_is_lost() -> None:
    async def story(scene: Scene) -> None:
        await scene.fill()
        mine = await scene.led_by(1)
        incarnation = scene.broker(1).node.incarnation
        done = await abandon_wal(scene.store, "r1", accept_loss=True)
        assert {loss.partition: loss for loss in done.losses} == {
            at: PartitionLoss(TOPIC, at, ((0, 3),), None) for at in mine
        }
        end = await WalReader(MemoryStore(scene.cluster.wal_buckets["r1"]), incarnation).end()
        assert end is not None
        assert not [key for key in scene.cluster.bucket.keys if key.startswith("wal/")]
        await scene.until_served(mine)
        for number in mine:
            assert await scene.produce(number, "new") == (ErrorCode.NONE, 3)

    play(story)
