"""A broker that stops answers what it has taken, whatever waits before it."""

from __future__ import annotations

import asyncio

from neve import runtime
from neve.records.reference import Record, build_batch
from wire import Wire, running_broker


def batch(value: bytes) -> bytes:
    return build_batch([Record(0, 1_000, None, value)])


async def test_a_record_that_was_taken_behind_a_waiting_fetch_is_answered() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.node.create_topic("t", 2)
        wire.send_fetch("t", [(0, 0)], max_wait_ms=60_000)
        wire.send_batch("t", batch(b"x"), partition=1)
        for _ in range(200):
            log = broker.node.log("t", 1)
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


async def test_who_connects_while_it_stops_is_turned_away() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.server.stop_accepting()
        wire.send_fetch("t", [(0, 0)])
        await runtime.sleep(0.1)
        assert not broker.server.opened(object())  # type: ignore[arg-type]
