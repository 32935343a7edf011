"""Large requests that come in slowly, or never to an end, beside those of others."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace

from neve.records.reference import Record, build_batch
from neve.settings import Settings
from support.wire import Wire, running_broker

LARGE_BYTES = 200_000
LARGE = build_batch([Record(0, 1_000, None, bytes(LARGE_BYTES))])


def narrow() -> Settings:
    """There is room for one large request at a time."""
    settings = Settings()
    return replace(settings, broker=replace(settings.broker, receiving_bytes_max=64 * 1024))


def request_of(wire: Wire, topic: str, batch: bytes) -> bytes:
    """The bytes of a produce request, which `wire` then expects an answer to."""
    sent: list[bytes] = []
    wire.writer.write = sent.append  # type: ignore[method-assign, assignment]
    wire.send_batch(topic, batch)
    del wire.writer.write  # type: ignore[method-assign]
    return b"".join(sent)


async def test_who_never_ends_a_large_request_does_not_hold_others_up() -> None:
    async with running_broker(settings=narrow()) as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1)
        reader, writer = await asyncio.open_connection(*broker.advertised)
        writer.write(struct.pack(">i", LARGE_BYTES) + bytes(100))
        await asyncio.sleep(2)
        assert not reader.at_eof(), "nobody minds as long as nobody waits"
        async with asyncio.timeout(3):
            assert (await wire.produce("t", LARGE)).error_code == 0
        assert await reader.read() == b"", "it was closed"
        writer.close()


async def test_many_that_trickle_hold_up_a_smaller_request_once() -> None:
    """It is the smallest of those that wait when the first of them is closed."""
    async with running_broker(settings=narrow()) as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1)
        links = [await asyncio.open_connection(*broker.advertised) for _ in range(20)]
        for _, writer in links:
            writer.write(struct.pack(">i", 30_000_000) + bytes(20_000))
        await asyncio.sleep(0.2)
        async with asyncio.timeout(3):
            assert (await wire.produce("t", LARGE)).error_code == 0
        for _, writer in links:
            writer.close()


async def test_who_sends_fast_enough_is_waited_for() -> None:
    async with (
        running_broker(settings=narrow()) as broker,
        Wire.to(broker) as slow,
        Wire.to(broker) as other,
    ):
        await broker.node.topics.create("t", 1)
        request = request_of(slow, "t", build_batch([Record(0, 1_000, None, bytes(900_000))]))
        slow.writer.write(request[:100_000])
        await asyncio.sleep(0.1)
        other.send_batch("t", LARGE)
        for start in range(100_000, len(request), 100_000):
            slow.writer.write(request[start : start + 100_000])
            await asyncio.sleep(0.1)
        assert (await slow.produced()).error_code == 0
        assert (await other.produced()).error_code == 0


async def test_a_slow_link_has_its_time_while_nobody_waits() -> None:
    async with running_broker(settings=narrow()) as broker, Wire.to(broker) as slow:
        await broker.node.topics.create("t", 1)
        request = request_of(slow, "t", LARGE)
        for start in range(0, len(request), 20_000):
            slow.writer.write(request[start : start + 20_000])
            await asyncio.sleep(0.2)
        assert (await slow.produced()).error_code == 0
