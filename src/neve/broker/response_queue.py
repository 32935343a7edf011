"""The responses of one connection, sent in the order of its requests.

A request takes its place in the queue when it is read. All responses up to the first that is not
ready are sent in one write. Then ready responses behind that one, and bytes that the transport
keeps because the client does not read, count against `fetch.unsent.bytes`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from neve import runtime
from neve.broker.metrics import Metrics
from neve.broker.produce_response import PendingProduce
from neve.broker.tcp_state import has_unacknowledged_bytes
from neve.broker.unsent_responses import UnsentResponses
from neve.protocol.messages.produce import PRODUCE
from neve.store.port import Buffer

UNREAD = "responses-not-read"
"""The reason for closing a connection whose client does not read its responses."""
# Small responses are copied into one write. Records are sent without a copy.
JOIN_BYTES_MAX = 64 * 1024
# A gather write of more parts is slower than copying them.
PARTS_MAX = 256


class PendingResponse(Protocol):
    """A place in the queue. Once it is `ready`, `frame` may be called, once.

    A stopping broker sends a response that is `owed` before it ends.
    """

    @property
    def owed(self) -> bool: ...

    @property
    def ready(self) -> bool: ...

    @property
    def held_bytes(self) -> int: ...

    def frame(self) -> list[Buffer]: ...


class HandlerResponse:
    """The response of a handler: ready at once, or when it is completed."""

    __slots__ = ("_parts", "held_bytes", "owed")

    def __init__(self, parts: list[Buffer] | None = None, *, owed: bool = True) -> None:
        self._parts: list[Buffer] = []
        self.held_bytes = 0
        self.owed = owed
        if parts is not None:
            self.complete(parts)

    def complete(self, parts: list[Buffer]) -> None:
        """Set the encoded frame."""
        self._parts = parts
        self.held_bytes = sum(map(len, parts))

    @property
    def ready(self) -> bool:
        return bool(self._parts)

    def frame(self) -> list[Buffer]:
        return self._parts


def _is_closed(_: str) -> None:
    """Abort a connection that is closed already."""


class ResponseQueue:
    """The responses of one connection. It is `full` while the client does not read them.

    `abort` closes the connection at once, for a reason, to free its memory.
    """

    __slots__ = (
        "_abort",
        "_client_keeps_up",
        "_metrics",
        "_sent_large",
        "_unsent",
        "counted_bytes",
        "full",
        "held_bytes",
        "pending",
        "to",
        "unsent_bytes",
    )

    def __init__(
        self, metrics: Metrics, unsent: UnsentResponses, abort: Callable[[str], None]
    ) -> None:
        self._metrics = metrics
        self._unsent = unsent
        self._abort = abort
        self.counted_bytes = 0  # counted in `unsent`
        self.unsent_bytes = 0  # kept by the transport, while `full`
        self.pending: deque[PendingResponse] = deque()
        self.held_bytes = 0  # of ready responses behind one that is not ready
        self.full = False
        self._client_keeps_up = False
        self._sent_large = False  # since `client_keeps_up` was last determined
        self.to: asyncio.Transport = cast(asyncio.Transport, None)

    def add_ready(self, parts: list[Buffer]) -> None:
        """Add a response that is complete."""
        response = HandlerResponse(parts)
        self.pending.append(response)
        self.held_bytes += response.held_bytes

    def complete(self, response: HandlerResponse, parts: list[Buffer]) -> None:
        """Complete a response that is in the queue."""
        response.complete(parts)
        self.held_bytes += response.held_bytes

    def flush(self) -> None:
        """Send the ready responses, and count the bytes that are left."""
        pending = self.pending
        parts: list[Buffer] = []
        alike: list[PendingProduce] = []
        while pending and pending[0].ready:
            response = pending.popleft()
            parts += response.frame()
            if type(response) is PendingProduce:
                if alike and not response.is_like(alike[0]):
                    self._count(alike)
                    alike = []
                alike.append(response)
            else:
                self.held_bytes -= response.held_bytes
        if alike:
            self._count(alike)
        if parts:
            self._write(parts)
        if self.full:
            self.unsent_bytes = self.to.get_write_buffer_size()
        self._settle()

    def time_out_produces(self, now: float) -> bool:
        """Make late produce responses ready, with a time-out. Returns whether there were any.

        Stops at the first response that still waits, because no later one can be sent before it.
        """
        any_late = False
        for response in self.pending:
            if response.ready:
                continue
            if not isinstance(response, PendingProduce) or response.deadline > now:
                break
            response.time_out()
            any_late = True
        return any_late

    def _write(self, parts: list[Buffer]) -> None:
        size = sum(map(len, parts))
        self._metrics.bytes_out += size
        if size <= JOIN_BYTES_MAX or len(parts) > PARTS_MAX:
            self.to.write(b"".join(parts))
        else:
            self.to.writelines(parts)
            self._sent_large = True

    def count_silent(self, response: PendingProduce) -> None:
        """Count a produce request with acks=0, which gets no response."""
        self._count([response])

    def _count(self, alike: list[PendingProduce]) -> None:
        """Count produce requests that arrived together and have the same outcome."""
        response, times = alike[0], len(alike)
        seconds = runtime.monotonic() - response.started
        self._metrics.request_completed(PRODUCE.key, seconds, response.error, times)
        if response.commits and not response.error:
            self._metrics.ack.add(seconds, times)

    def _settle(self) -> None:
        held = self.held_bytes + self.unsent_bytes
        if held != self.counted_bytes:
            changed_by = held - self.counted_bytes
            self.counted_bytes = held
            self._unsent.changed(self, changed_by)

    def note_unsent(self, count: int) -> None:
        """Count the bytes that the transport keeps because the client does not read."""
        self.unsent_bytes = count
        self._settle()

    @property
    def client_keeps_up(self) -> bool:
        """Whether the client has read its last large response, and all before it."""
        if self._sent_large:
            self._sent_large = False
            self._client_keeps_up = not self.full and not has_unacknowledged_bytes(self.to)
        return self._client_keeps_up

    def has_read_more(self) -> bool:
        """Whether the client has read anything since the bytes were last counted."""
        return self.full and self.to.get_write_buffer_size() < self.unsent_bytes

    def drop(self) -> None:
        """Abort the connection, because others need the memory."""
        self._abort(UNREAD)
        self.clear()

    def clear(self) -> None:
        """Drop all responses of a closed connection, and the reference to it."""
        self._abort = _is_closed
        self.pending.clear()
        self.held_bytes = 0
        self.note_unsent(0)
