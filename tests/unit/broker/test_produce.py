"""Producing over a real connection: what is answered, when, and in which order."""

from __future__ import annotations

import asyncio

import pytest

from neve import runtime
from neve.broker import invalid_records
from neve.cluster.node import Node
from neve.protocol.codes import ErrorCode
from neve.records.batch import parse_header
from neve.records.compression import NONE, ZSTD
from neve.records.reference import Record, build_batch, decode_batch
from neve.settings import Settings, WalSettings
from support.node_world import take_over
from support.scripted_store import ScriptedStore, hold
from support.wire import Wire, running_broker


def batch(
    *values: bytes, producer: int = -1, epoch: int = 0, sequence: int = -1, time_ms: int = 1_000
) -> bytes:
    records = [Record(at, time_ms, None, value) for at, value in enumerate(values)]
    return build_batch(
        records,
        producer_id=producer,
        producer_epoch=epoch if producer >= 0 else -1,
        base_sequence=sequence,
    )


async def values_of(wire: Wire, topic: str) -> list[bytes]:
    data = (await wire.fetch(topic, 0)).records
    found, position = [], 0
    while position < len(data):
        size = parse_header(data, position).size
        rows = decode_batch(bytes(data[position : position + size]))
        found += [row.value or b"" for row in rows]
        position += size
    return found


async def test_answers_come_in_order_with_ascending_offsets_however_many_are_in_flight() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1)
        for number in range(300):
            wire.send_batch("t", batch(b"%d" % number), acks=-1 if number % 3 else 1)
        offsets = [(await wire.produced()).base_offset for _ in range(300)]
        assert offsets == list(range(300))
        assert await values_of(wire, "t") == [b"%d" % number for number in range(300)]


async def test_acks_all_waits_for_the_commit_and_acks_one_does_not() -> None:
    store = ScriptedStore()
    go, reached = asyncio.Event(), asyncio.Event()
    async with running_broker(store) as broker, Wire.to(broker) as wire, Wire.to(broker) as other:
        await broker.node.topics.create("t", 1)
        store.when("create", lambda key: key.startswith("wal/"), hold(go, reached))
        wire.send_batch("t", batch(b"a"))
        await reached.wait()
        assert (await other.produce("t", batch(b"b"), acks=1)).base_offset == 1
        assert (await other.fetch("t", 0)).high_watermark == 0  # nobody sees it yet
        answer = asyncio.ensure_future(wire.produced())
        await asyncio.sleep(0.05)
        assert not answer.done()
        go.set()
        assert (await answer).base_offset == 0


async def test_a_request_that_waits_too_long_is_told_so_and_its_record_may_still_come() -> None:
    store = ScriptedStore()
    go, reached = asyncio.Event(), asyncio.Event()
    async with running_broker(store) as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1)
        store.when("create", lambda key: key.startswith("wal/"), hold(go, reached))
        late = await wire.produce("t", batch(b"a"), timeout_ms=50)
        assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
        go.set()
        assert (await wire.produce("t", batch(b"b"))).base_offset == 1
        assert await values_of(wire, "t") == [b"a", b"b"]


async def test_acks_none_is_not_answered_and_an_error_ends_the_connection() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire, Wire.to(broker) as other:
        await broker.node.topics.create("t", 1)
        wire.send_batch("t", batch(b"a"), acks=0)
        wire._asked.clear()
        assert (await wire.produce("t", batch(b"b"))).base_offset == 1
        other.send_batch("missing", batch(b"c"), acks=0)
        assert await other.reader.read() == b""


async def test_a_duplicate_has_its_first_offset_once_the_original_is_committed() -> None:
    store = ScriptedStore()
    go, reached = asyncio.Event(), asyncio.Event()
    async with running_broker(store) as broker, Wire.to(broker) as wire, Wire.to(broker) as again:
        await broker.node.topics.create("t", 1)
        store.when("create", lambda key: key.startswith("wal/"), hold(go, reached))
        wire.send_batch("t", batch(b"a", producer=7, sequence=0))
        await reached.wait()
        again.send_batch("t", batch(b"a", producer=7, sequence=0))
        answer = asyncio.ensure_future(again.produced())
        await asyncio.sleep(0.05)
        assert not answer.done()
        go.set()
        assert (await answer).base_offset == (await wire.produced()).base_offset == 0
        assert await values_of(wire, "t") == [b"a"]


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_gap_in_the_sequence_is_refused(acks: int) -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1)
        await wire.produce("t", batch(b"a", producer=7, epoch=1, sequence=0), acks=acks)
        gap = await wire.produce("t", batch(b"c", producer=7, epoch=1, sequence=2), acks=acks)
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        old = await wire.produce("t", batch(b"b", producer=7, epoch=0, sequence=1), acks=acks)
        assert old.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert gap.base_offset == old.base_offset == -1
        good = await wire.produce("t", batch(b"b", producer=7, epoch=1, sequence=1), acks=acks)
        assert good.base_offset == 1


async def test_who_was_taken_over_refuses_nobody_for_good() -> None:
    """The successor may have taken what the fenced one thinks is out of order."""
    store = ScriptedStore()
    async with running_broker(store) as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1)
        await wire.produce("t", batch(b"a", producer=7, sequence=0))
        await broker.background.close()  # so that it does not notice by itself
        successor = await Node.start(store, Settings(), node_id=1, probe=False)
        await take_over(successor)
        with pytest.raises(asyncio.IncompleteReadError):  # so that its client asks the successor
            await wire.produce("t", batch(b"c", producer=7, sequence=2))
        await successor.close()


