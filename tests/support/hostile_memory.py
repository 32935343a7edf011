"""Attacks on a broker's memory: each makes it hold bytes that no client will ask for."""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import time

from neve.protocol.frames import request_frame
from neve.protocol.messages.create_topics import CREATE_TOPICS
from neve.protocol.messages.fetch import FETCH
from neve.protocol.messages.find_coordinator import FIND_COORDINATOR
from neve.protocol.messages.list_offsets import LIST_OFFSETS
from neve.protocol.messages.offset_commit import OFFSET_COMMIT
from neve.protocol.messages.produce import PRODUCE
from neve.records.compression import GZIP
from neve.records.reference import Record, build_batch
from support.hostile import create_topic, fetch_request, produce
from support.hostile_attacks import Attack, Target, send_what_fits

MIB = 1 << 20
FETCH_VERSION = 12


def large_batch(size: int) -> bytes:
    return build_batch([Record(0, 1_000, None, bytes(size))])


# -- answers that are not read -------------------------------------------------------------------

UNREAD_BATCH_BYTES = 10_000_000
UNREAD_BATCHES = UNREAD_FETCHERS = 120
"""A batch for each, of which few are in the tail cache: what is read twice is held once."""


def prepare_unread_fetches(target: Target) -> None:
    with target.wire() as wire:
        create_topic(wire, "unread", configs={"max.message.bytes": str(16 * MIB)})
        for _ in range(UNREAD_BATCHES):
            assert produce(wire, "unread", large_batch(UNREAD_BATCH_BYTES)).error_code == 0


def unread_fetches(target: Target) -> None:
    """Ask for records in large batches on many connections, and read none of them."""
    with contextlib.ExitStack() as links:
        for number in range(UNREAD_FETCHERS):
            link = links.enter_context(target.deaf())
            asked = fetch_request(
                "unread", (0, number % UNREAD_BATCHES), max_bytes=16 * MIB, max_wait_ms=500
            )
            one = request_frame(
                FETCH, FETCH_VERSION, 1, "deaf", FETCH.Request.encode(asked, FETCH_VERSION)
            )
            send_what_fits(link, b"".join(one) * 4)
        target.wait()


SMALL_BYTES = 60_000


def prepare_unread_small_fetches(target: Target) -> None:
    with target.wire() as wire:
        create_topic(wire, "small")
        assert produce(wire, "small", large_batch(SMALL_BYTES)).error_code == 0


def unread_small_fetches(target: Target) -> None:
    """Ask for answers of less than 64 KiB many times on many connections, and read none."""
    asked = fetch_request("small", (0, 0))
    one = request_frame(FETCH, FETCH_VERSION, 1, "deaf", FETCH.Request.encode(asked, FETCH_VERSION))
    with contextlib.ExitStack() as links:
        for _ in range(200):
            send_what_fits(links.enter_context(target.deaf()), b"".join(one) * 500)
        target.wait()


# -- searches by time ----------------------------------------------------------------------------

TIMED_PARTITIONS, TIMED_BATCH_BYTES = 48, 6_000_000
SEARCHERS = 100


