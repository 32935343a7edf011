"""Sends small pipelined produce requests on one connection, to measure the cost per request.

It uses a plain socket, because every client library costs more per request than the broker.
"""

from __future__ import annotations

import socket
import struct

from neve import runtime
from neve.bench.kafka.measure import BenchError
from neve.protocol.frames import decode_response_header, request_frame
from neve.protocol.messages.produce import PRODUCE
from neve.records.reference import Record, build_batch

VERSION = 9
VALUE_BYTES = 100
BURST_REQUESTS = 100
IN_FLIGHT_MAX = 400
TIMEOUT_SECONDS = 60


def run(address: str, topic: str, requests: int, acks: int) -> float:
    """Send requests of one record each and wait for their responses. Returns the seconds taken."""
    host, _, port = address.rpartition(":")
    burst = _frame(topic, acks) * BURST_REQUESTS
    with socket.create_connection((host, int(port)), TIMEOUT_SECONDS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        started = runtime.monotonic()
        responses = _Responses()
        sent = 0
        while responses.count < requests:
            while sent < requests and sent - responses.count <= IN_FLIGHT_MAX - BURST_REQUESTS:
                connection.sendall(burst)
                sent += BURST_REQUESTS
            responses.take(connection.recv(1 << 20))
        return runtime.monotonic() - started


def _frame(topic: str, acks: int) -> bytes:
    request = PRODUCE.Request
    batch = build_batch([Record(0, runtime.now_ms(), None, bytes(VALUE_BYTES))])
    body = request(
        acks=acks,
        timeout_ms=30_000,
        topic_data=[
            request.Topic(
                name=topic, partition_data=[request.Partition(index=0, records=memoryview(batch))]
            )
        ],
    )
    return b"".join(request_frame(PRODUCE, VERSION, 1, "bench", body.encode(VERSION)))


class _Responses:
    """Counts complete responses. Raises BenchError for an error in one of BURST_REQUESTS."""

    def __init__(self) -> None:
        self.count = 0
        self._left = b""

    def take(self, data: bytes) -> None:
        if not data:
            raise BenchError("the broker closed the connection")
        data = self._left + data
        at = 0
        while at + 4 <= len(data):
            (length,) = struct.unpack_from(">i", data, at)
            if at + 4 + length > len(data):
                break
            if self.count % BURST_REQUESTS == 0:  # decoding all would cost more than the broker
                self._check(memoryview(data)[at + 4 : at + 4 + length])
            self.count += 1
            at += 4 + length
        self._left = data[at:]

    def _check(self, frame: memoryview) -> None:
        _, end = decode_response_header(PRODUCE, VERSION, frame)
        response = PRODUCE.Response.decode(frame, VERSION, end)
        code = response.responses[0].partition_responses[0].error_code
        if code:
            raise BenchError(f"a produce request was refused with error {code}")
