"""Closed connections are freed at once, not by the garbage collector.

A collection stops the broker for as long as it takes to free what has gathered, which is half a
second after some ten thousand connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace

import pytest

from neve.broker.broker import Broker
from neve.broker.connection import Connection
from neve.broker.produce_requests import ProduceRequests
from neve.broker.requests import Requests
from neve.broker.response_queue import ResponseQueue
from neve.protocol.messages.api_versions import API_VERSIONS
from neve.records.reference import Record, build_batch
from neve.settings import Settings
from support.wire import Wire, running_broker

BATCH = build_batch([Record(0, 1_000, None, b"v")])
OF_A_CONNECTION = (Connection, Requests, ProduceRequests, ResponseQueue)
FREED_SECONDS = 5.0


async def nothing(wire: Wire) -> None:
    """Only connect."""


async def versions(wire: Wire) -> None:
    await wire.ask(API_VERSIONS, 0, API_VERSIONS.Request())


async def produces(wire: Wire) -> None:
    assert (await wire.produce("t", BATCH)).error_code == 0


async def gzip_produces(wire: Wire) -> None:
    assert (await wire.produce("gzip", BATCH)).error_code == 0


async def silent_error(wire: Wire) -> None:
    wire.send_batch("none", BATCH, acks=0)
    assert await wire.reader.read() == b"", "it was closed"


async def waiting_fetch(wire: Wire) -> None:
    wire.send_fetch("t", [(0, 10)], max_wait_ms=60_000)
    await asyncio.sleep(0.05)


async def unread_fetches(wire: Wire) -> None:
    for _ in range(20):
        wire.send_fetch("large", [(0, 0)], max_bytes=1 << 23, partition_bytes=1 << 23)
    await asyncio.sleep(0.2)


async def half_request(wire: Wire) -> None:
    wire.writer.write((30_000_000).to_bytes(4, "big") + bytes(100))
    await asyncio.sleep(0.05)


async def malformed(wire: Wire) -> None:
    wire.writer.write((12).to_bytes(4, "big") + b"\xff" * 12)
    assert await wire.reader.read() == b"", "it was closed"


DONE_BEFORE_CLOSING: list[Callable[[Wire], Awaitable[None]]] = [
    nothing,
    versions,
    produces,
    gzip_produces,
    silent_error,
    waiting_fetch,
    unread_fetches,
    half_request,
    malformed,
]


@contextlib.asynccontextmanager
async def a_broker() -> AsyncIterator[Broker]:
    settings = Settings()
    settings = replace(settings, broker=replace(settings.broker, address_connections_max=20))
    async with running_broker(settings=settings) as broker:
        await broker.node.topics.create("t", 1)
        await broker.node.topics.create("large", 1)
        await broker.node.topics.create("gzip", 1, {"compression.type": "gzip"})
        large = build_batch([Record(0, 1_000, None, bytes(900_000))])
        async with Wire.to(broker) as wire:
            for _ in range(8):
                await wire.produce("large", large)
        yield broker


async def left() -> list[type]:
    """Return the types of what is left of connections, at most `FREED_SECONDS` later."""
    for _ in range(int(FREED_SECONDS / 0.05)):
        found = [type(each) for each in gc.get_objects() if type(each) in OF_A_CONNECTION]
        if not found:
            break
        await asyncio.sleep(0.05)
    return found


@contextlib.contextmanager
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("use", DONE_BEFORE_CLOSING, ids=lambda use: use.__name__)
async def test_a_closed_connection_leaves_nothing_to_collect(
    use: Callable[[Wire], Awaitable[None]],
) -> None:
    async with a_broker() as broker:
        with no_collections():
            async with Wire.to(broker) as wire:
                await use(wire)
            assert not await left()


async def test_a_refused_connection_leaves_nothing_to_collect() -> None:
    async with a_broker() as broker:
        with no_collections():
            links = [await asyncio.open_connection(*broker.advertised) for _ in range(25)]
            assert await links[-1][0].read() == b"", "it was refused"
            for _, writer in links:
                writer.close()
            assert not await left()