def prepare_searches(target: Target) -> None:
    """Batches that must be decompressed to find a time in them, which is not the first."""
    rows = [
        Record(at, 1_000 * (at + 1), None, os.urandom(TIMED_BATCH_BYTES // 20)) for at in range(20)
    ]
    batch = build_batch(rows, codec=GZIP)
    with target.wire() as wire:
        limits = {"max.message.bytes": str(16 * MIB)}
        create_topic(wire, "timed", TIMED_PARTITIONS, limits)
        for partition in range(TIMED_PARTITIONS):
            assert produce(wire, "timed", batch, partition=partition).error_code == 0


def searches(target: Target) -> None:
    """Ask for offsets by time, of all partitions at once, again and again."""
    part = LIST_OFFSETS.Request.Partition
    parts = [part(partition_index=at, timestamp=15_000) for at in range(TIMED_PARTITIONS)]
    topic = LIST_OFFSETS.Request.Topic(name="timed", partitions=parts)
    asked = LIST_OFFSETS.Request(replica_id=-1, topics=[topic])
    body = LIST_OFFSETS.Request.encode(asked, 5)
    one = b"".join(request_frame(LIST_OFFSETS, 5, 1, "searcher", body))
    with contextlib.ExitStack() as links:
        for _ in range(SEARCHERS):
            send_what_fits(links.enter_context(target.deaf(1 << 16)), one * 10)
        target.wait()


# -- what many partitions cost ------------------------------------------------------------------

WIDE_PARTITIONS = 1_000


def prepare_waiting_fetches(target: Target) -> None:
    with target.wire() as wire:
        create_topic(wire, "wide", WIDE_PARTITIONS)


WAITERS = 200
"""Connections with a few fetches each: as many as one connection may have at once."""


def wait_for_many(target: Target, links: contextlib.ExitStack, end_offset: int = 0) -> None:
    """Have many connections wait for records of many partitions, all at once.

    `end_offset` is that of partition 0. The others are empty.
    """
    places = [(0, end_offset), *((partition, 0) for partition in range(1, WIDE_PARTITIONS))]
    asked = fetch_request("wide", *places, max_wait_ms=600_000)
    body = FETCH.Request.encode(asked, FETCH_VERSION)
    one = b"".join(request_frame(FETCH, FETCH_VERSION, 1, "waiter", body))
    for _ in range(WAITERS):
        send_what_fits(links.enter_context(target.deaf(1 << 16)), one * 4)


def waiting_fetches(target: Target) -> None:
    """Wait for records of many partitions that never come, on many connections."""
    with contextlib.ExitStack() as links:
        wait_for_many(target, links)
        target.wait()


def woken_fetches(target: Target) -> None:
    """Wait for records of many partitions, and produce one that they all wait for."""
    with target.wire() as wire:
        for offset in itertools.count():
            with contextlib.ExitStack() as links:
                wait_for_many(target, links, offset)
                time.sleep(min(2.0, target.seconds_left))
                produce(wire, "wide", build_batch([Record(0, 1_000, None, b"x")]))
                time.sleep(min(1.0, target.seconds_left))
            if target.is_over:
                return


def sessions(target: Target) -> None:
    """Open fetch sessions of very many partitions that do not exist, and leave them."""
    places = [(partition, 0) for partition in range(9_999)]
    while not target.is_over:
        with target.wire() as wire:
            for number in range(20):
                asked = fetch_request(f"none-{number}", *places, session_epoch=0)
                wire.call(FETCH, FETCH_VERSION, asked)
                if target.is_over:
                    break


# -- what is remembered --------------------------------------------------------------------------

MADE_UP_PARTITIONS = 200


def prepare_made_up(target: Target) -> None:
    with target.wire() as wire:
        create_topic(wire, "made-up", MADE_UP_PARTITIONS)


def producers(target: Target) -> None:
    """Produce each batch under another producer id."""
    numbers = itertools.count(1_000_000)
    part = PRODUCE.Request.Partition
    with target.wire() as wire:
        while not target.is_over:
            batches = [
                build_batch(
                    [Record(0, 1_000, None, b"x")],
                    producer_id=next(numbers),
                    producer_epoch=0,
                    base_sequence=0,
                )
                for _ in range(MADE_UP_PARTITIONS)
            ]
            rows = [part(index=at, records=batch) for at, batch in enumerate(batches)]
            topic = PRODUCE.Request.Topic(name="made-up", partition_data=rows)
            wire.call(PRODUCE, 9, PRODUCE.Request(acks=1, timeout_ms=10_000, topic_data=[topic]))


def offsets(target: Target) -> None:
    """Commit offsets with as much text as is allowed, for one group after the other."""
    part = OFFSET_COMMIT.Request.Partition
    rows = [
        part(partition_index=at, committed_offset=1, committed_metadata="x" * 4_096)
        for at in range(MADE_UP_PARTITIONS)
    ]
    topic = OFFSET_COMMIT.Request.Topic(name="made-up", partitions=rows)
    with target.wire() as wire:
        wire.call(FIND_COORDINATOR, 2, FIND_COORDINATOR.Request(key="g"))
        for number in itertools.count():
            request = OFFSET_COMMIT.Request(group_id=f"group-{number}", topics=[topic])
            wire.call(OFFSET_COMMIT, 7, request)
            if target.is_over:
                return


def topics(target: Target) -> None:
    """Create topics of many partitions, until no more are allowed and after."""
    made = CREATE_TOPICS.Request
    with target.wire(timeout_seconds=60) as wire:
        for number in itertools.count():
            asked = made.Topic(name=f"wide-{number}", num_partitions=1_000, replication_factor=1)
            wire.call(CREATE_TOPICS, 5, made(topics=[asked], timeout_ms=30_000))
            if target.is_over:
                return
            time.sleep(0.2)


# -- requests that do not come to an end ---------------------------------------------------------


def unfinished_requests(target: Target) -> None:
    """Begin large requests on many connections, and end none."""
    with contextlib.ExitStack() as links:
        for _ in range(500):
            link = links.enter_context(target.deaf())
            send_what_fits(link, struct.pack(">i", MIB) + bytes(MIB - 10))
        target.wait()


def half_requests(target: Target) -> None:
    """Send 128 KiB of a large request on very many connections, and no more."""
    half = struct.pack(">i", MIB) + bytes(128 * 1024)
    with contextlib.ExitStack() as links:
        for _ in range(4_900):
            if target.is_over:
                return
            send_what_fits(links.enter_context(target.deaf()), half)
        target.wait()


ATTACKS = [
    Attack("half-requests", half_requests, settings={"broker_connections_per_address_max": 5_000}),
    Attack("unfinished-requests", unfinished_requests),
    Attack("unread-fetches", unread_fetches, prepare_unread_fetches),
    Attack("waiting-fetches", waiting_fetches, prepare_waiting_fetches),
    Attack("woken-fetches", woken_fetches, prepare_waiting_fetches),
    Attack("sessions", sessions),
    Attack("producer-ids", producers, prepare_made_up),
    Attack("offset-metadata", offsets, prepare_made_up),
    Attack("partitions", topics),
    Attack("searches-by-time", searches, prepare_searches),
    Attack("unread-small-fetches", unread_small_fetches, prepare_unread_small_fetches),
]
