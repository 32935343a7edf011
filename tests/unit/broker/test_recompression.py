"""Topics with a compression.type: what is kept, in which order, and what is refused."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from neve.broker import recompression
from neve.broker.broker import Broker
from neve.errors import FencedError
from neve.protocol.codes import ErrorCode
from neve.records.batch import BatchHeader, parse_header
from neve.records.compression import CODECS, GZIP, LZ4, NONE
from neve.records.reference import Record, build_batch, decode_batch
from neve.settings import Settings, WalSettings
from support.wire import Wire, running_broker

HEADERS = (("trace", b"\x00\x01"), ("empty", None))


def batch(value: bytes, *, codec: int = NONE, producer: int = -1, sequence: int = -1) -> bytes:
    rows = [
        Record(0, 1_000, b"key", value, HEADERS),
        Record(1, 1_007, None, None),
        Record(2, 999, b"", b"", HEADERS),
    ]
    epoch = 3 if producer >= 0 else -1
    return build_batch(
        rows, codec=codec, producer_id=producer, producer_epoch=epoch, base_sequence=sequence
    )


async def kept(wire: Wire, topic: str = "t") -> list[tuple[BatchHeader, list[Record]]]:
    """The batches of a topic's partition 0 as consumers get them."""
    data = (await wire.fetch(topic, 0)).records
    found, position = [], 0
    while position < len(data):
        header = parse_header(data, position)
        found.append((header, decode_batch(bytes(data[position : position + header.size]))))
        position += header.size
    return found


