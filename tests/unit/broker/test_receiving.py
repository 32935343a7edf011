"""Large requests that come in slowly, or never to an end, beside those of others."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import replace

import pytest

from neve.broker import patience
from neve.records.reference import Record, build_batch
from neve.settings import Settings
from wire import Wire, running_broker

LARGE_BYTES = 200_000
LARGE = build_batch([Record(0, 1_000, None, bytes(LARGE_BYTES))])


def narrow() -> Settings:
    """There is room for one large request at a time."""
    settings = Settings()
    return replace(settings, broker=replace(settings.broker, receiving_bytes_max=64 * 1024))


async def test_who_never_ends_a_large_request_does_not_hold_others_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patience, "SHARED_ROOM_SECONDS", 0.5)
    async with running_broker(settings=narrow()) as broker, Wire.to(broker) as wire:
        await broker.node.create_topic("t", 1)
        reader, writer = await asyncio.open_connection(*broker.advertised)
        writer.write(struct.pack(">i", LARGE_BYTES) + bytes(100))
        await asyncio.sleep(2)
        assert not reader.at_eof(), "nobody minds as long as nobody waits"
        assert (await wire.produce("t", LARGE)).error_code == 0
        assert await reader.read() == b"", "it was closed"
        writer.close()


async def test_who_sends_fast_enough_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "SHARED_ROOM_SECONDS", 1.0)
    async with (
        running_broker(settings=narrow()) as broker,
        Wire.to(broker) as slow,
        Wire.to(broker) as other,
    ):
        await broker.node.create_topic("t", 1)
        sent: list[bytes] = []
        slow.writer.write = sent.append  # type: ignore[method-assign, assignment]
        slow.send_batch("t", LARGE)
        del slow.writer.write  # type: ignore[method-assign]
        request = b"".join(sent)
        half = len(request) // 2
        slow.writer.write(request[:half])
        await asyncio.sleep(0.1)
        other.send_batch("t", LARGE)
        await asyncio.sleep(1.5)
        slow.writer.write(request[half:])
        assert (await slow.produced()).error_code == 0
        assert (await other.produced()).error_code == 0
