"""Writing a file past the system's cache.

The cache takes a fresh page for every 4 KiB, copies them there, and keeps account of each until it
is given back: with a quick disk that is most of what a write costs. A disk can also take bytes from
where they lie, if memory, place in the file and length are whole blocks. Who makes a large object
makes it in `room`; what is left behind the last block, and whatever a file system does not take
this way, is written as usual.
"""

from __future__ import annotations

import errno
import fcntl
import os

import numpy as np

from neve.store.room import BLOCK_BYTES, address

# Of a large object so much at once: what is small, and waited for, need not wait behind all of it.
STEP_BYTES = 1024 * 1024
# Where the system has no such writes, nothing is written so.
_DIRECT = getattr(os, "O_DIRECT", 0)


def write_blocks(descriptor: int, data: memoryview) -> int:
    """Write as many blocks as can go directly to a new file; how many bytes they are."""
    if not _DIRECT or address(np.frombuffer(data, np.uint8)) % BLOCK_BYTES:
        return 0
    rest = data[: len(data) - len(data) % BLOCK_BYTES]
    written = 0
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, _DIRECT)
        while rest:
            count = os.write(descriptor, rest[:STEP_BYTES])
            rest = rest[count:]
            written += count
    except OSError as error:
        if error.errno != errno.EINVAL:  # that is how a file system refuses
            raise
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, 0)
    return written
