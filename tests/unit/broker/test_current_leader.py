"""Responses that refuse a partition name the broker that leads it now (KIP-951)."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from neve.broker.broker import Broker
from neve.broker.context import Client, Context
from neve.broker.fetch.handler import fetch
from neve.cluster.log import ClusterLog
from neve.cluster.records import Expire
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.fetch import FETCH, FetchRequest
from neve.protocol.messages.produce import PRODUCE, ProduceRequest
from neve.store.memory import MemoryBucket, MemoryStore
from support.node_world import batch_of, release
from support.scripted_store import ScriptedStore, hold
from support.two_brokers import RACKS, refresh, two_running_brokers
from support.wire import Wire

NOT_LEADER, FENCED = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH
TOPIC_IDS_SINCE = 13
NO_LEADER = (-1, -1)


def id_of(broker: Broker, topic: str) -> bytes:
    found = broker.node.cluster.state.topic(topic)
    return bytes(16) if found is None else found.id_bytes


def produce_request(
    broker: Broker, *partitions: int, topic: str = "t", acks: int = -1
) -> ProduceRequest:
    parts = [
        ProduceRequest.Partition(index=at, records=memoryview(batch_of(["v"]))) for at in partitions
    ]
    row = ProduceRequest.Topic(name=topic, topic_id=id_of(broker, topic), partition_data=parts)
    return ProduceRequest(acks=acks, timeout_ms=9_000, topic_data=[row])


def fetch_request(
    broker: Broker, *partitions: int, epoch: int = -1, wait_ms: int = 0, topic: str = "t"
) -> FetchRequest:
    parts = [
        FetchRequest.Partition(
            partition=at,
            current_leader_epoch=epoch,
            fetch_offset=0,
            partition_max_bytes=1 << 20,
        )
        for at in partitions
    ]
    row = FetchRequest.Topic(topic=topic, topic_id=id_of(broker, topic), partitions=parts)
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, topics=[row])


def leaders(rows: Any) -> list[tuple[int, int, int]]:
    return [
        (row.error_code, row.current_leader.leader_id, row.current_leader.leader_epoch)
        for row in rows
    ]


def endpoints(answer: Any) -> list[tuple[int, str, int, str | None]]:
    return [(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints]


def endpoint(broker: Broker) -> tuple[int, str, int, str | None]:
    return (broker.node_id, *broker.advertised, RACKS[broker.node_id])


@pytest.mark.parametrize("version", range(3, PRODUCE.max_version + 1))
async def test_a_produce_for_what_moved_is_sent_to_the_new_leader(version: int) -> None:
    async with two_running_brokers() as (one, two), Wire.to(one) as wire:
        await release(one.node, two.node, "t", 1)
        answer = await wire.ask(PRODUCE, version, produce_request(one, 0, 1))
        rows = answer.responses[0].partition_responses
        moved = (NOT_LEADER, 2, 1) if version >= 10 else (NOT_LEADER, *NO_LEADER)
        assert leaders(rows) == [(0, *NO_LEADER), moved]
        assert endpoints(answer) == ([endpoint(two)] if version >= 10 else [])


@pytest.mark.parametrize("version", range(FETCH.min_version, FETCH.max_version + 1))
async def test_a_fetch_of_what_moved_is_sent_to_the_new_leader(version: int) -> None:
    async with two_running_brokers() as (one, two), Wire.to(one) as wire:
        await release(one.node, two.node, "t", 1)
        answer = await wire.ask(FETCH, version, fetch_request(one, 0, 1))
        rows = answer.responses[0].partitions
        moved = (NOT_LEADER, 2, 1) if version >= 12 else (NOT_LEADER, *NO_LEADER)
        assert leaders(rows) == [(0, *NO_LEADER), moved]
        assert endpoints(answer) == ([endpoint(two)] if version >= 16 else [])


async def test_a_fetch_with_an_old_epoch_is_given_the_current_one() -> None:
    async with two_running_brokers() as (one, two), Wire.to(two) as wire:
        await release(one.node, two.node, "t", 0)
        answer = await wire.ask(FETCH, 18, fetch_request(two, 0, epoch=0))
        assert leaders(answer.responses[0].partitions) == [(FENCED, 2, 1)]
        assert endpoints(answer) == [endpoint(two)]
        ahead = await wire.ask(FETCH, 18, fetch_request(two, 0, epoch=2))
        unknown = (ErrorCode.UNKNOWN_LEADER_EPOCH, *NO_LEADER)
        assert leaders(ahead.responses[0].partitions) == [unknown]
        assert endpoints(ahead) == []


async def test_each_leader_is_named_once() -> None:
    async with two_running_brokers() as (one, two), Wire.to(one) as wire:
        for partition in (0, 1):
            await release(one.node, two.node, "t", partition)
        answer = await wire.ask(FETCH, 18, fetch_request(one, 0, 1, 2))
        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *NO_LEADER)
        moved = (NOT_LEADER, 2, 1)
        assert leaders(answer.responses[0].partitions) == [moved, moved, unknown]
        assert endpoints(answer) == [endpoint(two)]
        answer = await wire.ask(PRODUCE, 13, produce_request(one, 0, 1, 2))
        assert leaders(answer.responses[0].partition_responses) == [moved, moved, unknown]
        assert endpoints(answer) == [endpoint(two)]


async def test_nothing_is_named_that_clients_cannot_reach() -> None:
    """No leader, one without an address, and one that still takes the partition over."""
    store = MemoryStore(MemoryBucket())
    async with two_running_brokers(store) as (one, two), Wire.to(one) as wire:
        job = ClusterLog(store)
        await job.must_exist()
        incarnation = await job.register(9, inflight=1)
        await job.create_topic("job", 1)
        topic = job.state.topic("job")
        assert topic is not None
        await job.lead(incarnation, [(topic.topic_id, 0)])
        await two.node.topics.create("gone", 1)
        await two.node.cluster.create_topic("late", 1)
        await one.node.cluster.propose(lambda _: Expire(incarnation=two.node.incarnation))
        late = one.node.cluster.state.topic("late")
        assert late is not None
        await one.node.cluster.lead(one.node.incarnation, [(late.topic_id, 0)])
        for name in ("job", "gone", "late"):
            fetched = await wire.ask(FETCH, 18, fetch_request(one, 0, topic=name))
            produced = await wire.ask(PRODUCE, 13, produce_request(one, 0, topic=name))
            for answer, rows in (
                (fetched, fetched.responses[0].partitions),
                (produced, produced.responses[0].partition_responses),
            ):
                assert leaders(rows) == [(NOT_LEADER, *NO_LEADER)], name
                assert endpoints(answer) == []


async def test_a_commit_that_fails_later_is_sent_to_the_successor() -> None:
    store, go, reached = ScriptedStore(), asyncio.Event(), asyncio.Event()
    async with two_running_brokers(store) as (one, two), Wire.to(one) as wire:
        store.when("create", lambda key: key.startswith("wal/"), hold(go, reached))
        wire.send(PRODUCE, 13, produce_request(one, 0, 1))
        await reached.wait()
        await two.node.cluster.expire(one.node.incarnation)
        await refresh(one)
        answer = await wire.receive()
        moved = (NOT_LEADER, 2, 1)
        assert leaders(answer.responses[0].partition_responses) == [moved, moved]
        assert endpoints(answer) == [endpoint(two)]
        go.set()


@pytest.mark.parametrize("version", [12, 18])
async def test_a_waiting_fetch_ends_at_once_when_its_partition_moves(version: int) -> None:
    async with two_running_brokers() as (one, two), Wire.to(one) as wire:
        wire.send(FETCH, version, fetch_request(one, 0, 1, wait_ms=15_000))
        waiting = asyncio.ensure_future(wire.receive())
        while not one.waiting_fetches:
            await asyncio.sleep(0.01)
        began = time.monotonic()
        await release(one.node, two.node, "t", 1)
        answer = await waiting
        assert time.monotonic() - began < 5
        rows = answer.responses[0].partitions
        assert leaders(rows) == [(0, *NO_LEADER), (NOT_LEADER, 2, 1)]
        assert endpoints(answer) == ([endpoint(two)] if version >= 16 else [])


async def test_a_fetch_whose_partition_moves_before_it_waits_does_not_wait() -> None:
    async with two_running_brokers() as (one, two):
        request = fetch_request(one, 0, wait_ms=15_000)
        work = fetch(one, request, Context(18, None, Client("127.0.0.1", 1)))
        assert asyncio.iscoroutine(work)
        await release(one.node, two.node, "t", 0)
        began = time.monotonic()
        answer = await work
        assert time.monotonic() - began < 5
        assert leaders(answer.responses[0].partitions) == [(NOT_LEADER, 2, 1)]
        assert endpoints(answer) == [endpoint(two)]


async def test_a_partition_that_went_and_came_back_is_named_with_its_new_epoch() -> None:
    async with two_running_brokers() as (one, two), Wire.to(one) as wire:
        wire.send(FETCH, 18, fetch_request(one, 0, epoch=0, wait_ms=15_000))
        while not one.waiting_fetches:
            await asyncio.sleep(0.01)
        await release(one.node, two.node, "t", 0)
        assert leaders((await wire.receive()).responses[0].partitions) == [(NOT_LEADER, 2, 1)]
        await release(two.node, one.node, "t", 0)
        answer = await wire.ask(FETCH, 18, fetch_request(one, 0, epoch=0))
        assert leaders(answer.responses[0].partitions) == [(FENCED, 1, 2)]
        assert endpoints(answer) == [endpoint(one)]
