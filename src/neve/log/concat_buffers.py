"""Concatenates buffers in block-aligned memory, without blocking other threads.

`bytes.join` holds the GIL while it copies, about 20 ms for a segment, and blocks the event loop. A
numpy array releases the GIL while it copies.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neve.store.aligned_buffers import aligned_buffer
from neve.store.port import Buffer

# Smaller parts are joined first, because the overhead of a copy exceeds the cost of their bytes.
SMALL_BYTES = 16 * 1024
RUN_BYTES = 256 * 1024


def concat_buffers(parts: Sequence[Buffer]) -> memoryview:
    """Return all parts, concatenated, as a read-only buffer."""
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
    """Return the same bytes in parts that are large enough to be copied one by one."""
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
