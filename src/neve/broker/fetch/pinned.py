"""Records that keep much more than themselves in memory."""

from __future__ import annotations

from neve.log.reading.record_chunk import RecordChunk

# Smaller buffers, or buffers less than so many times as large as the records, are not copied.
PINNED_BYTES_MIN = 8 * 1024 * 1024
PINNED_TIMES_MAX = 4
# Where clients do not take their answers, a copy costs less than what it frees.
PINNED_TIMES_MAX_PILED = 2


def freed(chunk: RecordChunk, *, piled: bool) -> RecordChunk:
    """The same records, copied where they would keep much more than themselves in memory.

    They lie in what was read from the store; a client that takes its time must not pin that.
    """
    pieces = {id(part.obj): memoryview(part.obj).nbytes for part in chunk.parts}
    worth_it = PINNED_TIMES_MAX_PILED * chunk.size
    if not piled:
        worth_it = max(PINNED_BYTES_MIN, PINNED_TIMES_MAX * chunk.size)
    if sum(pieces.values()) <= worth_it:
        return chunk
    return chunk._replace(parts=[memoryview(b"".join(chunk.parts))])
