"""What one connection owes its client: answers in the order of its requests, and how they leave.

All that is ready leaves in one write. What waits behind an answer that is not ready, and what the
transport keeps because its client does not read, counts against `fetch.unsent.bytes`, once all that
could leave has left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from neve import runtime
from neve.broker.answers import Answer, PlainAnswer
from neve.broker.metrics import Metrics
from neve.broker.peers import queued_bytes
from neve.broker.produce_answer import ProduceAnswer
from neve.broker.unsent import Unsent
from neve.protocol.messages.produce import PRODUCE
from neve.store.port import Buffer

UNREAD = "answers-not-read"
"""Why a connection is closed whose client does not take its answers."""
# Small answers are joined into one write; records go out from where they lie.
JOIN_BYTES_MAX = 64 * 1024
# A gather write of more parts is slower than joining them.
PARTS_MAX = 256


class Outbox:
    """The answers of one connection. `full` says that its client does not read them.

    `close` ends the connection at once: others need the memory.
    """

    __slots__ = (
        "_close",
        "_is_reader",
        "_metrics",
        "_sent_large",
        "_unsent",
        "answers",
        "counted_bytes",
        "full",
        "held_bytes",
        "to",
        "unsent_bytes",
    )

    def __init__(self, metrics: Metrics, unsent: Unsent, close: Callable[[str], None]) -> None:
        self._metrics = metrics
        self._unsent = unsent
        self._close = close
        self.counted_bytes = 0  # among the unsent answers of all connections
        self.unsent_bytes = 0  # in the transport, while `full`
        self.answers: deque[Answer] = deque()
        self.held_bytes = 0  # of answers that are made, and wait for one before them
        self.full = False
        self._is_reader = False
        self._sent_large = False  # since it was last known whether the client reads
        self.to: asyncio.Transport = cast(asyncio.Transport, None)

    def add_made(self, parts: list[Buffer]) -> None:
        """An answer that was there at once."""
        answer = PlainAnswer(parts)
        self.answers.append(answer)
        self.held_bytes += answer.held_bytes

    def complete(self, answer: PlainAnswer, parts: list[Buffer]) -> None:
        """An answer that took its place before is made."""
        answer.complete(parts)
        self.held_bytes += answer.held_bytes

    def flush(self) -> None:
        """Send what is ready, and count what is left."""
        answers = self.answers
        parts: list[Buffer] = []
        alike: list[ProduceAnswer] = []
        while answers and answers[0].ready:
            answer = answers.popleft()
            parts += answer.frame()
            if type(answer) is ProduceAnswer:
                if alike and not answer.is_like(alike[0]):
                    self._count(alike)
                    alike = []
                alike.append(answer)
            else:
                self.held_bytes -= answer.held_bytes
        if alike:
            self._count(alike)
        if parts:
            self._write(parts)
        if self.full:
            self.unsent_bytes = self.to.get_write_buffer_size()
        self._settle()

    def give_up_late(self, now: float) -> bool:
        """Give up waiting for commits beyond their time-out. Returns whether there were any.

        Only the first answer that is not ready holds others up.
        """
        late = False
        for answer in self.answers:
            if answer.ready:
                continue
            if not isinstance(answer, ProduceAnswer) or answer.deadline > now:
                break
            answer.give_up()
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

    def count_silent(self, answer: ProduceAnswer) -> None:
        """A produce request is done with that gets no answer."""
        self._count([answer])

    def _count(self, alike: list[ProduceAnswer]) -> None:
        """Produce requests are done with, and count for the same."""
        answer, times = alike[0], len(alike)
        seconds = runtime.monotonic() - answer.started
        self._metrics.answered(PRODUCE.key, seconds, answer.error, times)
        if answer.commits and not answer.error:
            self._metrics.ack.add(seconds, times)

    def _settle(self) -> None:
        held = self.held_bytes + self.unsent_bytes
        if held != self.counted_bytes:
            changed_by = held - self.counted_bytes
            self.counted_bytes = held
            self._unsent.changed(self, changed_by)

    def note_unsent(self, count: int) -> None:
        """So many bytes are in the transport, because the client does not read."""
        self.unsent_bytes = count
        self._settle()

    @property
    def is_reader(self) -> bool:
        """Whether the client is known to have taken the last large answer, and all before it."""
        if self._sent_large:
            self._sent_large = False
            self._is_reader = not self.full and not queued_bytes(self.to)
        return self._is_reader

    def has_moved(self) -> bool:
        """Whether the client has taken something since we last looked."""
        return self.full and self.to.get_write_buffer_size() < self.unsent_bytes

    def drop(self) -> None:
        """Others need the memory: close the connection."""
        self._close(UNREAD)
        self.clear()

    def clear(self) -> None:
        """Nobody will read any of it."""
        self.answers.clear()
        self.held_bytes = 0
        self.note_unsent(0)
