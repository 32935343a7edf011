"""Writing and reading files past the system's cache.

The cache takes a fresh page for every 4 KiB, copies them there, and keeps account of each until it
is given back: with a quick disk that is most of what a write costs, or a read of what nobody read
before. A disk can also take bytes from where they lie and put them where they are wanted, if
memory, place in the file and length are whole blocks. Who makes a large object makes it in `room`;
what is left behind the last block, and whatever a file system does not take this way, is written
and read as usual.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator

import numpy as np

from neve.store.aligned_buffers import BLOCK_BYTES, address, aligned_buffer

# Of what is large so much at once: what is small, and waited for, need not wait behind all of it.
STEP_BYTES = 1024 * 1024
# Where the system has no such way, nothing goes it.
_DIRECT = getattr(os, "O_DIRECT", 0)


def write_blocks(descriptor: int, data: memoryview) -> int:
    """Write as many blocks as can go directly to a new file; how many bytes they are."""
    if not _DIRECT or address(np.frombuffer(data, np.uint8)) % BLOCK_BYTES:
        return 0
    rest = data[: len(data) - len(data) % BLOCK_BYTES]
    written = 0
    with _until_refused(descriptor):
        fcntl.fcntl(descriptor, fcntl.F_SETFL, _DIRECT)
        while rest:
            count = os.write(descriptor, rest[:STEP_BYTES])
            rest = rest[count:]
            written += count
    return written


def read_blocks(descriptor: int, start: int, end: int) -> tuple[memoryview, int]:
    """Memory for these bytes of a file, and how many of them are there: what could go directly."""
    first = start - start % BLOCK_BYTES
    blocks = aligned_buffer(-(-(end - first) // BLOCK_BYTES) * BLOCK_BYTES).data
    read = 0
    if _DIRECT:
        with _until_refused(descriptor):
            fcntl.fcntl(descriptor, fcntl.F_SETFL, _DIRECT)
            while first + read < end:
                count = os.preadv(descriptor, [blocks[read : read + STEP_BYTES]], first + read)
                if count == 0:  # the file has become shorter
                    break
                read += count
    wanted = blocks[start - first : end - first]
    return wanted, max(0, min(first + read, end) - start)


@contextlib.contextmanager
def _until_refused(descriptor: int) -> Iterator[None]:
    """What is done in here ends where the file system refuses, and the file is as it was."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EINVAL:  # that is how a file system refuses
            raise
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, 0)
