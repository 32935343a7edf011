"""What clients were told and shown: the history of a run, and the rules it has to keep.

It knows nothing of the broker. Rules that can be judged at once are judged when something comes in,
the others when the whole log was read at the end (`judge`). The first violation is kept, the run
stops, and whoever runs it raises it. The same history goes to a file, line by line, for people.

- An acknowledged record is in the log, at the offset that was told, unless the log's start passed.
- Within a partition, each producer's records stand in the order it sent them.
- An idempotent producer's record stands in a partition's log once. Others may stand there again,
  where their producer had to send them again; these are counted.
- What a reader was shown at an offset never changes, and is never missing below the log's end.
- High watermarks and log starts never go back.
- A committed group offset is none older than the last acknowledged commit, and one that was sent.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from soak.payload import BrokenValueError, Mark, read_value


class ViolationError(AssertionError):
    """A promise was broken."""


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


UNKNOWN_OFFSET = -1


class Ledger:
    """The history of one run. Any thread may write to it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._out = file.open("w", encoding="utf-8")
        self._lock = threading.RLock()
        self._began = time.monotonic()
        self.violation: ViolationError | None = None
        self.idempotent: set[int] = set()
        self.sent: Counter[tuple[int, Place]] = Counter()
        self.acked: dict[tuple[Place, Mark], int] = {}
        self._acked_at: dict[tuple[Place, int], Mark] = {}
        self.refused: Counter[str] = Counter()
        self.acked_ends: dict[Place, int] = {}
        """After the last acknowledged record of each partition."""
        self.acked_bytes = 0
        self.repeated: dict[Place, int] = {}
        self.shown: dict[Place, dict[int, tuple[Mark, int]]] = {}
        self.high_watermarks: dict[Place, int] = {}
        self.starts: dict[Place, int] = {}
        self.commits = Commits()

    def close(self) -> None:
        with self._lock:
            self._out.close()

    def note(self, event: str, *about: object) -> None:
        """One line of the history."""
        with self._lock:
            if not self._out.closed:
                moment_ms = round((time.monotonic() - self._began) * 1000)
                self._out.write(json.dumps([moment_ms, event, *about], default=str) + "\n")

    def violated(self, reason: str) -> None:
        """Keep the first violation; clients look at `violation` and stop."""
        with self._lock:
            self.note("VIOLATION", reason)
            self.violation = self.violation or ViolationError(reason)

    # -- producers ---------------------------------------------------------------------------

    def sends(self, producer: int, place: Place) -> Mark:
        """The next record of a producer for a partition."""
        with self._lock:
            sequence = self.sent[producer, place]
            self.sent[producer, place] += 1
            return Mark(producer, sequence)

    def acks(self, place: Place, mark: Mark, offset: int, size_bytes: int) -> None:
        """A producer was told that its record is there; at which offset, unless that is unknown."""
        with self._lock:
            self.note("ack", str(place), *mark, offset)
            if not 0 <= mark.sequence < self.sent[mark.producer, place]:
                self.violated(f"{place}: {mark} was acknowledged and never sent")
            known = self.acked.get((place, mark))
            if known is None:
                self.acked_bytes += size_bytes
            if known is None or known == UNKNOWN_OFFSET:
                self.acked[place, mark] = offset
            elif offset not in (UNKNOWN_OFFSET, known) and mark.producer in self.idempotent:
                self.violated(f"{place}: {mark} was acknowledged at {known}, then at {offset}")
            if offset != UNKNOWN_OFFSET:
                self._acked_at[place, offset] = mark
                self.acked_ends[place] = max(offset + 1, self.acked_ends.get(place, 0))
                shown = self.shown.get(place, {}).get(offset)
                self._compare(place, offset, mark, mark if shown is None else shown[0])

    def _compare(self, place: Place, offset: int, acked: Mark, shown: Mark) -> None:
        if acked != shown:
            self.violated(
                f"{place} offset {offset}: {acked} was acknowledged there, readers see {shown}"
            )

    def fails(self, place: Place, mark: Mark, reason: str) -> None:
        """A producer was told that its record may not be there: it may be all the same."""
        with self._lock:
            self.note("fail", str(place), *mark, reason)
            self.refused[reason] += 1

    # -- readers -----------------------------------------------------------------------------

    def shows(self, place: Place, offset: int, value: bytes | None) -> None:
        """A reader was given a record."""
        try:
            mark, checksum = read_value(value)
        except BrokenValueError as error:
            self.violated(f"{place} offset {offset}: {error}")
            return
        with self._lock:
            known = self.shown.setdefault(place, {}).setdefault(offset, (mark, checksum))
            if known != (mark, checksum):
                self.violated(f"{place} offset {offset}: a reader saw {known[0]}, then {mark}")
            self._compare(place, offset, self._acked_at.get((place, offset), mark), mark)

    def tells_bounds(self, place: Place, start: int, high_watermark: int) -> None:
        """A reader, one and the same for a partition, was told where the log starts and ends."""
        with self._lock:
            for name, known, now in (
                ("high watermark", self.high_watermarks, high_watermark),
                ("log start", self.starts, start),
            ):
                if now < known.get(place, 0):
                    self.violated(f"{place}: its {name} went back from {known[place]} to {now}")
                known[place] = max(now, known.get(place, 0))

    # -- the end -----------------------------------------------------------------------------

    def judge(self, place: Place, start: int, end: int, log: dict[int, bytes | None]) -> None:
        """Hold a partition's whole log, read from its start, against all that was told."""
        with self._lock:
            missing = [offset for offset in range(start, end) if offset not in log]
            if missing or (log and not start <= min(log) <= max(log) < end):
                self.violated(f"{place}: {start} to {end} was to be read; missing {missing[:9]}")
            for offset, value in log.items():
                self.shows(place, offset, value)
            if end < self.high_watermarks.get(place, 0):
                self.violated(f"{place}: ends at {end}, was {self.high_watermarks[place]}")
            shown = self.shown.get(place, {})
            self._judge_shown(place, start, end, log, shown)
            where = self._judge_order(place, shown)
            self._judge_acks(place, start, where)

    def _judge_shown(
        self,
        place: Place,
        start: int,
        end: int,
        log: dict[int, bytes | None],
        shown: dict[int, tuple[Mark, int]],
    ) -> None:
        for offset, (mark, _) in shown.items():
            if offset >= end or (offset >= start and offset not in log):
                self.violated(
                    f"{place} offset {offset}: a reader saw {mark}, the log ends at {end}"
                )

    def _judge_order(
        self, place: Place, shown: dict[int, tuple[Mark, int]]
    ) -> dict[Mark, list[int]]:
        """Where each record stands. Firsts are in order; only plain producers' are repeated."""
        where: dict[Mark, list[int]] = {}
        newest: dict[int, int] = {}
        # Where retention passed all readers, what looks like a first may be a repetition.
        is_whole = not shown or max(shown) + 1 == len(shown)
        self.repeated[place] = 0
        for offset in sorted(shown):
            mark = shown[offset][0]
            places = where.setdefault(mark, [])
            places.append(offset)
            if mark.sequence >= self.sent[mark.producer, place]:
                self.violated(f"{place} offset {offset}: {mark} was never sent")
            if len(places) > 1:
                self.repeated[place] += 1
                if mark.producer in self.idempotent:
                    self.violated(f"{place}: {mark} of an idempotent producer stands at {places}")
            elif mark.sequence < newest.get(mark.producer, -1) and (
                is_whole or mark.producer in self.idempotent
            ):
                self.violated(
                    f"{place} offset {offset}: {mark} stands behind "
                    f"{newest[mark.producer]}, which was sent after it"
                )
            newest[mark.producer] = max(mark.sequence, newest.get(mark.producer, -1))
        return where

    def _judge_acks(self, place: Place, start: int, where: dict[Mark, list[int]]) -> None:
        told: dict[int, list[tuple[int, int]]] = {}
        for (at, mark), offset in self.acked.items():
            if at != place:
                continue
            if offset == UNKNOWN_OFFSET:
                if mark not in where and start == 0:
                    self.violated(f"{place}: acknowledged {mark} is nowhere in the log")
                continue
            # A plain producer that was told to try again may be told the offset of a repetition.
            if mark.producer in self.idempotent:
                told.setdefault(mark.producer, []).append((mark.sequence, offset))
            if offset >= start and offset not in where.get(mark, ()):
                holds = self.shown.get(place, {}).get(offset)
                self.violated(
                    f"{place} offset {offset}: {mark} was acknowledged there, the log holds "
                    f"{holds[0] if holds else 'nothing'}"
                )
        for producer, rows in told.items():
            for before, after in itertools.pairwise(sorted(rows)):
                if before[1] >= after[1]:
                    self.violated(
                        f"{place}: producer {producer} sent {before[0]} before {after[0]} and was "
                        f"told offsets {before[1]} and {after[1]}"
                    )


class Commits:
    """Offsets that groups committed: what was sent, and what was acknowledged."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: dict[tuple[str, Place], set[int]] = {}
        self._acked: dict[tuple[str, Place], int] = {}
        self.acks = 0

    def sends(self, group: str, place: Place, offset: int) -> None:
        with self._lock:
            self._sent.setdefault((group, place), set()).add(offset)

    def acked(self, group: str, place: Place, offset: int) -> None:
        with self._lock:
            self.acks += 1
            self._acked[group, place] = max(offset, self._acked.get((group, place), -1))

    def at_least(self, group: str, place: Place) -> int:
        """What a fetch that is sent now may not fall below; -1: nothing was acknowledged."""
        with self._lock:
            return self._acked.get((group, place), -1)

    def wrong(self, group: str, place: Place, least: int, offset: int) -> str | None:
        """What is wrong with a committed offset, asked for when `least` was acknowledged."""
        with self._lock:
            if offset < least:
                return f"group {group}, {place}: {least} was committed, {offset} is told"
            if offset >= 0 and offset not in self._sent.get((group, place), ()):
                return f"group {group}, {place}: {offset} is told, which nobody committed"
            return None

    def places(self) -> list[tuple[str, Place]]:
        with self._lock:
            return sorted(self._sent)
