"""Finds batches within bytes that hold many, without walking from their start each time.

Batches are adjacent, and only their length fields show where the next one begins. A map walks over
them once, as far as requested, and notes one position per NOTED_EVERY_BYTES. A search then takes a
few steps, and the map's memory is bounded by the size of the bytes. The map also notes where chunks
ended, because readers continue there. It does not hold the bytes, so that caches can drop them.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from typing import NamedTuple

from neve.errors import DamagedError
from neve.records.batch import HEADER_BYTES, LENGTH_END

NOTED_EVERY_BYTES = 16 * 1024
# Cuts that are noted, one for each reader within these bytes.
CUTS_MAX = 32
LENGTH_MIN = HEADER_BYTES - LENGTH_END

# Base offset, length, and (after epoch, magic, checksum and attributes) the last offset delta.
_STEP = struct.Struct(">qi11xi")


class Cut(NamedTuple):
    """Whole batches: bytes from start to end, the first base offset, the offset after the last."""

    start: int
    end: int
    first_offset: int
    next_offset: int


class BatchMap:
    """Positions of batches in verified bytes."""

    __slots__ = ("_bases", "_cuts", "_ends", "_key", "_positions")

    def __init__(self, base_offset: int, key: str) -> None:
        self._key = key
        self._positions = [0]
        self._bases = [base_offset]
        # The offset after the batch before each noted one.
        self._ends = [base_offset]
        self._cuts: dict[int, int] = {}

    def cut(
        self,
        data: memoryview,
        offset: int,
        room: int,
        *,
        at_least_one: bool,
        limit: int | None = None,
    ) -> Cut | None:
        """Return the batches from the one of `offset`, or the next one, within `room` bytes.

        Returns None if there is none, or if it does not fit and `at_least_one` is false. Batches
        that begin at the offset `limit` or above are left out.
        """
        start, first, _ = self._first_ending_above(data, offset)
        if start == len(data) or (limit is not None and first >= limit):
            return None
        end, following = self._fitting(data, start, first, start + room, at_least_one=at_least_one)
        if limit is not None and following > limit:
            end, _, following = self._first_ending_above(data, limit, from_base=True)
        if end == start:
            return None
        self._note_cut(following, end)
        return Cut(start, end, first, following)

    def _first_ending_above(
        self, data: memoryview, offset: int, *, from_base: bool = False
    ) -> tuple[int, int, int]:
        """Find the first batch whose last offset (or whose base) is at or above `offset`.

        Returns its position, its base, and the offset after the batch before it.
        """
        position = self._cuts.get(offset)
        if position is not None:
            following = offset
        else:
            noted = max(0, bisect_right(self._bases, offset) - 1)
            position, following = self._positions[noted], self._ends[noted]
        size, note_at = len(data), self._positions[-1] + NOTED_EVERY_BYTES
        while position < size:
            base, length, delta = self._step(data, position)
            if (base if from_base else base + delta) >= offset:
                return position, base, following
            position += length + LENGTH_END
            following = base + delta + 1
            if note_at <= position < size:
                note_at = self._note(data, position, following)
        return position, following, following

    def _fitting(
        self, data: memoryview, start: int, first: int, stop: int, *, at_least_one: bool
    ) -> tuple[int, int]:
        """Return where the last batch that fits before `stop` ends, and the offset after it."""
        size, note_at = len(data), self._positions[-1] + NOTED_EVERY_BYTES
        noted = max(0, bisect_right(self._positions, stop) - 1)
        position, following = self._positions[noted], self._ends[noted]
        if position <= start:
            position, following = start, first
        while position < size:
            base, length, delta = self._step(data, position)
            end = position + length + LENGTH_END
            if end > stop and not (at_least_one and position == start):
                break
            position, following = end, base + delta + 1
            if note_at <= position < size:
                note_at = self._note(data, position, following)
        return position, following

    def _step(self, data: memoryview, position: int) -> tuple[int, int, int]:
        """Return base offset, length field and last offset delta of the batch at `position`."""
        try:
            step: tuple[int, int, int] = _STEP.unpack_from(data, position)
        except struct.error:
            step = (0, 0, 0)
        if not LENGTH_MIN <= step[1] <= len(data) - position - LENGTH_END:
            raise DamagedError(
                self._key, f"no batch begins {position} bytes into the range that was read"
            )
        return step

    def _note(self, data: memoryview, position: int, following: int) -> int:
        """Note a batch. Returns the position from which on to note the next one."""
        self._positions.append(position)
        self._bases.append(self._step(data, position)[0])
        self._ends.append(following)
        return position + NOTED_EVERY_BYTES

    def _note_cut(self, following: int, end: int) -> None:
        if len(self._cuts) >= CUTS_MAX:
            self._cuts.clear()
        self._cuts[following] = end