REFUSED = {
    "too large": (batch(b"x" * 3_000), ErrorCode.MESSAGE_TOO_LARGE),
    "no records": (b"", ErrorCode.INVALID_RECORD),
    "two batches": (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
    "damaged": (batch(b"a")[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
    "its own append time": (
        build_batch([Record(0, 1_000, None, b"a")], log_append_time=1_000),
        ErrorCode.INVALID_TIMESTAMP,
    ),
    "too early": (batch(b"a", time_ms=1_000), ErrorCode.INVALID_TIMESTAMP),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
async def test_what_a_topic_does_not_take_is_refused_with_kafka_s_code(name: str) -> None:
    data, code = REFUSED[name]
    configs = {"max.message.bytes": "2000"}
    if name == "too early":
        configs = {"message.timestamp.before.max.ms": "60000"}
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1, configs)
        assert (await wire.produce("t", data)).error_code == code
        now = runtime.now_ms()
        assert (await wire.produce("t", batch(b"good", time_ms=now))).base_offset == 0


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize("codec", [NONE, ZSTD])
async def test_records_with_a_time_that_is_refused_are_named(acks: int, codec: int) -> None:
    now = runtime.now_ms()
    times = [now, now + 3_600_000, now - 5, now + 7_200_000, now - 3_600_000, -1]
    rows = [Record(at, time, None, b"v") for at, time in enumerate(times)]
    configs = {
        "message.timestamp.before.max.ms": "60000",
        "message.timestamp.after.max.ms": "60000",
    }
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1, configs)
        answer = await wire.produce("t", build_batch(rows, codec=codec), acks=acks)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_TIMESTAMP, -1)
        assert "message.timestamp.after.max.ms" in answer.error_message
        blamed = {row.batch_index: row.batch_index_error_message for row in answer.record_errors}
        assert list(blamed) == [1, 3, 4]
        assert str(times[3]) in blamed[3]
        assert broker.node.writer.buffered_bytes == 0
        wire.send_batch("t", build_batch(rows), acks=0)
        assert await wire.reader.read() == b"", "who wants no answers loses the connection"


async def test_a_batch_that_unpacks_to_too_much_is_refused_without_its_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(invalid_records, "DECOMPRESSED_BYTES_MAX", 10_000)
    rows = [Record(0, 1_000, None, bytes(20_000))]
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1, {"message.timestamp.before.max.ms": "60000"})
        answer = await wire.produce("t", build_batch(rows, codec=ZSTD))
        assert (answer.error_code, answer.record_errors) == (ErrorCode.INVALID_TIMESTAMP, [])


async def test_log_append_time_is_the_broker_s_and_told() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1, {"message.timestamp.type": "LogAppendTime"})
        before = runtime.now_ms()
        told = (await wire.produce("t", batch(b"a", time_ms=5))).log_append_time_ms
        assert before <= told <= runtime.now_ms()
        data = bytes((await wire.fetch("t", 0)).records)
        assert [row.timestamp for row in decode_batch(data)] == [told]


async def test_nobody_but_the_broker_writes_to_its_own_topics() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.offsets_topic.ensure()
        answer = await wire.produce("__consumer_offsets", batch(b"a"))
        assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_full_buffer_holds_producers_up_and_nobody_else() -> None:
    store = ScriptedStore()
    go, reached = asyncio.Event(), asyncio.Event()
    settings = Settings(wal=WalSettings(buffer_bytes=64 * 1024))
    value = b"x" * 10_000
    async with running_broker(store, settings) as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1)
        store.when("create", lambda key: key.startswith("wal/"), hold(go, reached))
        for _ in range(40):
            wire.send_batch("t", batch(value))
        await reached.wait()
        await _until(lambda: broker.is_full)
        await asyncio.sleep(0.05)
        # What was let in before it was full, and no more.
        assert broker.node.writer.buffered_bytes < 64 * 1024 + 2 * len(value)
        async with Wire.to(broker) as other:
            assert (await other.fetch("t", 0)).high_watermark == 0
        go.set()
        assert [(await wire.produced()).base_offset for _ in range(40)] == list(range(40))


async def test_a_large_batch_is_not_touched_by_what_comes_after_it() -> None:
    """Its receive buffer must not be used again before it is committed."""
    store = ScriptedStore()
    go, reached = asyncio.Event(), asyncio.Event()
    async with running_broker(store) as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1)
        store.when("create", lambda key: key.startswith("wal/"), hold(go, reached))
        values = [bytes([number]) * 300_000 for number in range(20)]
        for number, value in enumerate(values):
            wire.send_batch("t", batch(value), acks=1 if number % 2 else -1)
        await reached.wait()
        await asyncio.sleep(0.1)
        go.set()
        for _ in values:
            assert (await wire.produced()).error_code == 0
        found = []
        for number in range(20):
            data = bytes((await wire.fetch("t", number, partition_bytes=1)).records)
            found += [row.value for row in decode_batch(data)]
        assert found == values
        assert broker.server.scratch.pool.used_bytes == 0


async def _until(true: object) -> None:
    async with asyncio.timeout(10):
        while not true():  # type: ignore[operator]
            await asyncio.sleep(0.01)


async def test_stopping_answers_what_was_taken() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1)
        for number in range(50):
            wire.send_batch("t", batch(b"%d" % number))
        await wire.writer.drain()
        await _until(lambda: broker.metrics.produce_batches > 0)
        stopping = asyncio.ensure_future(broker.stop())
        answered = 0
        while True:
            try:
                assert (await wire.produced()).error_code == 0
                answered += 1
            except asyncio.IncompleteReadError:
                break
            if answered == 50:
                break
        await stopping
        assert answered == broker.metrics.produce_batches
