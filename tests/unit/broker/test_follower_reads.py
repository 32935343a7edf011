"""Consumers read from a follower in their rack what they would read from the leader."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from neve import runtime
from neve.broker.broker import Broker
from neve.broker.metrics.kafka_view import kafka_view
from neve.broker.metrics.replica_view import replica_view
from neve.cluster import replicas as replicas_module
from neve.cluster.peer_link import PeerError
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.list_offsets import LIST_OFFSETS
from neve.protocol.messages.metadata import METADATA
from neve.records.batch import walk
from neve.records.reference import decode_batch
from neve.serving.pages import scrape
from neve.settings import ClusterSettings, Settings
from support.node_world import batch_of, release, small_settings
from support.two_brokers import racked_brokers, refresh
from support.wire import Wire

RACKS = ("rack-a", "rack-b", "rack-c")
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
SECONDS_MAX = 15
FOLLOW = ClusterSettings(follow_ms=100, follow_lag_ms=5_000, followers=2)


def settings_of(**about: Any) -> Settings:
    return dataclasses.replace(small_settings(**about), cluster=FOLLOW)


SETTINGS = settings_of()


async def until(happened: Any) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not happened():
            await runtime.sleep(0.01)


def follows(follower: Broker, leader: Broker) -> bool:
    stream = follower.node.replication.streams.get(leader.node.incarnation)
    end = leader.node.writer.committed_end
    return stream is not None and stream.position is not None and stream.position >= end


async def caught_up(*followers: Broker, leader: Broker) -> None:
    await until(lambda: all(follows(each, leader) for each in followers))


async def recommended(leader: Broker, rack: str) -> None:
    """Wait until the leader sends consumers of a rack to a follower."""
    topic = leader.node.cluster.state.topic("t")
    assert topic is not None
    await until(lambda: leader.node.replication.recommended(rack, topic, 0) is not None)


async def produce(leader: Broker, *values: str, partition: int = 0) -> None:
    async with Wire.to(leader) as wire:
        answer = await wire.produce("t", bytes(batch_of(values)), partition=partition)
        assert answer.error_code == ErrorCode.NONE


def values_in(answer: Any) -> list[str]:
    data = bytes(answer.records or b"")
    return [
        bytes(record.value or b"").decode()
        for position, _ in walk(memoryview(data))
        for record in decode_batch(data, position)
    ]


async def fetch(broker: Broker, offset: int = 0, *, rack: str = "", **about: Any) -> Any:
    async with Wire.to(broker) as wire:
        return await wire.fetch("t", offset, rack=rack, **about)


async def read_all(broker: Broker, rack: str, count: int, offset: int = 0) -> list[str]:
    """Read on at one broker until that many records have come."""
    found: list[str] = []
    async with asyncio.timeout(SECONDS_MAX), Wire.to(broker) as wire:
        while len(found) < count:
            answer = await wire.fetch("t", offset + len(found), rack=rack, max_wait_ms=200)
            assert answer.error_code in (ErrorCode.NONE, NOT_LEADER), ErrorCode(answer.error_code)
            found += values_in(answer)
    return found


def numbered(first: int, end: int) -> list[str]:
    return [f"v{at}" for at in range(first, end)]


@contextlib.asynccontextmanager
async def paused(follower: Broker, leader: Broker) -> AsyncIterator[None]:
    """Meanwhile, a follower reads nothing of a leader's stream."""
    stream = follower.node.replication.streams[leader.node.incarnation]
    read_on = stream.read_on

    async def nothing() -> bool:
        return False

    stream.read_on = nothing  # type: ignore[method-assign]
    yield
    stream.read_on = read_on  # type: ignore[method-assign]


# --- the leader


