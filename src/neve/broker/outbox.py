"""What one connection owes its client: answers in the order of its requests, and how they leave.

All that is ready leaves in one write. What waits behind an answer that is not ready, and what the
transport keeps because its client does not read, counts against `fetch.unsent.bytes`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

from neve import runtime
from neve.broker.answers import Answer, PlainAnswer, Unsent
from neve.broker.metrics import Metrics
from neve.broker.produce_answer import ProduceAnswer
from neve.broker.router import PRODUCE
from neve.store.port import Buffer

# Small answers are joined into one write; records go out from where they lie.
JOIN_BYTES_MAX = 64 * 1024
# A gather write of more parts is slower than joining them.
PARTS_MAX = 256


class Outbox:
    """The answers of one connection. `full` says that its client does not read them."""

    __slots__ = ("_metrics", "_unsent", "_unsent_bytes", "answers", "full", "held_bytes", "to")

    def __init__(self, metrics: Metrics, unsent: Unsent) -> None:
        self._metrics = metrics
        self._unsent = unsent
        self._unsent_bytes = 0  # in the transport, while `full`
        self.answers: deque[Answer] = deque()
        self.held_bytes = 0  # of answers that are made, and wait for one before them
        self.full = False
        self.to: asyncio.Transport = cast(asyncio.Transport, None)

    def add_made(self, parts: list[Buffer]) -> None:
        """An answer that was there at once."""
        answer = PlainAnswer(parts)
        self.answers.append(answer)
        self._hold(answer.held_bytes)

    def complete(self, answer: PlainAnswer, parts: list[Buffer]) -> None:
        """An answer that took its place before is made."""
        answer.complete(parts)
        self._hold(answer.held_bytes)

    def flush(self) -> None:
        """Send what is ready."""
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
            elif answer.held_bytes:
                self._hold(-answer.held_bytes)
        if alike:
            self._count(alike)
        if parts:
            self._write(parts)

    def _write(self, parts: list[Buffer]) -> None:
        size = sum(map(len, parts))
        self._metrics.bytes_out += size
        if size <= JOIN_BYTES_MAX or len(parts) > PARTS_MAX:
            self.to.write(b"".join(parts))
        else:
            self.to.writelines(parts)
        if self.full:
            self.note_unsent(self.to.get_write_buffer_size())

    def count_silent(self, answer: ProduceAnswer) -> None:
        """A produce request is done with that gets no answer."""
        self._count([answer])

    def _count(self, alike: list[ProduceAnswer]) -> None:
        """Produce requests are done with, and count for the same."""
        answer, times = alike[0], len(alike)
        seconds = runtime.monotonic() - answer.started
        self._metrics.answered(PRODUCE, seconds, answer.error, times)
        if answer.commits and not answer.error:
            self._metrics.ack.add(seconds, times)

    def _hold(self, count: int) -> None:
        self.held_bytes += count
        self._unsent.bytes_held += count

    def note_unsent(self, count: int) -> None:
        """So many bytes are in the transport, because the client does not read."""
        self._unsent.bytes_held += count - self._unsent_bytes
        self._unsent_bytes = count

    def clear(self) -> None:
        """Nobody will read any of it."""
        self.answers.clear()
        self._hold(-self.held_bytes)
        self.note_unsent(0)
