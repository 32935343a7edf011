"""Copies of followed partitions: when they are resolved, closed, and trusted."""

from __future__ import annotations

import asyncio
import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest

from neve import runtime
from neve.broker.broker import Broker
from neve.cluster import replicas as replicas_module
from neve.cluster.replicas import NotFollowedError, _SharedRead
from neve.cluster.state import Topic
from neve.errors import DamagedError, LostRangeError, NotFoundError, UnavailableError
from neve.settings import PARTITION_BYTES, ClusterSettings
from support.node_world import send, small_settings
from support.two_brokers import racked_brokers

RACKS = ("rack-a", "rack-b")
SETTINGS = dataclasses.replace(small_settings(), cluster=ClusterSettings(follow_ms=50))
SECONDS_MAX = 15


def topic_of(broker: Broker) -> Topic:
    found = broker.node.cluster.state.topic("t")
    assert found is not None
    return found


async def until(happened: Any) -> None:
    async with asyncio.timeout(SECONDS_MAX):
        while not happened():
            await runtime.sleep(0.01)


async def following(follower: Broker, leader: Broker) -> None:
    streams = follower.node.replication.streams
    end = leader.node.writer.committed_end
    await until(lambda: (streams[leader.node.incarnation].position or -1) >= end)


async def test_a_gap_that_appears_while_the_manifest_is_read_is_closed_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the last records of a partition stay unread until the next one is written."""
    monkeypatch.setattr(replicas_module, "MANIFEST_SECONDS", 0.0)
    async with racked_brokers(RACKS, SETTINGS) as (one, two):
        await send(one.node, ["a"])
        await following(two, one)
        replicas = two.node.replication.replicas
        log = await replicas.open(topic_of(two), 0)
        go_on = asyncio.Event()
        refresh = log.refresh

        async def slow() -> None:
            await go_on.wait()
            await refresh()

        monkeypatch.setattr(log, "refresh", slow)
        assert replicas.find(topic_of(two), 0) is log  # which begins a refresh
        await runtime.sleep(0)
        monkeypatch.setattr(log, "take", lambda *_: False)  # as if a number had been missed
        await send(one.node, ["b"])
        await following(two, one)
        assert log.high_watermark == 1
        go_on.set()
        await until(lambda: log.high_watermark == 2)


async def test_what_looks_lost_is_reported_only_if_the_next_copy_misses_it_too() -> None:
    async with racked_brokers(RACKS, SETTINGS) as (one, two):
        await send(one.node, ["a"])
        await following(two, one)
        replicas = two.node.replication.replicas
        gone = DamagedError("wal/x", "it is listed but missing")
        for error in (gone, NotFoundError("wal/y", "gone"), LostRangeError("0 to 3")):
            log = await replicas.open(topic_of(two), 0)
            assert isinstance(replicas.failed(log, error), NotFollowedError)
            assert log.closed is not None
            again = await replicas.open(topic_of(two), 0)
            assert again is not log
            assert replicas.failed(again, error) is error
            replicas.read(again)
            assert isinstance(replicas.failed(again, error), NotFollowedError)
        slow = UnavailableError("wal/x", "slow")
        log = await replicas.open(topic_of(two), 0)
        assert replicas.failed(log, slow) is slow
        assert log.closed is None


async def test_a_copy_that_is_not_read_is_closed_and_its_memory_is_counted() -> None:
    async with racked_brokers(RACKS, SETTINGS) as (one, two):
        await send(one.node, ["a"])
        await following(two, one)
        replicas, memory = two.node.replication.replicas, two.node.led.memory
        before = memory.used
        log = await replicas.open(topic_of(two), 0)
        replicas.tidy()
        assert memory.used - before > PARTITION_BYTES
        replicas._replicas[log.topic_id, 0].used_at -= replicas_module.IDLE_SECONDS + 1
        replicas.tidy()
        assert (memory.used, len(replicas)) == (before, 0)
        assert log.closed is not None
        assert replicas.find(topic_of(two), 0) is None


async def test_a_stream_is_read_again_for_those_that_ask_while_it_is_read() -> None:
    """A read that had begun may show what its caller has just found gone."""
    begun: list[asyncio.Event] = []

    async def tail() -> int:
        begun.append(asyncio.Event())
        number = len(begun)
        await begun[-1].wait()
        return number

    tasks = runtime.Tasks()
    read = _SharedRead(SimpleNamespace(tail=tail), tasks)  # type: ignore[arg-type]
    first = asyncio.ensure_future(read.tail())
    await until(lambda: len(begun) == 1)
    later = [asyncio.ensure_future(read.tail()) for _ in range(3)]
    await runtime.sleep(0.01)
    assert len(begun) == 1, "one read at a time"
    begun[0].set()
    assert await first == 1
    await until(lambda: len(begun) == 2)
    begun[1].set()
    assert [await each for each in later] == [2, 2, 2]
    assert read.is_idle
    await tasks.close()
