"""Misbehaving clients, byte by byte, and measurements of the broker during an attack."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from neve.protocol.messages.api_versions import API_VERSIONS
from neve.protocol.messages.create_topics import CREATE_TOPICS
from neve.protocol.messages.fetch import FETCH
from neve.protocol.messages.produce import PRODUCE
from neve.records.batch import assemble
from neve.records.reference import Record, build_batch
from soak.wire import Wire
from support.brokers import RunningBroker

CLOSED_SECONDS = 10.0
PRODUCE_VERSION, FETCH_VERSION = 9, 12


@contextlib.contextmanager
def raw(broker: RunningBroker, receive_buffer_bytes: int = 0) -> Iterator[socket.socket]:
    """A connection without any manners."""
    with socket.socket() as link:
        if receive_buffer_bytes:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        link.settimeout(CLOSED_SECONDS)
        link.connect((broker.host, broker.port))
        yield link


def is_closed(link: socket.socket, seconds: float = CLOSED_SECONDS) -> bool:
    """Whether the broker closes it, having sent nothing more, within this time."""
    link.settimeout(seconds)
    try:
        return link.recv(1 << 16) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(api_key: int, version: int, client_id: bytes = b"x", correlation: int = 1) -> bytes:
    return struct.pack(">hhih", api_key, version, correlation, len(client_id)) + client_id


def answers(link: socket.socket, count: int) -> list[int]:
    """Read so many answers; their correlation ids."""
    data, found, position = bytearray(), [], 0
    while len(found) < count:
        more = link.recv(1 << 20)
        assert more, f"closed after {len(found)} answers"
        data += more
        while len(data) - position >= 8:
            size, correlation = struct.unpack_from(">ii", data, position)
            if len(data) - position < 4 + size:
                break
            found.append(correlation)
            position += 4 + size
        if position > 1 << 20:
            del data[:position]
            position = 0
    return found


def is_served(broker: RunningBroker) -> bool:
    with Wire(broker.port, "bystander") as wire:
        return asks(wire)


def asks(wire: Wire) -> bool:
    """Whether this connection is answered."""
    answer = wire.call(API_VERSIONS, 0, API_VERSIONS.Request())
    return bool(answer.error_code == 0 and answer.api_keys)


def create_topic(
    wire: Wire, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> None:
    made = CREATE_TOPICS.Request
    asked = made.Topic(
        name=topic,
        num_partitions=partitions,
        replication_factor=1,
        configs=[made.Config(name=name, value=text) for name, text in (configs or {}).items()],
    )
    answer = wire.call(CREATE_TOPICS, 5, made(topics=[asked], timeout_ms=10_000))
    assert answer.topics[0].error_code == 0, answer.topics[0]


def produce_request(
    topic: str, batch: bytes | None, *, partition: int = 0, acks: int = -1, **more: Any
) -> Any:
    request = PRODUCE.Request
    part = request.Partition(index=partition, records=batch)
    named = request.Topic(name=topic, partition_data=[part])
    return request(acks=acks, timeout_ms=10_000, topic_data=[named], **more)


def produce(wire: Wire, topic: str, batch: bytes | None, **more: Any) -> Any:
    """The one partition of the answer."""
    answer = wire.call(PRODUCE, PRODUCE_VERSION, produce_request(topic, batch, **more))
    return answer.responses[0].partition_responses[0]


def section(count: int) -> bytes:
    """The records of a batch, not compressed."""
    records = [Record(at, 1_000, None, b"value %d" % at) for at in range(count)]
    return build_batch(records)[61:]


def lying(codec: int, told: int, really: int) -> bytes:
    """A batch whose header tells another number of records than its content has."""
    return assemble(
        section(really),
        codec=codec,
        record_count=told,
        last_offset_delta=told - 1,
        base_timestamp=1_000,
        max_timestamp=1_000,
    )


def send(broker: RunningBroker, topic: str, batch: bytes) -> None:
    """Produce a batch as it is, to partition 0."""
    with Wire(broker.port, "test") as wire:
        assert produce(wire, topic, batch).error_code == 0


def fetch_request(
    topic: str, *asked: tuple[int, int], max_bytes: int = 1 << 20, **more: Any
) -> Any:
    """For (partition, offset) pairs."""
    request = FETCH.Request
    parts = [
        request.Partition(partition=number, fetch_offset=offset, partition_max_bytes=max_bytes)
        for number, offset in asked
    ]
    given = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": max_bytes, "session_epoch": -1} | more
    return request(topics=[request.Topic(topic=topic, partitions=parts)], **given)


def fetch(wire: Wire, topic: str, offset: int, **more: Any) -> Any:
    request = fetch_request(topic, (0, offset), **more)
    return wire.call(FETCH, FETCH_VERSION, request).responses[0].partitions[0]


def resident_bytes(broker: RunningBroker) -> int:
    pages = int(Path(f"/proc/{broker.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def eventually(is_so: Callable[[], bool], seconds: float = CLOSED_SECONDS) -> bool:
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True
