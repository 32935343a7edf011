"""A broker that stops answers what it has taken, whatever waits before it."""

from __future__ import annotations

import asyncio
from typing import Any

from neve import runtime
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.find_coordinator import FIND_COORDINATOR
from neve.protocol.messages.join_group import JOIN_GROUP
from neve.protocol.messages.offset_commit import OFFSET_COMMIT
from neve.records.reference import Record, build_batch
from neve.settings import BrokerSettings, Settings
from support.scripted_store import ScriptedStore, hold
from support.wire import Wire, running_broker


def is_wal(key: str) -> bool:
    return key.startswith("wal/")


def commit_request(offset: int) -> Any:
    request = OFFSET_COMMIT.Request
    part = request.Partition(partition_index=0, committed_offset=offset, committed_metadata="")
    return request(group_id="g", topics=[request.Topic(name="t", partitions=[part])])


def join_request(member_id: str = "") -> Any:
    request = JOIN_GROUP.Request
    return request(
        group_id="g",
        member_id=member_id,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[request.Protocol(name="range", metadata=b"")],
    )


async def commit_once(wire: Wire, offset: int) -> None:
    """Commit an offset, as soon as the group has a coordinator."""
    for _ in range(500):
        await wire.ask(FIND_COORDINATOR, 0, FIND_COORDINATOR.Request(key="g"))
        answer = await wire.ask(OFFSET_COMMIT, 2, commit_request(offset))
        if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
            return
        await runtime.sleep(0.01)
    raise AssertionError("there is no coordinator")


def batch(value: bytes) -> bytes:
    return build_batch([Record(0, 1_000, None, value)])


async def test_a_record_that_was_taken_behind_a_waiting_fetch_is_answered() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.node.create_topic("t", 2)
        wire.send_fetch("t", [(0, 0)], max_wait_ms=60_000)
        wire.send_batch("t", batch(b"x"), partition=1)
        for _ in range(200):
            log = broker.node.leader("t", 1).log
            if log.high_watermark == 1:
                break
            await runtime.sleep(0.01)
        began = runtime.monotonic()
        stopping = asyncio.ensure_future(broker.stop())
        assert (await wire.receive()).responses[0].partitions[0].error_code == 0
        assert (await wire.produced()).base_offset == 0
        await stopping
        assert runtime.monotonic() - began < 5
        assert await wire.reader.read() == b""


async def test_an_offset_that_was_taken_is_committed_and_answered() -> None:
    store = ScriptedStore()
    go, reached = asyncio.Event(), asyncio.Event()
    async with running_broker(store) as broker, Wire.to(broker) as wire:
        await broker.node.create_topic("t", 1)
        await commit_once(wire, 1)
        store.when("create", is_wal, hold(go, reached))
        wire.send(OFFSET_COMMIT, 2, commit_request(2))
        await reached.wait()
        stopping = asyncio.ensure_future(broker.stop())
        await runtime.sleep(0.1)
        assert not stopping.done()
        go.set()
        answer = await wire.receive()
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE
        assert await stopping


async def test_what_could_not_be_committed_in_time_is_told() -> None:
    store = ScriptedStore()
    settings = Settings(broker=BrokerSettings(stop_grace_ms=300))
    go, reached = asyncio.Event(), asyncio.Event()
    async with running_broker(store, settings) as broker, Wire.to(broker) as wire:
        await broker.node.create_topic("t", 1)
        store.when("create", is_wal, hold(go, reached))
        wire.send_batch("t", batch(b"x"))
        await reached.wait()
        assert not await broker.stop()
        go.set()


async def test_nobody_waits_for_a_member_that_waits_for_others() -> None:
    async with (
        running_broker() as broker,
        Wire.to(broker) as wire,
        Wire.to(broker) as other,
    ):
        await broker.node.create_topic("t", 1)
        await commit_once(wire, 1)
        assert (await wire.ask(JOIN_GROUP, 2, join_request())).error_code == ErrorCode.NONE
        other.send(JOIN_GROUP, 2, join_request())  # waits until the first has joined again
        await runtime.sleep(0.1)
        began = runtime.monotonic()
        assert await broker.stop()
        assert runtime.monotonic() - began < 5
        assert (await other.receive()).error_code != ErrorCode.NONE


async def test_who_connects_while_it_stops_is_turned_away() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.server.stop_accepting()
        wire.send_fetch("t", [(0, 0)])
        await runtime.sleep(0.1)
        assert not broker.server.opened(object())  # type: ignore[arg-type]
