"""Attacks on a broker's time: each keeps the event loop busy at little cost to the attacker."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable

from neve.protocol.frames import request_frame
from neve.protocol.messages.join_group import JOIN_GROUP
from neve.protocol.messages.metadata import METADATA
from neve.protocol.messages.produce import PRODUCE
from neve.protocol.wire import uvarint
from neve.records.reference import Record, build_batch
from support.hostile import create_topic, frame, header, produce_request
from support.hostile_attacks import Attack, Target

MIB = 1 << 20
TOPIC = "bad"
AT_ONCE = 2_000
FLOOD_CONNECTIONS = 4_000


def produce_frame(request: object) -> bytes:
    return b"".join(request_frame(PRODUCE, 9, 1, "x", PRODUCE.Request.encode(request, 9)))


def keep_sending(target: Target, data: bytes, connections: int = 1) -> None:
    """Send the same bytes on each of some connections, reading and dropping all answers."""
    _side_by_side(connections, lambda: _send_on_one(target, data))


def _send_on_one(target: Target, data: bytes) -> None:
    """Until time is up; opened again where the broker closes it."""
    while not target.is_over:
        with contextlib.suppress(OSError), _connected(target) as link:
            reads = threading.Thread(target=_drop_answers, args=(link,), daemon=True)
            reads.start()
            while not target.is_over:
                link.sendall(data)


def _connected(target: Target) -> socket.socket:
    link = socket.create_connection(("127.0.0.1", target.port), 10)
    link.settimeout(max(0.1, target.seconds_left))
    return link


def _drop_answers(link: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while link.recv(MIB):
            pass


def _side_by_side(count: int, work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# -- much to read in few bytes -------------------------------------------------------------------


def tagged_fields(target: Target) -> None:
    """Requests of 30 MiB that are nothing but empty tagged fields, in the header and after it."""
    count = 15 * MIB
    fields = uvarint(count) + b"\x7f\0" * count
    in_header = frame(header(3, 9) + fields)
    in_body = frame(header(3, 9) + b"\0" + b"\1\0\0\0" + fields)
    keep_sending(target, in_header + in_body)


def many_elements(target: Target) -> None:
    """Requests about as many topics as one may name."""
    topics = [METADATA.Request.Topic(name=f"no-{at}") for at in range(49_000)]
    request = METADATA.Request(topics=topics, allow_auto_topic_creation=False)
    metadata = b"".join(request_frame(METADATA, 9, 1, "x", METADATA.Request.encode(request, 9)))
    parts = [PRODUCE.Request.Partition(index=at, records=b"x") for at in range(49_000)]
    named = PRODUCE.Request.Topic(name=TOPIC, partition_data=parts)
    refused = produce_frame(PRODUCE.Request(acks=1, timeout_ms=1_000, topic_data=[named]))
    keep_sending(target, metadata + refused, connections=4)


# -- many requests -------------------------------------------------------------------------------


def prepare_topic(target: Target) -> None:
    with target.wire() as wire:
        create_topic(wire, TOPIC)


def tiny_produces(target: Target) -> None:
    """Batches of one small record each, without a pause and without wanting answers."""
    batch = build_batch([Record(0, 1_000, None, b"x")])
    keep_sending(target, produce_frame(produce_request(TOPIC, batch, acks=0)) * AT_ONCE)


def pipelined_versions(target: Target) -> None:
    """The cheapest request there is, sent as fast as it can be."""
    keep_sending(target, frame(header(18, 0)) * AT_ONCE, connections=4)


# -- requests that trickle in --------------------------------------------------------------------

TRICKLE_BYTES_PER_SECOND = 66 * 1024
TRICKLE_PAUSE_SECONDS = 0.05


def trickle(target: Target) -> None:
    """A request of nearly 32 MiB that takes eight minutes; again when the broker closes it."""
    step = bytes(int(TRICKLE_BYTES_PER_SECOND * TRICKLE_PAUSE_SECONDS))
    while not target.is_over:
        with contextlib.suppress(OSError), _connected(target) as link:
            link.sendall(struct.pack(">i", 32 * MIB - 1))
            while not target.is_over:
                link.sendall(step)
                time.sleep(TRICKLE_PAUSE_SECONDS)


def trickles(target: Target) -> None:
    _side_by_side(20, lambda: trickle(target))


# -- groups --------------------------------------------------------------------------------------


def joins(target: Target) -> None:
    """Join one new group after another, for the longest session there is, and come back to none."""
    protocol = JOIN_GROUP.Request.Protocol(name="range", metadata=b"m")
    request = JOIN_GROUP.Request(
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=1_800_000,
        protocol_type="consumer",
        protocols=[protocol],
    )
    with _connected(target) as link:
        reads = threading.Thread(target=_drop_answers, args=(link,), daemon=True)
        reads.start()
        for number in itertools.count():
            request.group_id = f"begun-{number}"
            data = JOIN_GROUP.Request.encode(request, 5)
            link.sendall(b"".join(request_frame(JOIN_GROUP, 5, 1, "x", data)))
            if target.is_over:
                break


# -- connections ---------------------------------------------------------------------------------


def connection_flood(target: Target) -> None:
    """As many connections as there may be from one address, and more, again and again."""
    links: list[socket.socket] = []
    while not target.is_over:
        with contextlib.suppress(OSError):
            links.append(_connected(target))
        if len(links) == FLOOD_CONNECTIONS:
            for link in links:
                link.close()
            links.clear()


ATTACKS = [
    Attack("tagged-fields", tagged_fields),
    Attack("many-elements", many_elements, prepare_topic),
    Attack("tiny-produces", tiny_produces, prepare_topic),
    Attack("pipelined-versions", pipelined_versions),
    Attack("trickled-request", trickle),
    Attack("trickled-requests", trickles),
    Attack("connection-flood", connection_flood),
    Attack("joins", joins),
]