async def test_a_leader_names_the_follower_in_the_rack_of_the_consumer() -> None:
    async with racked_brokers(RACKS, SETTINGS) as (one, two, three):
        await produce(one, "v0", "v1")
        for node_id, rack in ((2, "rack-b"), (3, "rack-c")):
            await recommended(one, rack)
            answer = await fetch(one, rack=rack)
            assert answer.error_code == ErrorCode.NONE
            assert (answer.preferred_read_replica, values_in(answer)) == (node_id, [])
            assert answer.high_watermark == 2
        for rack in ("rack-a", "rack-d", ""):
            answer = await fetch(one, rack=rack)
            assert (answer.preferred_read_replica, values_in(answer)) == (-1, ["v0", "v1"])
        beyond = await fetch(one, 3, rack="rack-b")
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "the leader alone can say that"
        del two, three


async def test_a_waiting_fetch_at_the_leader_returns_at_once_if_a_follower_is_nearer() -> None:
    async with racked_brokers(RACKS[:2], SETTINGS) as (one, _):
        await recommended(one, "rack-b")
        began = runtime.monotonic()
        answer = await fetch(one, rack="rack-b", max_wait_ms=10_000)
        assert answer.preferred_read_replica == 2
        assert runtime.monotonic() - began < 5


async def test_a_follower_that_follows_no_more_is_not_named() -> None:
    async with racked_brokers(RACKS[:2], SETTINGS) as (one, two):
        await recommended(one, "rack-b")
        await two.node.replication.close()
        topic = one.node.cluster.state.topic("t")
        assert topic is not None
        await until(lambda: one.node.replication.recommended("rack-b", topic, 0) is None)
        assert (await fetch(one, rack="rack-b")).preferred_read_replica == -1


# --- a follower


async def test_a_follower_serves_the_consumers_of_its_rack_only() -> None:
    async with racked_brokers(RACKS, SETTINGS) as (one, two, _):
        await produce(one, "v0", "v1")
        await caught_up(two, leader=one)
        answer = await fetch(two, rack="rack-b")
        assert (answer.error_code, values_in(answer)) == (ErrorCode.NONE, ["v0", "v1"])
        assert (answer.high_watermark, answer.log_start_offset) == (2, 0)
        for rack in ("", "rack-a"):
            assert (await fetch(two, rack=rack)).error_code == NOT_LEADER


async def test_a_fetch_waits_at_a_follower_for_records_and_above_its_end() -> None:
    async with racked_brokers(RACKS[:2], SETTINGS) as (one, two):
        await produce(one, "v0")
        await caught_up(two, leader=one)
        waiting = asyncio.ensure_future(fetch(two, 1, rack="rack-b", max_wait_ms=10_000))
        await asyncio.sleep(0.1)
        await produce(one, "v1")
        assert values_in(await waiting) == ["v1"]
        above = await fetch(two, 5, rack="rack-b", max_wait_ms=100)
        assert (above.error_code, values_in(above)) == (ErrorCode.NONE, [])


