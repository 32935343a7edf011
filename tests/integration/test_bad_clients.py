"""Clients that take what they can get: connections, memory, time. Others do not notice.

Each bound is a setting; the broker of these tests has low ones.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from neve.protocol.frames import request_frame
from neve.protocol.messages.describe_configs import DESCRIBE_CONFIGS
from neve.protocol.messages.describe_groups import DESCRIBE_GROUPS
from neve.protocol.messages.describe_producers import DESCRIBE_PRODUCERS
from neve.protocol.messages.fetch import FETCH
from neve.protocol.messages.list_offsets import LIST_OFFSETS
from neve.protocol.messages.metadata import METADATA
from neve.protocol.messages.offset_fetch import OFFSET_FETCH
from neve.protocol.messages.produce import PRODUCE
from neve.records.batch import parse_header
from neve.records.reference import Record, build_batch
from soak.wire import Wire
from support.brokers import RunningBroker, start_broker
from support.hostile import (
    asks,
    create_topic,
    eventually,
    fetch,
    fetch_request,
    frame,
    header,
    is_closed,
    is_served,
    produce,
    produce_request,
    raw,
    resident_bytes,
)

pytestmark = pytest.mark.slow
MIB = 1 << 20
IDLE_SECONDS = 1.5


def started(folder: Path, **settings: object) -> RunningBroker:
    return start_broker(
        folder / "bucket", folder / "log", store_folder_fsync=False, log_repeat_ms=0, **settings
    )


@contextlib.contextmanager
def serving(folder: Path, **settings: object) -> Iterator[RunningBroker]:
    running = started(folder, **settings)
    try:
        yield running
        assert "Traceback" not in running.log
        assert "never awaited" not in running.log
        assert running.stop() == 0
    finally:
        if running.process.poll() is None:
            running.kill()


def batch(size: int) -> bytes:
    return build_batch([Record(0, 1_000, None, bytes(size))])


# -- connections -------------------------------------------------------------------------------


def test_too_many_connections_are_closed_and_there_is_room_again(tmp_path: Path) -> None:
    with serving(tmp_path, broker_connections_max=5) as broker:
        with contextlib.ExitStack() as open_links:
            wires = [open_links.enter_context(Wire(broker.port, "one")) for _ in range(5)]
            assert all(map(asks, wires))
            before = len(broker.log.splitlines())
            with raw(broker) as one_more:
                assert is_closed(one_more)
            (line,) = broker.log.splitlines()[before:]
            assert "5 connections are open (broker.connections.max)" in line
            assert all(map(asks, wires))
        with contextlib.suppress(ConnectionError):
            assert eventually(lambda: _is_served_now(broker))


def test_too_many_connections_from_one_address_are_closed(tmp_path: Path) -> None:
    with (
        serving(tmp_path, broker_connections_per_address_max=3) as broker,
        contextlib.ExitStack() as open_links,
    ):
        wires = [open_links.enter_context(Wire(broker.port, "one")) for _ in range(3)]
        assert all(map(asks, wires))
        before = len(broker.log.splitlines())
        with raw(broker) as one_more:
            assert is_closed(one_more)
        (line,) = broker.log.splitlines()[before:]
        assert "127.0.0.1: refused: 3 connections from it are open" in line
        assert "(broker.connections.per.address.max)" in line
        wires.pop().close()
        assert eventually(lambda: _is_served_now(broker))


def _is_served_now(broker: RunningBroker) -> bool:
    try:
        return is_served(broker)
    except ConnectionError:
        return False


def test_connections_that_do_nothing_are_closed_and_those_that_work_are_not(
    tmp_path: Path,
) -> None:
    idle_ms = int(IDLE_SECONDS * 1000)
    with (
        serving(tmp_path, broker_connection_idle_ms=idle_ms) as broker,
        Wire(broker.port, "busy") as busy,
        raw(broker) as silent,
        raw(broker) as half,
        raw(broker) as large_half,
        raw(broker) as dribbling,
        raw(broker, 4096) as deaf,
    ):
        create_topic(busy, "t")
        assert produce(busy, "t", batch(400_000)).error_code == 0
        half.sendall(frame(header(18, 0))[:7])
        large_half.sendall(struct.pack(">i", 500_000) + bytes(50_000))
        one = FETCH.Request.encode(fetch_request("t", (0, 0)), 12)
        deaf.sendall(b"".join(request_frame(FETCH, 12, 1, "deaf", one)) * 50)
        dribble = iter(frame(header(18, 0, b"a client with a long name")))
        began = time.monotonic()
        gone: dict[str, float] = {}
        waiting = {"silent": silent, "half": half, "large half": large_half}
        while time.monotonic() - began < IDLE_SECONDS * 6 and len(gone) < 4:
            assert asks(busy)
            for name, link in waiting.items():
                if name not in gone and is_closed(link, 0.02):
                    gone[name] = time.monotonic() - began
            if "dribbling" not in gone:
                try:
                    dribbling.sendall(bytes([next(dribble)]))
                except OSError:
                    gone["dribbling"] = time.monotonic() - began
            time.sleep(0.25)
        assert sorted(gone) == ["dribbling", "half", "large half", "silent"]
        assert min(gone.values()) >= IDLE_SECONDS * 0.9
        assert asks(busy)
        assert eventually(lambda: 'reason="responses-not-read"} 1' in _metrics(broker))


def _metrics(broker: RunningBroker) -> str:
    with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def _held_bytes(broker: RunningBroker, what: str) -> int:
    found = re.search(rf'used_bytes{{what="{what}"}} (\d+)', _metrics(broker))
    assert found is not None
    return int(found[1])


def _untiered_bytes(broker: RunningBroker) -> float:
    found = re.search(r"^neve_untiered_bytes (\S+)", _metrics(broker), re.MULTILINE)
    assert found is not None
    return float(found[1])


# -- memory ------------------------------------------------------------------------------------


def test_answers_that_nobody_reads_do_not_pile_up(tmp_path: Path) -> None:
    """Past the bound answers wait, and clients that do not read theirs make room for others."""
    bounds = {
        "fetch_unsent_bytes": 4 * MIB,
        "fetch_catchup_bytes": 4 * MIB,
        "tail_cache_bytes": MIB,
        "wal_buffer_bytes": 4 * MIB,
        "broker_receive_pool_bytes": MIB,
        "segment_bytes": 8 * MIB,
        "tiering_memory_bytes": 16 * MIB,
    }
    with serving(tmp_path, **bounds) as broker, Wire(broker.port, "good") as good:
        create_topic(good, "t")
        for _ in range(80):
            assert produce(good, "t", batch(900_000)).error_code == 0
        # In segments, where a batch is read with many others.
        assert eventually(lambda: _untiered_bytes(broker) < 20 * MIB)
        assert fetch(good, "t", 0, max_wait_ms=2_000).records
        before = resident_bytes(broker)
        with contextlib.ExitStack() as links:
            for number in range(40):
                deaf = links.enter_context(raw(broker, 4096))
                asked = fetch_request("t", (0, number * 2), max_bytes=8 * MIB)
                one = request_frame(FETCH, 12, 1, "deaf", FETCH.Request.encode(asked, 12))
                deaf.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    deaf.sendall(b"".join(one) * 50)
            time.sleep(2.5)
            assert asks(good)
            assert fetch(good, "t", 5, max_wait_ms=500).records
            held = _held_bytes(broker, "unsent-responses")
            grown = resident_bytes(broker) - before
        assert held < 4 * MIB + 900_000
        assert grown < 60 * MIB, f"{grown >> 20} MiB for answers that nobody reads"
        assert eventually(lambda: _held_bytes(broker, "unsent-responses") == 0)


def test_large_requests_that_do_not_come_to_an_end_do_not_pile_up(tmp_path: Path) -> None:
    """Many begin at once; what is being received is bounded, and nobody waits for ever."""
    bounds = {"broker_receiving_bytes_max": 4 * MIB, "broker_receive_pool_bytes": MIB}
    with serving(tmp_path, **bounds) as broker, Wire(broker.port, "good") as good:
        create_topic(good, "t")
        assert produce(good, "t", batch(900_000)).error_code == 0
        before = resident_bytes(broker)
        with contextlib.ExitStack() as links:
            for _ in range(60):
                slow = links.enter_context(raw(broker))
                slow.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    slow.sendall(struct.pack(">i", MIB) + bytes(MIB - 10))
            time.sleep(0.5)
            assert asks(good)
            assert produce(good, "t", batch(10_000)).error_code == 0  # small ones need no room
            large = links.enter_context(Wire(broker.port, "large"))
            large.send(PRODUCE, 9, produce_request("t", batch(900_000)))
            assert resident_bytes(broker) - before < 30 * MIB
        assert eventually(lambda: _held_bytes(broker, "receiving") == 0)
        assert produce(good, "t", batch(900_000)).error_code == 0


def test_a_large_request_that_had_to_wait_is_taken_when_there_is_room(tmp_path: Path) -> None:
    bounds = {"broker_receiving_bytes_max": 2 * MIB}
    with serving(tmp_path, **bounds) as broker, Wire(broker.port, "waits") as waits:
        create_topic(waits, "t")
        with contextlib.ExitStack() as links:
            for _ in range(4):
                slow = links.enter_context(raw(broker))
                slow.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    slow.sendall(struct.pack(">i", MIB) + bytes(MIB - 10))
            assert eventually(lambda: _held_bytes(broker, "receiving") > 1.5 * MIB)
            waits.send(PRODUCE, 9, produce_request("t", batch(900_000)))
            waits._socket.settimeout(0.3)
            with pytest.raises(TimeoutError):
                waits._socket.recv(1)
        waits._socket.settimeout(10)
        row = waits.receive().responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (0, 0)


# -- answers that are larger than their questions ----------------------------------------------

TIMES = 20_000


def test_one_thing_asked_for_many_times_is_told_once(tmp_path: Path) -> None:
    with serving(tmp_path) as broker, Wire(broker.port, "greedy") as greedy:
        create_topic(greedy, "t", partitions=50)
        configs = DESCRIBE_CONFIGS.Request.Resource(
            resource_type=2, resource_name="t", configuration_keys=None
        )
        answer = greedy.call(
            DESCRIBE_CONFIGS, 4, DESCRIBE_CONFIGS.Request(resources=[configs] * TIMES)
        )
        assert len(answer.results) == 1
        named = METADATA.Request.Topic(name="t")
        assert len(greedy.call(METADATA, 9, METADATA.Request(topics=[named] * TIMES)).topics) == 1
        groups = DESCRIBE_GROUPS.Request(groups=["g"] * TIMES)
        assert len(greedy.call(DESCRIBE_GROUPS, 5, groups).groups) == 1
        offsets = OFFSET_FETCH.Request.Group(group_id="g", topics=None)
        asked = OFFSET_FETCH.Request(groups=[offsets] * TIMES)
        assert len(greedy.call(OFFSET_FETCH, 8, asked).groups) == 1
        producers = DESCRIBE_PRODUCERS.Request.Topic(name="t", partition_indexes=[0] * TIMES)
        told = greedy.call(DESCRIBE_PRODUCERS, 0, DESCRIBE_PRODUCERS.Request(topics=[producers]))
        assert len(told.topics[0].partitions) == 1


def test_a_request_about_very_much_does_not_hold_others_up_for_long(tmp_path: Path) -> None:
    with (
        serving(tmp_path) as broker,
        Wire(broker.port, "greedy") as greedy,
        Wire(broker.port, "other") as other,
    ):
        create_topic(greedy, "t")
        part = LIST_OFFSETS.Request.Partition
        parts = [part(partition_index=at, timestamp=-2) for at in range(40_000)]
        wanted = LIST_OFFSETS.Request.Topic(name="t", partitions=parts)
        greedy.send(LIST_OFFSETS, 5, LIST_OFFSETS.Request(replica_id=-1, topics=[wanted]))
        slowest = 0.0
        for _ in range(20):
            began = time.monotonic()
            assert asks(other)
            slowest = max(slowest, time.monotonic() - began)
        assert len(greedy.receive().topics[0].partitions) == 40_000
        assert slowest < 3.0


# -- reading -----------------------------------------------------------------------------------


def test_a_fetch_of_what_is_in_memory_and_what_is_not_fills_up_with_the_first(
    tmp_path: Path,
) -> None:
    """The one from memory leaves no room for the other: it comes with the next request."""
    with (
        serving(tmp_path, tail_cache_bytes=200_000) as broker,
        Wire(broker.port, "reader") as wire,
    ):
        create_topic(wire, "t", partitions=2)
        for _ in range(20):
            assert produce(wire, "t", batch(50_000), partition=0).error_code == 0
        assert produce(wire, "t", batch(50_000), partition=1).error_code == 0
        request = fetch_request("t", (0, 0), (1, 0), max_bytes=30_000, max_wait_ms=2_000)
        rows = wire.call(FETCH, 12, request).responses[0].partitions
        assert [row.error_code for row in rows] == [0, 0]
        found = {row.partition_index: len(row.records or b"") for row in rows}
        assert sum(map(bool, found.values())) == 1
        cold = fetch(wire, "t", 0, max_bytes=30_000, max_wait_ms=2_000)
        assert parse_header(cold.records).base_offset == 0


def test_a_client_that_goes_away_while_it_is_served_leaves_nothing_behind(tmp_path: Path) -> None:
    with serving(tmp_path) as broker, Wire(broker.port, "other") as other:
        create_topic(other, "t")
        waiting = fetch_request("t", (0, 0), max_wait_ms=60_000)
        body = FETCH.Request.encode(waiting, 12)
        for number in range(200):
            with raw(broker) as link:
                link.sendall(b"".join(request_frame(FETCH, 12, 1, "gone", body)) * 3)
                if number % 2:
                    gone = struct.pack("ii", 1, 0)
                    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, gone)
        assert eventually(lambda: "neve_connections 1\n" in _metrics(broker))
        assert produce(other, "t", batch(10)).error_code == 0
