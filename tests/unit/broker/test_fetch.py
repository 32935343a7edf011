"""Fetching over a real connection: waiting, budgets, sessions, cold reads and their errors."""

from __future__ import annotations

import asyncio
import logging
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from neve.broker.context import Client, Context
from neve.broker.fetch.handler import WAITING_PARTITION_BYTES, fetch
from neve.broker.response_queue import ResponseQueue
from neve.cli import main
from neve.cluster.node import Node
from neve.errors import DamagedError
from neve.protocol.codes import ErrorCode
from neve.protocol.messages.fetch import FetchRequest
from neve.protocol.messages.list_offsets import LIST_OFFSETS
from neve.records.batch import parse_header
from neve.records.reference import Record, build_batch, decode_batch
from neve.settings import CacheSettings, Settings
from neve.store.folder import FolderStore
from support.node_world import take_over
from support.scripted_store import ScriptedStore, hold
from support.wire import Wire, running_broker

UNCACHED = Settings(cache=CacheSettings(tail_bytes=0))


def batch(*values: bytes) -> bytes:
    return build_batch([Record(at, 1_000, None, value) for at, value in enumerate(values)])


def values_of(data: memoryview) -> list[bytes]:
    found, position = [], 0
    while position < len(data):
        size = parse_header(data, position).size
        found += [row.value or b"" for row in decode_batch(bytes(data[position : position + size]))]
        position += size
    return found


async def test_a_waiting_fetch_is_woken_by_the_commit() -> None:
    async with running_broker() as broker, Wire.to(broker) as reader, Wire.to(broker) as writer:
        await broker.node.topics.create("t", 1)
        reader.send_fetch("t", [(0, 0)], max_wait_ms=15_000)
        waiting = asyncio.ensure_future(reader.receive())
        await asyncio.sleep(0.1)
        assert not waiting.done()
        started = time.monotonic()
        await writer.produce("t", batch(b"a"))
        answer = (await waiting).responses[0].partitions[0]
        assert time.monotonic() - started < 5
        assert values_of(answer.records) == [b"a"]
        assert answer.high_watermark == 1
        assert not broker.node.leader("t", 0).log._watchers


async def test_a_fetch_waits_for_min_bytes_but_not_beyond_its_time() -> None:
    async with running_broker() as broker, Wire.to(broker) as reader, Wire.to(broker) as writer:
        await broker.node.topics.create("t", 2)
        reader.send_fetch("t", [(0, 0), (1, 0)], max_wait_ms=15_000, min_bytes=2_000)
        waiting = asyncio.ensure_future(reader.receive())
        await writer.produce("t", batch(b"x" * 1_200), partition=0)
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await writer.produce("t", batch(b"y" * 1_200), partition=1)
        parts = (await waiting).responses[0].partitions
        assert [len(values_of(part.records)) for part in parts] == [1, 1]
        started = time.monotonic()
        late = await reader.fetch("t", 0, max_wait_ms=200, min_bytes=1 << 19)
        assert values_of(late.records) == [b"x" * 1_200]
        assert 0.15 < time.monotonic() - started < 10


async def test_a_fetch_that_is_cancelled_before_it_starts_reserves_nothing() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1)
        await wire.produce("t", batch(b"x" * 100_000))
        part = FetchRequest.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=15_000,
            min_bytes=1 << 19,
            max_bytes=1 << 20,
            topics=[FetchRequest.Topic(topic="t", partitions=[part])],
        )
        work = fetch(broker, request, Context(12, None, Client("127.0.0.1", 1)))
        assert asyncio.iscoroutine(work)
        work.close()
        assert (broker.unsent.share.used, broker.unsent.bytes_making) == (0, 0)


async def test_where_too_much_waits_a_fetch_of_many_partitions_is_answered_at_once() -> None:
    async with running_broker() as broker, Wire.to(broker) as wide, Wire.to(broker) as narrow:
        await broker.node.topics.create("t", 40)
        broker.waiting.bytes_max = 50 * WAITING_PARTITION_BYTES
        many = [(partition, 0) for partition in range(40)]
        for _ in range(2):
            wide.send_fetch("t", many, max_wait_ms=5_000)
        narrow.send_fetch("t", [(0, 0)], max_wait_ms=300)
        began = time.monotonic()
        assert not (await narrow.receive()).responses[0].partitions[0].records
        assert time.monotonic() - began >= 0.25  # it waited, beside one of the large ones
        assert broker.waiting.used == 40 * WAITING_PARTITION_BYTES
        assert len(broker.waiting_fetches) == 1