async def test_a_follower_checks_leader_epochs() -> None:
    async with racked_brokers(RACKS, SETTINGS) as brokers:
        one, two, three = brokers
        await release(one.node, two.node, "t", 0)
        await refresh(*brokers)
        await produce(two, "v0")
        await caught_up(three, leader=two)
        for epoch, code in (
            (0, ErrorCode.FENCED_LEADER_EPOCH),
            (1, ErrorCode.NONE),
            (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            answer = await fetch(three, rack="rack-c", epoch=epoch)
            assert answer.error_code == code


async def test_a_follower_that_lags_sends_consumers_back() -> None:
    async with racked_brokers(RACKS[:2], SETTINGS) as (one, two):
        await produce(one, "v0")
        await caught_up(two, leader=one)
        assert values_in(await fetch(two, rack="rack-b")) == ["v0"]
        async with paused(two, one):
            await produce(one, "v1")
            two.node.replication.streams[one.node.incarnation].caught_up_at -= 6
            answer = await fetch(two, rack="rack-b")
            assert answer.error_code == NOT_LEADER
        assert await read_all(two, "rack-b", 2) == ["v0", "v1"]


async def test_it_shows_which_followers_lag_to_all_in_the_same_way() -> None:
    async with racked_brokers(RACKS, SETTINGS) as (one, two, three):
        await caught_up(two, three, leader=one)

        async def shown(broker: Broker) -> list[tuple[list[int], list[int]]]:
            request = METADATA.Request(topics=[METADATA.Request.Topic(name="t")])
            async with Wire.to(broker) as wire:
                answer = await wire.ask(METADATA, 9, request)
            return [
                (row.replica_nodes, sorted(row.isr_nodes)) for row in answer.topics[0].partitions
            ]

        replicas = (await shown(one))[0][0]
        assert replicas[0] == 1
        assert sorted(replicas) == [1, 2, 3]
        for broker in (one, two, three):
            assert await shown(broker) == [(replicas, [1, 2, 3])] * 2
        await three.node.replication.close()
        one.node.replication.progress._followers[three.node.incarnation].caught_up_at -= 6
        await until(lambda: one.node.cluster.state.lagging)
        await refresh(two, three)
        for broker in (one, two, three):
            assert await shown(broker) == [(replicas, [1, 2])] * 2
        three.node.replication.start(three.peers)
        await until(lambda: not one.node.cluster.state.lagging)


async def test_tools_may_ask_a_follower_for_offsets() -> None:
    async with racked_brokers(RACKS[:2], SETTINGS) as (one, two):
        await produce(one, "v0", "v1", "v2")
        await caught_up(two, leader=one)
        request = LIST_OFFSETS.Request
        for replica, spec, found in ((-2, -1, 3), (-2, -2, 0), (-2, 1_000, 0), (-1, -1, -1)):
            part = request.Partition(partition_index=0, timestamp=spec)
            body = request(replica_id=replica, topics=[request.Topic(name="t", partitions=[part])])
            async with Wire.to(two) as wire:
                row = (await wire.ask(LIST_OFFSETS, 5, body)).topics[0].partitions[0]
            assert row.offset == found
            assert row.error_code == (ErrorCode.NONE if replica == -2 else NOT_LEADER)


# --- what moves under a follower


async def _count(broker: Broker, values: Sequence[str]) -> None:
    for value in values:
        await produce(broker, value)


@pytest.mark.parametrize("is_open", [True, False])
async def test_what_was_rolled_up_and_deleted_is_read_from_where_it_is(
    is_open: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The follower's next numbers are gone when it looks for them: in segments and a roll-up."""
    async with racked_brokers(RACKS[:2], settings_of(cache_bytes=0)) as (one, two):
        await _count(one, numbered(0, 5))
        await caught_up(two, leader=one)
        if is_open:
            assert await read_all(two, "rack-b", 5) == numbered(0, 5)
        async with paused(two, one):
            await _count(one, numbered(5, 15))
            assert await one.node.leader("t", 0).tier()
            await _count(one, numbered(15, 20))
            assert await one.node.rollups.roll_up()
            await _count(one, numbered(20, 22))
        assert await read_all(two, "rack-b", 22) == numbered(0, 22)
        assert not [row for row in caplog.records if "damaged" in row.getMessage()]


async def test_an_open_copy_reads_on_after_each_of_many_roll_ups(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with racked_brokers(RACKS[:2], settings_of(cache_bytes=0)) as (one, two):
        await produce(one, "v0")
        await caught_up(two, leader=one)
        async with Wire.to(two) as wire:
            for at in range(12):
                answer = await wire.fetch("t", 0, rack="rack-b", max_wait_ms=100)
                assert answer.error_code == ErrorCode.NONE
                assert values_in(answer)[:1] == ["v0"]
                await produce(one, f"v{at + 1}")
                await one.node.rollups.roll_up()
        assert await read_all(two, "rack-b", 13) == numbered(0, 13)
        assert not [row for row in caplog.records if "damaged" in row.getMessage()]


async def test_the_stream_of_an_earlier_leader_may_be_rolled_up_under_a_follower(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The earlier leader is live, and its stream still has records of the partition."""
    async with racked_brokers(RACKS, settings_of(cache_bytes=0)) as brokers:
        one, two, three = brokers
        await _count(one, numbered(0, 6))
        await release(one.node, two.node, "t", 0)
        await refresh(*brokers)
        await _count(two, numbered(6, 9))
        await caught_up(three, leader=two)
        assert await read_all(three, "rack-c", 9) == numbered(0, 9)
        await produce(one, "other", partition=1)
        assert await one.node.rollups.roll_up()
        await _count(two, numbered(9, 12))
        assert await read_all(three, "rack-c", 12) == numbered(0, 12)
        assert await two.node.leader("t", 0).tier()
        assert await two.node.rollups.roll_up()
        await produce(one, "other", partition=1)
        assert await one.node.rollups.roll_up()
        assert await read_all(three, "rack-c", 12) == numbered(0, 12)
        assert not [row for row in caplog.records if "damaged" in row.getMessage()]


async def test_the_start_of_the_log_is_known_to_a_follower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas_module, "MANIFEST_SECONDS", 0.05)
    async with racked_brokers(RACKS[:2], SETTINGS) as (one, two):
        await _count(one, numbered(0, 4))
        await caught_up(two, leader=one)
        assert await read_all(two, "rack-b", 4) == numbered(0, 4)
        await one.node.leader("t", 0).move_start(3)
        async with asyncio.timeout(SECONDS_MAX):
            while (answer := await fetch(two, 3, rack="rack-b")).log_start_offset != 3:
                await asyncio.sleep(0.02)
        assert values_in(answer) == ["v3"]
        assert (await fetch(two, 2, rack="rack-b")).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# --- leaders change


async def test_the_leader_changes_under_a_follower() -> None:
    async with racked_brokers(RACKS, SETTINGS) as brokers:
        one, two, three = brokers
        expected = 0
        leader = one
        for successor in (two, one, two):
            await _count(leader, numbered(expected, expected + 3))
            await caught_up(three, leader=leader)
            expected += 3
            assert await read_all(three, "rack-c", expected) == numbered(0, expected)
            waiting = asyncio.ensure_future(
                fetch(three, expected, rack="rack-c", max_wait_ms=10_000)
            )
            await asyncio.sleep(0.05)
            await release(leader.node, successor.node, "t", 0)
            await refresh(*brokers)
            assert (await waiting).error_code == NOT_LEADER, "a waiting fetch is not forgotten"
            leader = successor
        await _count(leader, numbered(expected, expected + 2))
        await caught_up(three, leader=leader)
        assert await read_all(three, "rack-c", expected + 2) == numbered(0, expected + 2)


async def test_a_follower_becomes_the_leader_and_follows_again() -> None:
    async with racked_brokers(RACKS[:2], SETTINGS) as brokers:
        one, two = brokers
        expected = 0
        for leader, other, rack in ((one, two, "rack-b"), (two, one, "rack-a")) * 2:
            await _count(leader, numbered(expected, expected + 4))
            await caught_up(other, leader=leader)
            expected += 4
            assert await read_all(other, rack, expected) == numbered(0, expected)
            await release(leader.node, other.node, "t", 0)
            await refresh(*brokers)
            assert await read_all(other, rack, expected) == numbered(0, expected)


async def test_a_follower_takes_over_what_it_has_in_memory_and_consumers_read_to_the_end() -> None:
    async with racked_brokers(RACKS[:2], SETTINGS) as (one, two):
        for at in range(30):
            await produce(one, f"v{at}")
            await produce(one, f"w{at}", partition=1)
        await caught_up(two, leader=one)
        assert await read_all(two, "rack-b", 30) == numbered(0, 30)
        covered = 0
        replication = two.node.replication
        covering = replication.covering

        def counted(incarnation: int, entry: Any) -> Any:
            nonlocal covered
            found = covering(incarnation, entry)
            covered += found is not None
            return found

        two.node.takeover._covering = counted
        await one.abort()
        await two.node.cluster.expire(one.node.incarnation)
        assert not await two.node.takeover.lead_unled()
        assert covered >= 60, "what the follower had is not read again"
        log = two.node.leader("t", 0).log
        assert len(log.recent) == 30
        assert (log.recent[0].entry.base_offset, log.high_watermark) == (0, 30)
        for rack in ("rack-b", ""):
            assert await read_all(two, rack, 30) == numbered(0, 30)
        await _count(two, numbered(30, 33))
        assert await read_all(two, "rack-b", 33) == numbered(0, 33)
        assert await two.node.leader("t", 0).tier()
        assert await read_all(two, "rack-b", 33) == numbered(0, 33)
        await until(lambda: not replication._dead)
        assert replication.cache.share.used == 0


async def test_memory_of_followed_streams_is_a_part_of_the_tail_cache() -> None:
    settings = settings_of(cache_bytes=40_000)
    async with racked_brokers(RACKS[:2], settings) as (one, two):
        for _ in range(30):
            await produce(one, "x" * 2_000)
        await caught_up(two, leader=one)
        share = two.node.replication.cache.share
        assert 0 < share.used <= share.bytes_max == 20_000
        for _ in range(30):
            await produce(two if two.node.led.partitions else one, "x" * 2_000)
        own = two.node.own_stream
        assert own.cached_bytes + share.used <= 40_000
        count = 0
        async with asyncio.timeout(SECONDS_MAX):
            while count < 60:
                count += len(values_in(await fetch(two, count, rack="rack-b", max_wait_ms=100)))


# --- between brokers, and for operators


async def test_a_notification_for_another_process_is_refused() -> None:
    async with racked_brokers(RACKS[:2], SETTINGS) as (one, two):
        await caught_up(two, leader=one)
        target = one.node.cluster.state.brokers[two.node.incarnation]
        end = one.node.writer.committed_end
        assert await one.peers.notify(target, end, SECONDS_MAX) == end
        other = msgspec.structs.replace(target, incarnation=99)
        with pytest.raises(PeerError, match="does not answer as incarnation 99"):
            await one.peers.notify(other, end, SECONDS_MAX)


async def test_metrics_show_what_a_follower_lacks_and_which_replicas_are_in_sync() -> None:
    async with racked_brokers(RACKS[:2], SETTINGS) as (one, two):
        await produce(one, "v0")
        await caught_up(two, leader=one)

        async def shown(broker: Broker) -> dict[str, list[float]]:
            views = (partial(replica_view, broker.node), partial(kafka_view, broker.node))
            families = text_string_to_metric_families((await scrape(views)).decode())
            return {each.name: [row.value for row in each.samples] for each in families}

        assert values_in(await fetch(two, rack="rack-b")) == ["v0"]
        found = await shown(two)
        assert (found["neve_replica_lag_objects"], found["neve_replica_lag_seconds"]) == ([0], [0])
        assert found["neve_replica_cached_bytes"][0] > 0
        assert found["neve_replica_partitions_open"] == [1]
        assert found["kafka_topic_partition_replicas"] == [2, 2]
        assert found["kafka_topic_partition_in_sync_replica"] == [2, 2]
        async with paused(two, one):
            for value in "abc":
                await produce(one, value)
            stream = two.node.replication.streams[one.node.incarnation]
            await until(lambda: stream.lag_objects == 3)
            found = await shown(two)
            assert found["neve_replica_lag_objects"] == [3]
            assert found["neve_replica_lag_seconds"][0] > 0
        await one.node.cluster.set_lagging(one.node.incarnation, [two.node.incarnation])
        await refresh(two)
        found = await shown(two)
        assert found["kafka_topic_partition_replicas"] == [2, 2]
        assert found["kafka_topic_partition_in_sync_replica"] == [1, 1]
        assert found["kafka_topic_partition_under_replicated_partition"] == [1, 1]
