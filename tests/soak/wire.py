"""A plain client of Kafka's protocol: one connection, requests sent and answers read as asked.

It retries nothing and hides nothing, so a test decides what is pipelined, sent twice or abandoned.
"""

from __future__ import annotations

import itertools
import socket
import struct
from collections import deque
from typing import Any

from neve.protocol.frames import decode_response_header, request_frame

CONNECT_SECONDS = 2.0


class Wire:
    """One connection. OSError (TimeoutError among them) whenever it is of no more use."""

    def __init__(self, port: int, name: str, *, timeout_seconds: float = 10.0) -> None:
        self._name = name
        self._socket = socket.create_connection(("127.0.0.1", port), CONNECT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(timeout_seconds)
        self._correlation = itertools.count(1)
        self._expected: deque[tuple[Any, int, int]] = deque()

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, api: Any, version: int, request: Any) -> None:
        correlation_id = next(self._correlation)
        parts = request_frame(
            api, version, correlation_id, self._name, api.Request.encode(request, version)
        )
        self._socket.sendall(b"".join(bytes(part) for part in parts))
        self._expected.append((api, version, correlation_id))

    def receive(self) -> Any:
        """The answer to the oldest request that has none yet."""
        api, version, correlation_id = self._expected.popleft()
        (size,) = struct.unpack(">i", self._exactly(4))
        data = memoryview(self._exactly(size))
        found, at = decode_response_header(api, version, data)
        assert found == correlation_id, "answers are out of order"
        return api.Response.decode(data, version, at)

    def call(self, api: Any, version: int, request: Any) -> Any:
        self.send(api, version, request)
        return self.receive()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return bytes(data)