class Gate:
    """Recompression that waits in its thread until it is let go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._go = threading.Event()
        self.reached = threading.Event()
        original = recompression._recompress

        def held(batch: Any) -> None:
            self.reached.set()
            assert self._go.wait(20)
            original(batch)

        monkeypatch.setattr(recompression, "_recompress", held)

    async def wait(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, 20)

    def open(self) -> None:
        self._go.set()


async def topic(broker: Broker, codec: str, **configs: str) -> None:
    named = {name.replace("_", "."): value for name, value in configs.items()}
    await broker.node.topics.create("t", 1, {"compression.type": codec, **named})


@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
async def test_every_batch_is_kept_in_the_topic_s_codec(wanted: str) -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await topic(broker, wanted)
        for number, codec in enumerate(CODECS):
            sent = batch(b"x" * 5_000, codec=codec, producer=7, sequence=3 * number)
            answer = await wire.produce("t", sent)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 3 * number)
            header, records = (await kept(wire))[number]
            assert CODECS[header.codec] == wanted.replace("uncompressed", "none")
            before = parse_header(sent)
            same = {"base_offset": 3 * number, "leader_epoch": header.leader_epoch}
            same |= {"attributes": header.attributes, "crc": header.crc, "length": header.length}
            assert header == before._replace(**same)
            assert [row._replace(offset=row.offset - 3 * number) for row in records] == (
                decode_batch(sent)
            )


async def test_a_batch_in_the_topic_s_codec_is_kept_as_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recompression, "_recompress", lambda _: pytest.fail("recompressed"))
    async with running_broker() as broker, Wire.to(broker) as wire:
        await topic(broker, "lz4")
        sent = batch(b"x" * 5_000, codec=LZ4)
        await wire.produce("t", sent)
        data = bytes((await wire.fetch("t", 0)).records)
        assert data[61:] == sent[61:]


async def test_other_topics_keep_what_their_producers_chose() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await topic(broker, "lz4")
        await broker.node.topics.create("plain", 1)
        await wire.produce("plain", batch(b"x", codec=GZIP))
        assert [header.codec for header, _ in await kept(wire, "plain")] == [GZIP]


async def test_the_codec_changes_with_the_config() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await topic(broker, "producer")
        await wire.produce("t", batch(b"a"))
        await broker.node.topics.set_configs("t", {"compression.type": "lz4"})
        await wire.produce("t", batch(b"b"))
        await broker.node.topics.set_configs("t", {}, ["compression.type"])
        await wire.produce("t", batch(b"c"))
        assert [header.codec for header, _ in await kept(wire)] == [NONE, LZ4, NONE]


async def test_later_requests_of_a_connection_do_not_pass_one_that_is_recompressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)
    async with running_broker() as broker, Wire.to(broker) as wire:
        await topic(broker, "lz4")
        codecs = [NONE, LZ4, GZIP, LZ4]
        for number, codec in enumerate(codecs):
            acks = 1 if number == 1 else -1
            sent = batch(b"%d" % number, codec=codec, producer=7, sequence=3 * number)
            wire.send_batch("t", sent, acks=acks)
        await gate.wait()
        await asyncio.sleep(0.05)
        assert broker.node.leader("t", 0).log.next_offset == 0
        gate.open()
        answers = [await wire.produced() for _ in codecs]
        assert [row.error_code for row in answers] == [ErrorCode.NONE] * 4
        assert [row.base_offset for row in answers] == [0, 3, 6, 9]
        assert [rows[0].value for _, rows in await kept(wire)] == [b"0", b"1", b"2", b"3"]
        assert {header.codec for header, _ in await kept(wire)} == {LZ4}


async def test_other_connections_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    async with running_broker() as broker, Wire.to(broker) as wire, Wire.to(broker) as other:
        await topic(broker, "lz4")
        wire.send_batch("t", batch(b"slow"))
        await gate.wait()
        assert (await other.produce("t", batch(b"quick", codec=LZ4))).base_offset == 0
        gate.open()
        assert (await wire.produced()).base_offset == 3


async def test_a_client_that_hangs_up_still_has_its_records_appended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)
    async with running_broker() as broker, Wire.to(broker) as other:
        await topic(broker, "lz4")
        async with Wire.to(broker) as wire:
            wire.send_batch("t", batch(b"last words"), acks=0)
            await gate.wait()
        await asyncio.sleep(0.05)
        assert broker.node.writer.buffered_bytes == len(batch(b"last words"))
        gate.open()
        async with asyncio.timeout(20):
            while broker.server.recompression.is_busy:
                await asyncio.sleep(0.01)
        await other.produce("t", batch(b"later", codec=LZ4))
        assert [rows[0].value for _, rows in await kept(other)] == [b"last words", b"later"]
        assert broker.node.writer.buffered_bytes == 0


async def test_a_broker_that_stops_waits_for_what_is_recompressed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)
    async with running_broker() as broker, Wire.to(broker) as wire:
        await topic(broker, "lz4")
        wire.send_batch("t", batch(b"a"))
        await gate.wait()
        stopping = asyncio.ensure_future(broker.stop())
        await asyncio.sleep(0.1)
        assert not stopping.done()
        gate.open()
        assert (await wire.produced()).error_code == ErrorCode.NONE
        assert await stopping


async def test_what_is_fenced_meanwhile_is_not_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    async with running_broker() as broker, Wire.to(broker) as wire:
        await topic(broker, "lz4")
        wire.send_batch("t", batch(b"a"))
        await gate.wait()
        broker.node.leader("t", 0).log.close(FencedError("another process leads it"))
        gate.open()
        assert (await wire.produced()).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_batch_that_grows_past_the_topic_s_bound_is_refused() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await topic(broker, "uncompressed", max_message_bytes="4000")
        answer = await wire.produce("t", batch(b"x" * 5_000, codec=GZIP))
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert "max.message.bytes, 4000" in answer.error_message
        assert (await wire.produce("t", batch(b"x", codec=GZIP))).base_offset == 0


async def test_a_batch_that_decompresses_to_too_much_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recompression, "DECOMPRESSED_BYTES_MAX", 100_000)
    async with running_broker() as broker, Wire.to(broker) as wire:
        await topic(broker, "lz4")
        answer = await wire.produce("t", batch(bytes(200_000), codec=GZIP))
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert "decompresses to more than 100000 bytes" in answer.error_message
        assert (await wire.produce("t", batch(bytes(200_000), codec=LZ4))).base_offset == 0


async def test_records_that_do_not_decompress_are_refused() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await topic(broker, "lz4")
        # Uncompressed records under a header that names gzip, with a checksum that fits.
        false = build_false_gzip()
        assert (await wire.produce("t", false)).error_code == ErrorCode.CORRUPT_MESSAGE
        assert (await wire.produce("t", batch(b"x"))).base_offset == 0


def build_false_gzip() -> bytes:
    from neve.records.batch import assemble
    from neve.records.crc import crc32c

    sent = bytearray(assemble(b"not gzip at all", record_count=1, last_offset_delta=0))
    sent[22] |= GZIP
    sent[17:21] = crc32c(memoryview(sent)[21:]).to_bytes(4, "big")
    return bytes(sent)


async def test_what_is_recompressed_fills_the_buffer_that_producers_wait_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)
    settings = Settings(wal=WalSettings(buffer_bytes=64 * 1024))
    async with (
        running_broker(settings=settings) as broker,
        Wire.to(broker) as wire,
        Wire.to(broker) as other,
    ):
        await topic(broker, "lz4")
        wire.send_batch("t", batch(bytes(100_000)))
        await gate.wait()
        assert broker.is_full
        for number in range(3):
            other.send_batch("t", batch(b"%d" % number, codec=LZ4))
        assert (await other.produced()).base_offset == 0  # taken before it was seen to be full
        await asyncio.sleep(0.1)
        assert broker.node.leader("t", 0).log.next_offset == 3
        gate.open()
        assert (await wire.produced()).error_code == ErrorCode.NONE
        offsets = {(await other.produced()).base_offset for _ in range(2)}
        assert len(offsets) == 2
        assert not broker.is_full


async def test_a_time_out_that_passes_meanwhile_does_not_undo_the_append(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)
    async with running_broker() as broker, Wire.to(broker) as wire:
        await topic(broker, "lz4")
        wire.send_batch("t", batch(b"a", producer=7, sequence=0), timeout_ms=50)
        wire.send_batch("t", batch(b"b", producer=7, sequence=3, codec=LZ4))
        await gate.wait()
        await asyncio.sleep(0.4)
        gate.open()
        first, second = await wire.produced(), await wire.produced()
        assert first.error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)
        assert (second.error_code, second.base_offset) == (ErrorCode.NONE, 3)
        assert [rows[0].value for _, rows in await kept(wire)] == [b"a", b"b"]
