"""The responses of one connection, in the order of its requests, and how they are sent.

All that is ready leaves in one write. A response that waits behind one that is not ready, and bytes
that the transport keeps because the client does not read, count against `fetch.unsent.bytes`, once
all that could leave has left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from neve import runtime
from neve.broker.metrics import Metrics
from neve.broker.peers import queued_bytes
from neve.broker.pending_response import HandlerResponse, PendingResponse
from neve.broker.produce_response import PendingProduce
from neve.broker.unsent_responses import UnsentResponses
from neve.protocol.messages.produce import PRODUCE
from neve.store.port import Buffer

UNREAD = "answers-not-read"
"""Why a connection is closed whose client does not read its responses."""
# Small responses are joined into one write; records are sent from where they lie.
JOIN_BYTES_MAX = 64 * 1024
# A gather write of more parts is slower than joining them.
PARTS_MAX = 256


class ResponseQueue:
    """The responses of one connection. It is `full` while the client does not read them.

    `close` ends the connection at once: others need the memory.
    """

    __slots__ = (
        "_close",
        "_is_reader",
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
        self, metrics: Metrics, unsent: UnsentResponses, close: Callable[[str], None]
    ) -> None:
        self._metrics = metrics
        self._unsent = unsent
        self._close = close
        self.counted_bytes = 0  # among the unsent responses of all connections
        self.unsent_bytes = 0  # in the transport, while `full`
        self.pending: deque[PendingResponse] = deque()
        self.held_bytes = 0  # of responses that are ready, and wait for one before them
        self.full = False
        self._is_reader = False
        self._sent_large = False  # since it was last known whether the client reads
        self.to: asyncio.Transport = cast(asyncio.Transport, None)

    def add_ready(self, parts: list[Buffer]) -> None:
        """Add a response that is complete."""
        response = HandlerResponse(parts)
        self.pending.append(response)
        self.held_bytes += response.held_bytes

    def complete(self, response: HandlerResponse, parts: list[Buffer]) -> None:
        """Complete a response that has its place in the queue."""
        response.complete(parts)
        self.held_bytes += response.held_bytes

    def flush(self) -> None:
        """Send what is ready, and count what is left."""
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

    def give_up_late(self, now: float) -> bool:
        """Give up waiting for commits beyond their time-out. Returns whether there were any.

        Only the first response that is not ready holds up others.
        """
        late = False
        for response in self.pending:
            if response.ready:
                continue
            if not isinstance(response, PendingProduce) or response.deadline > now:
                break
            response.give_up()
            late = True
        return late

    def _write(self, parts: list[Buffer]) -> None:
        size = sum(map(len, parts))
        self._metrics.bytes_out += size
        if size <= JOIN_BYTES_MAX or len(parts) > PARTS_MAX:
            self.to.write(b"".join(parts))
        else:
            self.to.writelines(parts)
            self._sent_large = True

    def count_silent(self, response: PendingProduce) -> None:
        """Count a produce request that gets no response."""
        self._count([response])

    def _count(self, alike: list[PendingProduce]) -> None:
        """Count produce requests of one moment with the same outcome."""
        response, times = alike[0], len(alike)
        seconds = runtime.monotonic() - response.started
        self._metrics.answered(PRODUCE.key, seconds, response.error, times)
        if response.commits and not response.error:
            self._metrics.ack.add(seconds, times)

    def _settle(self) -> None:
        held = self.held_bytes + self.unsent_bytes
        if held != self.counted_bytes:
            changed_by = held - self.counted_bytes
            self.counted_bytes = held
            self._unsent.changed(self, changed_by)

    def note_unsent(self, count: int) -> None:
        """Note how many bytes the transport keeps because the client does not read."""
        self.unsent_bytes = count
        self._settle()

    @property
    def is_reader(self) -> bool:
        """Whether the client is known to have read the last large response, and all before it."""
        if self._sent_large:
            self._sent_large = False
            self._is_reader = not self.full and not queued_bytes(self.to)
        return self._is_reader

    def has_moved(self) -> bool:
        """Whether the client has read anything since the last look."""
        return self.full and self.to.get_write_buffer_size() < self.unsent_bytes

    def drop(self) -> None:
        """Close the connection, since others need the memory."""
        self._close(UNREAD)
        self.clear()

    def clear(self) -> None:
        """Drop all responses: the client is gone."""
        self.pending.clear()
        self.held_bytes = 0
        self.note_unsent(0)
