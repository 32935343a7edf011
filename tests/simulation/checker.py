"""The checker: it works only from what callers were told, and from what readers were shown.

Every batch that is sent has a payload of its own. The checker knows which were acknowledged, at
which offset, and in which order each producer sent them. At the end the whole log is read, once the
store is healthy, and must agree.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import dataclass, field


class ViolationError(AssertionError):
    """A promise was broken."""


@dataclass
class Sent:
    """One batch a producer sent: one payload, `records` records."""

    producer: int
    sequence: int
    partition: Hashable
    payload: bytes
    records: int
    base_offset: int | None = None  # told to the producer, once acknowledged
    refused: bool = False


@dataclass
class Checker:
    """What callers were told, and what readers saw."""

    sent: list[Sent] = field(default_factory=list)
    seen: dict[tuple[Hashable, int], bytes] = field(default_factory=dict)
    starts: dict[Hashable, int] = field(default_factory=dict)
    operations: int = 0
    # Streams that somebody sealed and serves behind: incarnation -> end.
    ends: dict[int, int] = field(default_factory=dict)

    def send(self, producer: int, sequence: int, partition: Hashable, records: int) -> Sent:
        payload = f"producer {producer} batch {sequence} partition {partition}".encode()
        batch = Sent(producer, sequence, partition, payload, records)
        self.sent.append(batch)
        self.operations += 1
        return batch

    def acknowledged(self, batch: Sent, base_offset: int) -> None:
        batch.base_offset = base_offset

    def saw(self, partition: Hashable, offset: int, payload: bytes) -> None:
        """A reader was shown a record: it must never be shown another at that offset."""
        known = self.seen.setdefault((partition, offset), payload)
        if known != payload:
            raise ViolationError(
                f"partition {partition} offset {offset}: a reader saw {known!r}, then {payload!r}"
            )

    def sealed(self, incarnation: int, end: int) -> None:
        known = self.ends.setdefault(incarnation, end)
        if known != end:
            raise ViolationError(f"stream {incarnation} ends at {known} and at {end}")

    def committed(self, incarnation: int, number: int) -> None:
        end = self.ends.get(incarnation)
        if end is not None and number >= end:
            raise ViolationError(f"stream {incarnation} committed {number} behind its end {end}")

    def check(self, logs: dict[Hashable, dict[int, bytes]]) -> None:
        """Compare the final logs (partition -> offset -> payload) with all that was told."""
        for partition, log in logs.items():
            _no_hole(partition, log, self.starts.get(partition, 0))
        for batch in self.sent:
            if batch.base_offset is not None:
                self._is_there(batch, logs[batch.partition])
        self._no_reorder()
        for (partition, offset), payload in self.seen.items():
            start = self.starts.get(partition, 0)
            if offset >= start and logs[partition].get(offset) != payload:
                raise ViolationError(
                    f"partition {partition} offset {offset}: a reader saw {payload!r}, the log "
                    f"has {logs[partition].get(offset)!r}"
                )
        _nothing_twice(logs)

    def _is_there(self, batch: Sent, log: dict[int, bytes]) -> None:
        assert batch.base_offset is not None
        for offset in range(batch.base_offset, batch.base_offset + batch.records):
            if offset < self.starts.get(batch.partition, 0):
                continue
            if log.get(offset) != batch.payload:
                raise ViolationError(
                    f"partition {batch.partition} offset {offset}: acknowledged {batch.payload!r}, "
                    f"the log has {log.get(offset)!r}"
                )

    def _no_reorder(self) -> None:
        latest: dict[tuple[int, Hashable], Sent] = {}
        for batch in self.sent:
            if batch.base_offset is None:
                continue
            before = latest.get((batch.producer, batch.partition))
            if before is not None and before.base_offset >= batch.base_offset:  # type: ignore[operator]
                raise ViolationError(
                    f"partition {batch.partition}: {before.payload!r} was sent and acknowledged "
                    f"before {batch.payload!r}, but has the higher offset"
                )
            latest[batch.producer, batch.partition] = batch


def _no_hole(partition: Hashable, log: dict[int, bytes], start: int) -> None:
    offsets = sorted(log)
    if not offsets:
        return
    if offsets[0] > start:
        raise ViolationError(
            f"partition {partition}: starts at {start}, first record at {offsets[0]}"
        )
    for before, after in itertools.pairwise(offsets):
        if after != before + 1:
            raise ViolationError(f"partition {partition}: a hole between {before} and {after}")


def _nothing_twice(logs: dict[Hashable, dict[int, bytes]]) -> None:
    """A payload is sent once, or again by an idempotent producer: its records stand there once."""
    for partition, log in logs.items():
        last_seen: dict[bytes, int] = {}
        for offset in sorted(log):
            before = last_seen.get(log[offset])
            if before is not None and before != offset - 1:
                raise ViolationError(
                    f"partition {partition}: {log[offset]!r} stands at {before} and at {offset}"
                )
            last_seen[log[offset]] = offset
