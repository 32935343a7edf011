"""Producing and reading, as every client does it: each record arrives once, in order, whole.

A test class inherits `RecordScenarios`; its module gives a fixture `client`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from conformance.clients import WAIT_SECONDS, Client, Sent, check_same, fresh, numbered, take
from conformance.confluent_client import ConfluentClient
from support.brokers import RunningBroker
from support.wire import codecs_in_log

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
WAYS: list[dict[str, Any]] = [
    {"acks": 0},
    {"acks": 1},
    {"acks": "all"},
    {"acks": "all", "idempotent": True},
]
T0_MS = 1_700_000_000_000
AWKWARD = [
    Sent(None, None),
    Sent(b"", b""),
    Sent(None, b"only a value"),
    Sent(b"only a key", None),
    Sent(b"\x00\xff" * 9, bytes(range(256))),
    Sent(b"k", b"v", (("null", None), ("empty", b""), ("twice", b"1"), ("twice", b"2"))),
    Sent(b"k", b"v", (("", b"under an empty name"), ("ünïcödé ❄", b"\x00\xfe"))),
    Sent(b"k", b"v", tuple((f"h{number}", b"x" * number) for number in range(40))),
    Sent("schlüssel".encode(), b"long " * 5_000),
]


def noise(size: int, seed: int) -> bytes:
    """Bytes that no codec makes smaller."""
    return random.Random(seed).randbytes(size)


def _can_send(client: Client, record: Sent) -> bool:
    if record.key is None and record.value is None:
        return client.sends_nothing
    return client.sends_null_headers or all(value is not None for _, value in record.headers)


def leader_address(bootstrap: str, topic: str) -> tuple[str, int]:
    """Where the leader of a topic's first partition is."""
    about = ConfluentClient(bootstrap).admin.list_topics(topic, WAIT_SECONDS)
    leader = about.brokers[about.topics[topic].partitions[0].leader]
    return leader.host, leader.port