async def test_what_waits_holds_up_nothing_behind_it() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire, Wire.to(broker) as other:
        await broker.node.topics.create("t", 1)
        wire.send_fetch("t", [(0, 0)], max_wait_ms=15_000)
        wire.send_batch("t", batch(b"a"))  # on the same connection, behind the fetch it wakes
        assert values_of((await wire.receive()).responses[0].partitions[0].records) == [b"a"]
        assert (await wire.produced()).base_offset == 0
        assert values_of((await other.fetch("t", 0)).records) == [b"a"]


async def test_max_bytes_holds_over_the_whole_request_and_one_batch_always_comes() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 3)
        for index in range(3):
            for _ in range(3):
                await wire.produce("t", batch(b"x" * 1_000), partition=index)
        size = len(batch(b"x" * 1_000))
        wire.send_fetch("t", [(0, 0), (1, 0), (2, 0)], max_bytes=4 * size)
        parts = (await wire.receive()).responses[0].partitions
        assert [len(part.records) // size for part in parts] == [3, 1, 0]
        wire.send_fetch("t", [(0, 0), (1, 0)], max_bytes=1)
        parts = (await wire.receive()).responses[0].partitions
        assert [len(part.records) // size for part in parts] == [1, 0]
        wire.send_fetch("t", [(0, 1)], partition_bytes=10)
        assert len((await wire.receive()).responses[0].partitions[0].records) == size


@pytest.mark.parametrize(
    ("held_share", "reserved_share", "pins"),
    [(0.0, 0.0, True), (0.0, 0.5, True), (0.5, 0.0, False)],
)
async def test_a_small_answer_keeps_its_object_in_memory_only_while_clients_keep_up(
    held_share: float, reserved_share: float, pins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[memoryview] = []
    write = ResponseQueue._write

    def seen(self: ResponseQueue, parts: list[Any]) -> None:
        written.extend(part for part in parts if isinstance(part, memoryview))
        write(self, parts)

    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1)
        for _ in range(20):  # in a few objects
            wire.send_batch("t", batch(b"x" * 10_000))
        for _ in range(20):
            await wire.produced()
        unsent = broker.unsent
        unsent.share.count(int(held_share * unsent.share.bytes_max))
        assert unsent.try_reserve(
            int(reserved_share * unsent.share.bytes_max), client_keeps_up=True
        )
        monkeypatch.setattr(ResponseQueue, "_write", seen)
        for offset in range(20):
            wire.send_fetch("t", [(0, offset)], max_bytes=1)
            assert (await wire.receive()).responses[0].partitions[0].records
    pinned = max(memoryview(part.obj).nbytes / part.nbytes for part in written)
    assert (pinned > 2) is pins


async def test_a_session_is_told_only_what_changed() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 3)
        await wire.produce("t", batch(b"a"), partition=1)
        wire.send_fetch("t", [(0, 0), (1, 0), (2, 0)], session=(0, 0))
        first = await wire.receive()
        assert first.session_id > 0
        assert [part.partition_index for part in first.responses[0].partitions] == [0, 1, 2]
        wire.send_fetch("t", [(1, 1)], session=(first.session_id, 1))
        assert (await wire.receive()).responses == []
        await wire.produce("t", batch(b"b"), partition=2)
        wire.send_fetch("t", [], session=(first.session_id, 2))
        (part,) = (await wire.receive()).responses[0].partitions
        assert (part.partition_index, values_of(part.records)) == (2, [b"b"])
        wire.send_fetch("t", [], session=(first.session_id, 9))
        assert (await wire.receive()).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


async def test_offsets_out_of_range_and_unknown_places_are_told() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1)
        await wire.produce("t", batch(b"a", b"b", b"c"))
        for offset in (-1, 4, 2**62):
            answer = await wire.fetch("t", offset, max_wait_ms=5_000)
            assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE, offset
        await broker.node.leader("t", 0).move_start(2)
        answer = await wire.fetch("t", 1)
        assert (answer.error_code, answer.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2)
        unknown = await wire.fetch("missing", 0)
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wire.send_fetch("t", [(5, 0)])
        part = (await wire.receive()).responses[0].partitions[0]
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_who_was_taken_over_does_not_say_that_an_offset_is_out_of_range() -> None:
    """The successor may have it."""
    store = ScriptedStore()
    async with running_broker(store) as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1)
        await wire.produce("t", batch(b"a"))
        await broker.background.close()
        successor = await Node.start(store, Settings(), node_id=1, probe=False)
        await take_over(successor)
        with pytest.raises(asyncio.IncompleteReadError):  # so that its client asks the successor
            await wire.fetch("t", 3, max_wait_ms=5_000)
        await successor.close()


