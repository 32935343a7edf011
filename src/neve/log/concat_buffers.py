"""Many buffers made into one, in memory that a disk can read, without holding up other threads.

`bytes.join` keeps the interpreter's lock for all of its copying, some 20 ms for a segment, in which
the event loop stands still. An array lets it go while it copies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neve.store.aligned_buffers import aligned_buffer
from neve.store.port import Buffer

# Smaller parts are joined first: a copy of its own costs each more than its bytes do.
SMALL_BYTES = 16 * 1024
RUN_BYTES = 256 * 1024


def concat_buffers(parts: Sequence[Buffer]) -> memoryview:
    """Return all parts back to back, as bytes that do not change any more."""
    size = sum(map(len, parts))
    if size < RUN_BYTES:
        return memoryview(b"".join(parts))
    whole = aligned_buffer(size)
    at = 0
    for part in _runs(parts):
        whole[at : at + len(part)] = np.frombuffer(part, np.uint8)
        at += len(part)
    whole.flags.writeable = False
    return whole.data


def _runs(parts: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes in parts that are worth a copy each."""
    runs: list[Buffer] = []
    small: list[Buffer] = []
    size = 0
    for part in parts:
        if len(part) < SMALL_BYTES:
            small.append(part)
            size += len(part)
        if small and (len(part) >= SMALL_BYTES or size >= RUN_BYTES):
            runs.append(b"".join(small))
            small, size = [], 0
        if len(part) >= SMALL_BYTES:
            runs.append(part)
    if small:
        runs.append(b"".join(small))
    return runs
