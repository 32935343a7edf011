"""Batches that are whole and contradict themselves.

A broker accepts a producer's batch as it is and does not decompress it. So its checksum may be
right although it has fewer or more records than its header claims, or another codec. Every reader
fails there, and only decoding detects it.
"""

from __future__ import annotations

from typing import NamedTuple

from neve.errors import DamagedError
from neve.records.batch import Buffer, walk
from neve.records.reference import decode_batch


class Contradiction(NamedTuple):
    """One batch. Offsets from `first` to before `end` cannot be read."""

    first: int
    end: int
    reason: str


def contradictions(batches: Buffer, key: str) -> list[Contradiction]:
    """Those among batches that have passed all other checks."""
    found = []
    for position, header in walk(batches, key=key):
        try:
            decode_batch(batches, position, key=key)
        except DamagedError as error:
            reason = f"its producer sent a batch that contradicts itself: {error.reason}"
            found.append(Contradiction(header.base_offset, header.next_offset, reason))
    return found
