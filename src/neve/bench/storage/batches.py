"""Record batches of a given size, for measurements in which only their bytes count."""

from __future__ import annotations

import functools

from neve.errors import InvalidError
from neve.records.reference import Record, build_batch

TIMESTAMP_MS = 1_767_225_600_000


@functools.cache
def batch_of_bytes(size_bytes: int) -> bytes:
    """One record in a batch of exactly this size."""
    value_bytes = size_bytes
    while True:
        batch = build_batch([Record(0, TIMESTAMP_MS, None, bytes(value_bytes))], leader_epoch=0)
        excess = len(batch) - size_bytes
        if excess == 0:
            return batch
        value_bytes -= excess
        if value_bytes < 0:
            raise InvalidError(f"no batch with a record has {size_bytes} bytes")
