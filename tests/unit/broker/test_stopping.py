"""A broker that stops answers what it has taken, whatever waits before it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

from neve import runtime
from neve.broker.broker import Broker
from neve.broker.client_timeouts import LINGER_SECONDS
from neve.broker.connection import LINGER_BYTES_MAX
from neve.protocol.codes import ErrorCode
from neve.protocol.frames import request_frame
from neve.protocol.messages.find_coordinator import FIND_COORDINATOR
from neve.protocol.messages.join_group import JOIN_GROUP
from neve.protocol.messages.offset_commit import OFFSET_COMMIT
from neve.protocol.messages.produce import PRODUCE
from neve.records.reference import Record, build_batch
from neve.settings import BrokerSettings, Settings
from support.scripted_store import ScriptedStore, hold
from support.wire import Wire, running_broker

# What the kernel buffers for one connection, on both ends.
SOCKET_BYTES_MAX = 16 * 1024 * 1024


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
        await broker.node.topics.create("t", 2)
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
        await broker.node.topics.create("t", 1)
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
        await broker.node.topics.create("t", 1)
        store.when("create", is_wal, hold(go, reached))
        wire.send_batch("t", batch(b"x"))
        await reached.wait()
        assert not await broker.stop()
        go.set()


async def test_stopping_does_not_wait_for_a_member_that_long_polls() -> None:
    async with (
        running_broker() as broker,
        Wire.to(broker) as wire,
        Wire.to(broker) as other,
    ):
        await broker.node.topics.create("t", 1)
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
        assert not broker.server.admit(object())  # type: ignore[arg-type]


async def received_until_end(client: socket.socket) -> bytes:
    """All bytes up to the end of the stream. Raises ConnectionResetError if it is reset."""
    loop, received = asyncio.get_running_loop(), bytearray()
    async with asyncio.timeout(5):
        while part := await loop.sock_recv(client, 64 * 1024):
            received += part
    return bytes(received)


@contextlib.asynccontextmanager
async def raw_client(broker: Broker) -> AsyncIterator[socket.socket]:
    with socket.socket() as client:
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, tuple(broker.advertised))
        yield client


def produce_frame(correlation: int) -> bytes:
    request = PRODUCE.Request
    part = request.Partition(index=0, records=batch(b"%d" % correlation))
    topic = request.Topic(name="t", partition_data=[part])
    body = request(acks=-1, timeout_ms=9_000, topic_data=[topic])
    return b"".join(request_frame(PRODUCE, 9, correlation, "test", body.encode(9)))


async def test_a_client_that_still_sends_reads_every_response() -> None:
    """Closing a socket with unread bytes would reset it, and lose responses that were sent."""
    async with running_broker() as broker, raw_client(broker) as client:
        await broker.node.topics.create("t", 1)
        for number in range(50):
            client.send(produce_frame(number))
        while broker.metrics.produce_batches < 50:
            await runtime.sleep(0.01)
        stopping = asyncio.ensure_future(broker.stop())
        await asyncio.sleep(0)  # the broker reads no further request from here on
        client.send(produce_frame(50))
        received = await received_until_end(client)
        client.close()
        assert await stopping
        sizes, at = [], 0
        while at < len(received):
            sizes.append(int.from_bytes(received[at : at + 4], "big"))
            at += 4 + sizes[-1]
        assert len(sizes) == broker.metrics.produce_batches == 50


async def test_clients_that_do_not_close_delay_the_stop_by_a_bounded_time() -> None:
    async with running_broker() as broker, contextlib.AsyncExitStack() as clients:
        for _ in range(20):
            await clients.enter_async_context(raw_client(broker))
        while broker.metrics.connections_open < 20:
            await runtime.sleep(0.01)
        began = runtime.monotonic()
        assert await broker.stop()
        assert LINGER_SECONDS <= runtime.monotonic() - began < LINGER_SECONDS + 2
        assert broker.metrics.connections_open == 0


async def test_a_client_that_sends_without_end_is_cut_off_after_a_bounded_number_of_bytes() -> None:
    async with running_broker() as broker, raw_client(broker) as client:
        while not broker.metrics.connections_open:
            await runtime.sleep(0.01)
        stopping = asyncio.ensure_future(broker.stop())
        loop, sent, part = asyncio.get_running_loop(), 0, bytes(64 * 1024)
        with contextlib.suppress(ConnectionError):
            while not stopping.done():
                await loop.sock_sendall(client, part)
                sent += len(part)
        assert await stopping
        assert broker.metrics.connections_open == 0
        assert sent < LINGER_BYTES_MAX + SOCKET_BYTES_MAX
