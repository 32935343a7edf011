"""Record batches of a given size, for measurements that depend only on the number of bytes."""

from __future__ import annotations

import functools

from neve.errors import InvalidError
from neve.records.reference import Record, build_batch

TIMESTAMP_MS = 1_767_225_600_000
# Length fields grow with the value, so a few corrections reach the size, or none does.
ATTEMPTS_MAX = 8


@functools.cache
def batch_of_bytes(size_bytes: int) -> bytes:
    """Return a batch with one record and exactly this size. Raises InvalidError if none exists."""
    value_bytes = size_bytes
    for _ in range(ATTEMPTS_MAX):
        batch = build_batch([Record(0, TIMESTAMP_MS, None, bytes(value_bytes))], leader_epoch=0)
        if len(batch) == size_bytes:
            return batch
        value_bytes = max(0, value_bytes - len(batch) + size_bytes)
    raise InvalidError(f"no batch with one record and no key has {size_bytes} bytes")