async def test_a_store_that_hangs_holds_up_nobody_who_asks_for_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("neve.broker.broker.LEADERSHIP_CHECK_SECONDS_MAX", 0.1)
    request = LIST_OFFSETS.Request
    latest = request.Partition(partition_index=0, timestamp=-1)
    asked = request(replica_id=-1, topics=[request.Topic(name="t", partitions=[latest])])
    store, released = ScriptedStore(), asyncio.Event()
    async with running_broker(store) as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1)
        await wire.produce("t", batch(b"a"))
        store.when("get_range", lambda _: True, hold(released), times=None)
        answer = (await wire.ask(LIST_OFFSETS, 7, asked)).topics[0].partitions[0]
        assert (answer.error_code, answer.offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
        assert (await wire.fetch("t", 9)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        released.set()
        answer = (await wire.ask(LIST_OFFSETS, 7, asked)).topics[0].partitions[0]
        assert (answer.error_code, answer.offset) == (ErrorCode.NONE, 1)


async def test_a_deleted_topic_ends_those_who_wait_for_it() -> None:
    async with running_broker() as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 1)
        wire.send_fetch("t", [(0, 0)], max_wait_ms=15_000)
        waiting = asyncio.ensure_future(wire.receive())
        await asyncio.sleep(0.1)
        started = time.monotonic()
        await broker.node.topics.delete("t")
        part = (await waiting).responses[0].partitions[0]
        assert part.error_code != ErrorCode.NONE
        assert time.monotonic() - started < 5


async def test_what_is_not_in_memory_is_read_beside_what_is() -> None:
    async with running_broker(settings=UNCACHED) as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 2)
        for index in range(2):
            for value in (b"a", b"b"):
                await wire.produce("t", batch(value), partition=index)
        await broker.node.leader("t", 0).log.tier()
        wire.send_fetch("t", [(0, 0), (1, 0)])
        parts = (await wire.receive()).responses[0].partitions
        assert [values_of(part.records)[:1] for part in parts] == [[b"a"], [b"a"]]


async def test_damage_fails_its_partition_alone_and_says_where_to_look(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_broker(settings=UNCACHED) as broker, Wire.to(broker) as wire:
        await broker.node.topics.create("t", 2)
        for index in range(2):
            await wire.produce("t", batch(b"a"), partition=index)
        read = broker.reader.read

        async def damaged(log: Any, offset: int, max_bytes: int) -> Any:
            if log.partition == 0:
                raise DamagedError("topics/t/segment", "its checksum is wrong")
            return await read(log, offset, max_bytes)

        monkeypatch.setattr(broker.reader, "read", damaged)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                wire.send_fetch("t", [(0, 0), (1, 0)])
                parts = (await wire.receive()).responses[0].partitions
        assert parts[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert values_of(parts[1].records) == [b"a"]
        told = [line for line in caplog.messages if "topics/t/segment" in line]
        assert len(told) == 1  # however often it is asked for
        assert "neve storage verify memory://" in told[0]


@pytest.mark.parametrize("harm", ["damaged", "gone"])
async def test_the_command_that_damage_is_told_with_gets_readers_past_it(
    harm: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bucket = tmp_path / "my bucket"
    store = FolderStore(bucket, fsync=False)
    async with running_broker(store, UNCACHED, store_url=str(bucket)) as broker:
        await broker.node.topics.create("t", 1)
        log = broker.node.leader("t", 0).log
        async with Wire.to(broker) as wire:
            for value in (b"lost", b"kept"):
                await wire.produce("t", batch(value))
                await log.tier()
            segment = bucket / (await log.manifest.segments(0, 0))[0].key
            if harm == "gone":
                segment.unlink()
            else:
                segment.write_bytes(segment.read_bytes().replace(b"lost", b"lust"))
            with caplog.at_level(logging.WARNING):
                wire.send_fetch("t", [(0, 0)])
                part = (await wire.receive()).responses[0].partitions[0]
            assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            (line,) = caplog.messages
            assert line.count("neve storage") == 1
            command = shlex.split(line[line.index("neve storage skip") :])
            assert await asyncio.to_thread(main, command[1:]) == 0
            wire.send_fetch("t", [(0, 0)])
            part = (await wire.receive()).responses[0].partitions[0]
            assert part.error_code == ErrorCode.NONE
            assert values_of(part.records) == [b"kept"]
