"""Finds batches with a correct checksum whose records contradict their header.

A broker stores a producer's batch as it is and does not decompress it. So a batch with a correct
checksum may hold fewer or more records than its header claims, or use another codec. Every reader
fails at such a batch, and only decoding detects it.
"""

from __future__ import annotations

from typing import NamedTuple

from neve.errors import DamagedError
from neve.records.batch import Buffer, walk
from neve.records.reference import decode_batch


class Contradiction(NamedTuple):
    """One such batch. Offsets from `first` up to, not including, `end` cannot be read."""

    first: int
    end: int
    reason: str


def contradictions(batches: Buffer, key: str) -> list[Contradiction]:
    """Decode batches that have passed all other checks, and return those that cannot be decoded."""
    found = []
    for position, header in walk(batches, key=key):
        try:
            decode_batch(batches, position, key=key)
        except DamagedError as error:
            reason = f"its producer sent a batch that contradicts itself: {error.reason}"
            found.append(Contradiction(header.base_offset, header.next_offset, reason))
    return found
