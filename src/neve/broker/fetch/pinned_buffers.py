"""Copy records out of large buffers that they would keep in memory until the client reads them."""

from __future__ import annotations

from neve.log.reading.record_chunk import RecordChunk

# Records are not copied out of smaller buffers, or if the buffers are at most this many times as
# large as the records.
PINNED_BYTES_MIN = 8 * 1024 * 1024
PINNED_TIMES_MAX = 4
# While clients are slow to read, memory matters more than the cost of a copy.
PINNED_TIMES_MAX_BACKLOGGED = 2


def unpin(chunk: RecordChunk, *, backlogged: bool) -> RecordChunk:
    """Return the same records, copied if their buffers are much larger.

    The records are views of downloads, and a slow client would keep a whole download in memory.
    """
    buffers = {id(part.obj): memoryview(part.obj).nbytes for part in chunk.parts}
    accepted_bytes = PINNED_TIMES_MAX_BACKLOGGED * chunk.size
    if not backlogged:
        accepted_bytes = max(PINNED_BYTES_MIN, PINNED_TIMES_MAX * chunk.size)
    if sum(buffers.values()) <= accepted_bytes:
        return chunk
    return chunk._replace(parts=[memoryview(b"".join(chunk.parts))])
