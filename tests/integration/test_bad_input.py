"""What a broker makes of bad input: an error that a client understands, or a closed connection.

Never a traceback, never more than a line in the log for it, and nobody else notices.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from neve.protocol.codes import ErrorCode
from neve.protocol.messages.api_versions import API_VERSIONS
from neve.protocol.messages.create_topics import CREATE_TOPICS
from neve.protocol.messages.fetch import FETCH
from neve.protocol.messages.list_offsets import LIST_OFFSETS
from neve.protocol.messages.metadata import METADATA
from neve.protocol.messages.produce import PRODUCE
from neve.records.batch import CONTROL, TRANSACTIONAL
from neve.records.crc import crc32c
from neve.records.reference import Record, build_batch
from soak.wire import Wire
from support.brokers import RunningBroker, start_broker
from support.hostile import (
    answers,
    asks,
    fetch,
    fetch_request,
    frame,
    header,
    is_closed,
    produce,
    produce_request,
    raw,
)

REQUEST_BYTES_MAX = 1 << 20
BATCH_BYTES_MAX = 100_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    folder = tmp_path_factory.mktemp("bad-input")
    running = start_broker(
        folder / "bucket",
        folder / "log",
        broker_request_bytes_max=REQUEST_BYTES_MAX,
        topics_auto_create=False,
        log_repeat_ms=0,
        store_folder_fsync=False,
    )
    try:
        yield running
        assert "Traceback" not in running.log
        assert running.stop() == 0
    finally:
        if running.process.poll() is None:
            running.kill()


@pytest.fixture
def wire(broker: RunningBroker) -> Iterator[Wire]:
    with Wire(broker.port, "test") as wire:
        yield wire


@pytest.fixture
def topic(broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    """A topic of its own, with a low bound on its batches."""
    name = f"t-{abs(hash(request.node.name)):x}"
    made = CREATE_TOPICS.Request
    config = made.Config(name="max.message.bytes", value=str(BATCH_BYTES_MAX))
    asked = made.Topic(name=name, num_partitions=1, replication_factor=1, configs=[config])
    with Wire(broker.port, "test") as wire:
        answer = wire.call(CREATE_TOPICS, 5, made(topics=[asked], timeout_ms=10_000))
    assert answer.topics[0].error_code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)
    return name


def batch(*values: bytes, **about: Any) -> bytes:
    records = [Record(at, 1_000 + at, None, value) for at, value in enumerate(values)]
    return build_batch(records, **about)


def sealed(data: bytearray) -> bytes:
    """The batch with its checksum made right."""
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return bytes(data)


def changed(position: int, pack: str, value: int, *, seal: bool = True) -> bytes:
    data = bytearray(batch(b"one", b"two"))
    struct.pack_into(pack, data, position, value)
    return sealed(data) if seal else bytes(data)


# -- frames ------------------------------------------------------------------------------------

HOSTILE = {
    "random bytes": random.Random(1).randbytes(400),
    "a web browser": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "a TLS hello": bytes.fromhex("16030100c8010000c40303") + bytes(190),
    "a length of zero": struct.pack(">i", 0),
    "a negative length": struct.pack(">i", -1),
    "the least length": struct.pack(">i", -(2**31)),
    "an absurd length": struct.pack(">i", 2**31 - 1),
    "a request larger than allowed": struct.pack(">i", REQUEST_BYTES_MAX + 1),
    "less than a header": frame(b"\0\3"),
    "an unknown api": frame(header(9_999, 0)),
    "a negative api": frame(header(-1, 0)),
    "an unknown version": frame(header(3, 99)),
    "a negative version": frame(header(3, -1)),
    "a client id longer than the frame": frame(struct.pack(">hhih", 3, 0, 1, 500)),
    "a client id of negative length": frame(struct.pack(">hhih", 3, 0, 1, -7)),
    "a client id that is no text": frame(header(3, 0, b"\xff\xfe")),
    "a request without content": frame(header(2, 1)),
    "a count of two thousand millions": frame(header(3, 0) + struct.pack(">i", 2**31 - 1)),
    "a negative count": frame(header(3, 0) + struct.pack(">i", -2)),
    "a name cut short": frame(header(3, 0) + struct.pack(">ih", 1, 30) + b"abc"),
    "a name that is no text": frame(header(3, 0) + struct.pack(">ih", 1, 2) + b"\xff\xff"),
    "a varint without an end": frame(header(3, 9) + b"\0" + b"\xff" * 12),
    "a count as a huge varint": frame(header(3, 9) + b"\0" + b"\xff\xff\xff\xff\x0f"),
    "tagged fields without number": frame(header(3, 9) + b"\xff\xff\xff\xff\x0f"),
    "a tagged field longer than all": frame(header(3, 9) + b"\1\0\xff\xff\x03" + b"x" * 9),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_frame_closes_its_own_connection_with_one_line(
    broker: RunningBroker, wire: Wire, name: str
) -> None:
    assert asks(wire)
    before = len(broker.log.splitlines())
    with raw(broker) as link:
        link.sendall(HOSTILE[name])
        assert is_closed(link)
    (line,) = broker.log.splitlines()[before:]
    assert " WARNING neve.broker: 127.0.0.1: closed: " in line
    assert asks(wire)


def test_too_many_elements_for_one_request_close_the_connection(
    broker: RunningBroker, wire: Wire
) -> None:
    """A hundred times as much memory as bytes on the wire."""
    request = METADATA.Request(topics=[METADATA.Request.Topic(name="")] * 200_000)
    with Wire(broker.port, "greedy") as greedy, pytest.raises(ConnectionError):
        greedy.call(METADATA, 9, request)
    assert asks(wire)


def test_an_unknown_version_of_the_question_for_versions_is_answered(broker: RunningBroker) -> None:
    with raw(broker) as link:
        link.sendall(frame(header(18, 77, correlation=5) + b"\0what will be then"))
        (size, correlation) = struct.unpack(">ii", link.recv(8, socket.MSG_WAITALL))
        data = memoryview(link.recv(size - 4, socket.MSG_WAITALL))
        answer = API_VERSIONS.Response.decode(data, 0)
    assert correlation == 5
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.api_keys


def test_half_a_request_and_good_bye_is_no_event(broker: RunningBroker, wire: Wire) -> None:
    before = broker.log
    for cut in (1, 3, 5, 9):
        with raw(broker) as link:
            link.sendall(frame(header(18, 0))[:cut])
    with raw(broker) as link:
        link.sendall(struct.pack(">i", 500_000) + bytes(200_000))
    assert asks(wire)
    assert broker.log == before


def test_what_was_asked_before_a_hostile_frame_is_answered(broker: RunningBroker) -> None:
    with raw(broker) as link:
        good = b"".join(frame(header(18, 0, correlation=number)) for number in range(5))
        link.sendall(good + struct.pack(">i", -5))
        assert answers(link, 5) == list(range(5))
        assert is_closed(link)


def test_ten_thousand_requests_at_once_are_answered_in_order(broker: RunningBroker) -> None:
    count = 10_000
    with raw(broker) as link:
        link.sendall(b"".join(frame(header(18, 0, b"", number)) for number in range(count)))
        assert answers(link, count) == list(range(count))


# -- records -----------------------------------------------------------------------------------

REFUSED = {
    "a wrong checksum": (changed(17, ">I", 1, seal=False), ErrorCode.CORRUPT_MESSAGE),
    "a flipped bit": (
        bytes(batch(b"abc")[:-1]) + bytes([batch(b"abc")[-1] ^ 1]),
        ErrorCode.CORRUPT_MESSAGE,
    ),
    "magic 0": (changed(16, ">b", 0), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "magic 1": (changed(16, ">b", 1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "magic 9": (changed(16, ">b", 9), ErrorCode.CORRUPT_MESSAGE),
    "a length beyond its end": (changed(8, ">i", 5_000), ErrorCode.CORRUPT_MESSAGE),
    "a length below its header": (changed(8, ">i", 10), ErrorCode.CORRUPT_MESSAGE),
    "a negative length": (changed(8, ">i", -1), ErrorCode.CORRUPT_MESSAGE),
    "half a batch": (batch(b"abc")[:40], ErrorCode.CORRUPT_MESSAGE),
    "a count above the offsets": (changed(57, ">i", 3), ErrorCode.INVALID_RECORD),
    "a count below the offsets": (changed(57, ">i", 1), ErrorCode.INVALID_RECORD),
    "a count of none": (changed(57, ">i", 0), ErrorCode.INVALID_RECORD),
    "a negative count": (changed(57, ">i", -2), ErrorCode.CORRUPT_MESSAGE),
    "an absurd last offset": (changed(23, ">i", 2**31 - 1), ErrorCode.INVALID_RECORD),
    "an unknown codec": (changed(21, ">h", 6), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "a control batch": (changed(21, ">h", CONTROL), ErrorCode.INVALID_RECORD),
    "a transactional batch": (
        changed(21, ">h", TRANSACTIONAL),
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "two batches": (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
    "a batch and a little more": (batch(b"a") + b"more", ErrorCode.INVALID_RECORD),
    "an oversized batch": (batch(b"x" * BATCH_BYTES_MAX), ErrorCode.MESSAGE_TOO_LARGE),
    "nothing": (b"", ErrorCode.INVALID_RECORD),
    "null": (None, ErrorCode.INVALID_RECORD),
    "sixty-one zeros": (bytes(61), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_batch_is_refused_and_the_next_one_is_taken(
    broker: RunningBroker, wire: Wire, topic: str, name: str
) -> None:
    bad, code = REFUSED[name]
    before = broker.log
    first = produce(wire, topic, batch(b"first")).base_offset
    answer = produce(wire, topic, bad)
    assert ErrorCode(answer.error_code) is code
    assert answer.base_offset == -1
    assert answer.error_message
    assert produce(wire, topic, batch(b"second")).base_offset == first + 1
    assert broker.log == before


def test_a_bad_batch_does_not_touch_the_others_of_its_request(wire: Wire, topic: str) -> None:
    good, bad = produce_request(topic, batch(b"good")), produce_request(topic, b"bad" * 30)
    unknown = produce_request("no-such-topic", batch(b"lost"))
    both = [*bad.topic_data, *unknown.topic_data, *good.topic_data]
    request = PRODUCE.Request(acks=-1, timeout_ms=9_000, topic_data=both)
    codes = [
        row.partition_responses[0].error_code for row in wire.call(PRODUCE, 9, request).responses
    ]
    assert codes == [ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"topic": "no-such-topic"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "a/b"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": ""}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic": "x" * 30_000}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"acks": 5}, ErrorCode.INVALID_REQUIRED_ACKS),
        ({"transactional_id": "t"}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_a_produce_request_about_nothing_there_is(
    wire: Wire, topic: str, asked: dict[str, Any], code: ErrorCode
) -> None:
    answer = produce(wire, **{"topic": topic, "batch": batch(b"x"), **asked})
    assert ErrorCode(answer.error_code) is code
    assert produce(wire, topic, batch(b"x")).error_code == 0


def test_an_unknown_topic_id_is_told_to_producers_and_consumers(wire: Wire) -> None:
    unknown = bytes(range(16))
    request = produce_request("", batch(b"x"))
    request.topic_data[0].topic_id = unknown
    rows = wire.call(PRODUCE, 13, request).responses[0].partition_responses
    assert rows[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    asked = fetch_request("", (0, 0))
    asked.topics[0].topic_id = unknown
    rows = wire.call(FETCH, 13, asked).responses[0].partitions
    assert rows[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_acks_0_learns_of_an_error_by_losing_its_connection(
    broker: RunningBroker, wire: Wire
) -> None:
    before = len(broker.log.splitlines())
    with Wire(broker.port, "hasty") as hasty:
        hasty.send(API_VERSIONS, 0, API_VERSIONS.Request())
        hasty.send(PRODUCE, 9, produce_request("no-such-topic", batch(b"x"), acks=0))
        assert hasty.receive().error_code == 0  # what was asked before is answered
        with pytest.raises(ConnectionError):
            hasty._exactly(1)
    (line,) = broker.log.splitlines()[before:]
    assert "acks=0 failed: UNKNOWN_TOPIC_OR_PARTITION" in line
    assert asks(wire)


# -- names and offsets -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "é", "x" * 250, "\0"])
def test_an_illegal_name_is_refused(wire: Wire, name: str) -> None:
    asked = CREATE_TOPICS.Request.Topic(name=name, num_partitions=1, replication_factor=1)
    request = CREATE_TOPICS.Request(topics=[asked], timeout_ms=1_000)
    answer = wire.call(CREATE_TOPICS, 5, request)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert answer.topics[0].error_message


def test_a_name_as_long_as_a_request_has_an_answer(wire: Wire) -> None:
    """The reason repeats the name, and the field it stands in has a bound."""
    for version in (1, 5):
        asked = CREATE_TOPICS.Request.Topic(name="x" * 32_700, num_partitions=1)
        request = CREATE_TOPICS.Request(topics=[asked], timeout_ms=1_000)
        answer = wire.call(CREATE_TOPICS, version, request)
        assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("offset", [-1, -(2**63), 5, 2**62])
def test_an_offset_that_is_not_there(wire: Wire, topic: str, offset: int) -> None:
    produce(wire, topic, batch(b"only"))
    found = fetch(wire, topic, offset + (10_000 if offset == 5 else 0))
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(wire, topic, 0).error_code == 0


def test_odd_fetches_are_answered(wire: Wire, topic: str) -> None:
    produce(wire, topic, batch(b"only"))
    for number in (-1, 1, 2**31 - 1):
        row = wire.call(FETCH, 12, fetch_request(topic, (number, 0))).responses[0].partitions[0]
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for odd in ({"max_bytes": -5}, {"max_bytes": 0}, {"min_bytes": -1}, {"max_wait_ms": -1}):
        found = fetch(wire, topic, 0, **odd)
        assert (found.error_code, bool(found.records)) == (0, True)
    answer = wire.call(FETCH, 12, fetch_request(topic, (0, 0), session_id=77, session_epoch=4))
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("timestamp", [-6, -100, -(2**63)])
def test_an_odd_time_is_refused(wire: Wire, topic: str, timestamp: int) -> None:
    request = LIST_OFFSETS.Request
    part = request.Partition(partition_index=0, timestamp=timestamp)
    asked = request(replica_id=-1, topics=[request.Topic(name=topic, partitions=[part])])
    row = wire.call(LIST_OFFSETS, 5, asked).topics[0].partitions[0]
    assert row.error_code != 0