class RecordScenarios:
    @pytest.fixture(autouse=True)
    def _nothing_left_open(self, client: Client) -> Iterator[None]:
        yield
        client.opened.close()

    def test_a_topic_s_own_codec(self, broker: RunningBroker, client: Client) -> None:
        sent = [record for record in AWKWARD if _can_send(client, record)]
        for codec in ("uncompressed", "gzip", "snappy", "lz4", "zstd"):
            topic = fresh(f"kept-{codec}")
            client.create(topic, compression_type=codec)
            as_sent = "gzip" if codec == "uncompressed" else "none"
            client.produce(topic, sent, codec=as_sent, idempotent=codec == "lz4")
            reader = client.reader(topic)
            check_same(take(reader, len(sent)), sent)
            reader.close()
            leader = leader_address(broker.bootstrap, topic)
            found = asyncio.run(codecs_in_log(leader, topic))
            assert found == {codec.replace("uncompressed", "none")}

    @pytest.mark.parametrize("codec", CODECS)
    def test_every_codec_in_every_way_of_sending(self, client: Client, codec: str) -> None:
        topic = fresh(f"way-{codec}")
        client.create(topic)
        awkward = [record for record in AWKWARD if _can_send(client, record)]
        sent: list[Sent] = []
        for way in WAYS:
            offsets = client.produce(topic, awkward, codec=codec, **way)
            if way["acks"] != 0:
                assert offsets == list(range(len(sent), len(sent) + len(awkward)))
            sent += awkward
        reader = client.reader(topic)
        check_same(take(reader, len(sent)), sent)

    def test_what_another_client_sent(self, client: Client, broker: RunningBroker) -> None:
        topic = fresh("foreign")
        client.create(topic)
        for codec in CODECS:
            ConfluentClient(broker.bootstrap).produce(topic, AWKWARD, codec=codec)
        check_same(take(client.reader(topic), 5 * len(AWKWARD)), 5 * AWKWARD)

    def test_values_near_the_largest(self, client: Client) -> None:
        topic = fresh("large")
        client.create(topic)
        sent = [Sent(b"%d" % number, noise(900_000, number)) for number in range(4)]
        client.produce(topic, sent)
        client.produce(topic, sent[:1], codec="gzip")
        reader = client.reader(topic)
        check_same(take(reader, 5), [*sent, sent[0]])

    def test_many_partitions(self, client: Client) -> None:
        topic = fresh("wide")
        client.create(topic, partitions=40)
        sent = [
            Sent(b"%d" % number, b"value %d" % number, partition=number % 40)
            for number in range(2_000)
        ]
        client.produce(topic, sent, idempotent=True)
        reader = client.reader(topic, *range(40))
        check_same(take(reader, len(sent)), sent)

    def test_from_an_offset_by_seeking_and_by_time(self, client: Client) -> None:
        topic = fresh("places")
        client.create(topic)
        sent = [
            Sent(b"k", b"value %d" % number, timestamp_ms=T0_MS + 1_000 * number)
            for number in range(500)
        ]
        for at in range(0, 500, 100):
            client.produce(topic, sent[at : at + 100], codec=CODECS[at // 100])
        reader = client.reader(topic, offset=123)
        check_same(take(reader, 377), sent[123:], first_offset=123)
        assert reader.position(0) == 500
        for offset in (0, 99, 100, 499, 250):
            reader.seek(0, offset)
            check_same(take(reader, 500 - offset), sent[offset:], first_offset=offset)
        assert reader.offset_at(0, T0_MS) == 0
        assert reader.offset_at(0, T0_MS + 249_001) == 250
        assert reader.offset_at(0, T0_MS + 250_000) == 250
        assert reader.offset_at(0, T0_MS - 1_000_000) == 0
        # Beyond the last record one client is told "none", another the end.
        assert reader.offset_at(0, T0_MS + 500_000) in (None, 500)
        assert reader.bounds(0) == (0, 500)

    def test_pausing_and_resuming(self, client: Client) -> None:
        topic = fresh("paused")
        client.create(topic, partitions=2)
        reader = client.reader(topic, 0, 1)
        reader.poll()
        reader.pause(1)
        sent = [*numbered(20, partition=0), *numbered(20, partition=1)]
        client.produce(topic, sent)
        got = take(reader, 20)
        assert {record.partition for record in got} == {0}
        reader.resume(1)
        check_same([*got, *take(reader, 20)], sent)

    def test_a_waiting_reader_is_told_at_once(self, client: Client) -> None:
        topic = fresh("tail")
        client.create(topic)
        reader = client.reader(topic, **client.long_waits)
        assert reader.poll(0.5) == []
        began = time.monotonic()
        client.produce(topic, numbered(1))
        check_same(take(reader, 1), numbered(1))
        assert time.monotonic() - began < 10

    def test_an_empty_partition_does_not_hold_up_a_full_one(self, client: Client) -> None:
        topic = fresh("half-empty")
        client.create(topic, partitions=3)
        sent = numbered(30, partition=1)
        client.produce(topic, sent)
        began = time.monotonic()
        reader = client.reader(topic, 0, 1, 2, **client.long_waits)
        check_same(take(reader, 30), sent)
        # A client may ask for some of the partitions first, and then waits once for those.
        assert time.monotonic() - began < 25

    def test_a_batch_larger_than_a_fetch_is_read(self, client: Client) -> None:
        topic = fresh("larger-than-a-fetch")
        client.create(topic)
        sent = [Sent(None, noise(200_000, number)) for number in range(3)]
        client.produce(topic, sent)
        reader = client.reader(topic, **client.small_fetches)
        check_same(take(reader, 3), sent)

    def test_read_committed_gives_everything(self, client: Client) -> None:
        topic = fresh("isolated")
        client.create(topic)
        client.produce(topic, numbered(100), idempotent=True)
        reader = client.reader(topic, isolation_level="read_committed")
        check_same(take(reader, 100), numbered(100))

    def test_the_time_of_appending(self, client: Client) -> None:
        topic = fresh("append-time")
        client.create(topic, message_timestamp_type="LogAppendTime")
        sent = [Sent(b"k", b"v", timestamp_ms=T0_MS + number) for number in range(10)]
        before_ms = int(time.time() * 1000) - 1
        for codec in ("none", "zstd"):
            client.produce(topic, sent, codec=codec)
        after_ms = int(time.time() * 1000) + 1
        reader = client.reader(topic)
        got = take(reader, 20)
        assert [record.offset for record in got] == list(range(20))
        assert all(record.log_append_time for record in got)
        assert all(before_ms <= record.timestamp_ms <= after_ms for record in got)
        assert reader.offset_at(0, got[0].timestamp_ms) == 0
        assert reader.offset_at(0, got[-1].timestamp_ms) in (0, 10)  # both in one millisecond

    def test_a_value_that_is_too_large_is_refused(self, client: Client) -> None:
        topic = fresh("too-large")
        client.create(topic, max_message_bytes="10000")
        with pytest.raises(Exception, match=client.too_large):
            client.produce(topic, [Sent(None, noise(20_000, 1))])
        client.produce(topic, numbered(1))
        reader = client.reader(topic)
        check_same(take(reader, 1), numbered(1))

    def test_a_topic_is_created_when_it_is_written_to(self, client: Client) -> None:
        topic = fresh("unannounced")
        client.produce(topic, numbered(5))
        reader = client.reader(topic)
        check_same(take(reader, 5), numbered(5))

    def test_a_reader_goes_on_in_a_topic_that_was_created_again(self, client: Client) -> None:
        topic = fresh("again")
        client.create(topic)
        client.produce(topic, numbered(50))
        reader = client.reader(topic, **client.frequent_looks)
        check_same(take(reader, 50), numbered(50))
        client.delete(topic)
        with contextlib.suppress(Exception):  # the reader may have been quicker, by asking for it
            client.create(topic)
        sent = numbered(10, start=1_000)
        assert client.produce(topic, sent) == list(range(10))
        got = _take_despite_errors(reader, 10)
        check_same(got, sent)
        assert reader.bounds(0) == (0, 10)


def _take_despite_errors(reader: Any, count: int) -> list[Any]:
    """A client may be told once that the topic it knew is gone."""
    got: list[Any] = []
    ends_at = time.monotonic() + WAIT_SECONDS
    while len(got) < count and time.monotonic() < ends_at:
        try:
            got += reader.poll(0.1)
        except Exception as error:
            assert "nknown" in str(error) or "UNKNOWN" in str(error), error  # noqa: PT017
    return got
