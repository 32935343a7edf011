"""Files of a folder store: opening them, and reading and writing them without the page cache.

With a fast disk, allocating, filling and tracking a page for every 4 KiB is most of the cost of a
write, or of a read of uncached data. Direct I/O avoids it, if address, file position and length are
multiples of a block. Large objects are therefore built in `aligned_buffer`s. The bytes after the
last block, and files on file systems without direct I/O, are written and read through the cache.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from neve.errors import NotFoundError
from neve.store.aligned_buffers import BLOCK_BYTES, address, aligned_buffer

NOT_AN_OBJECT = "this is a folder, pipe, socket or device, not an object"
# A socket, a device without a driver, a link to itself: opening them fails.
_CANNOT_BE_OPENED = frozenset({errno.ENXIO, errno.ENODEV, errno.ELOOP})
# Size of one call, so that small, urgent requests do not wait behind a whole large one.
STEP_BYTES = 1024 * 1024
# 0 on systems without direct I/O.
_DIRECT = getattr(os, "O_DIRECT", 0)


def open_object(path: Path, key: str) -> int:
    """Open an object for reading. Raises NotFoundError unless it is a regular file."""
    try:
        # Opening a pipe would block until another process writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(key, "the object does not exist") from None
    except OSError as error:
        if error.errno in _CANNOT_BE_OPENED:
            raise NotFoundError(key, NOT_AN_OBJECT) from None
        raise
    if is_file(os.fstat(descriptor)):
        return descriptor
    os.close(descriptor)
    raise NotFoundError(key, NOT_AN_OBJECT)


def is_file(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode)


def file_in_place_of(root: Path) -> bool:
    """Return whether the store's folder, or a parent of it, is a file."""
    return any(path.is_file() for path in (root, *root.absolute().parents))


def disable_read_ahead(descriptor: int) -> None:
    """Turn off the kernel's read-ahead for this file."""
    with contextlib.suppress(OSError, AttributeError):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)


def drop_cached_pages(descriptor: int) -> None:
    """Drop the file's pages from the page cache."""
    with contextlib.suppress(OSError, AttributeError):  # advice that not every system supports
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def write_blocks(descriptor: int, data: memoryview) -> int:
    """Write whole blocks directly to a new file. Returns the number of bytes written."""
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
    """Read a range of a file directly. Returns its buffer and how many bytes of it were read."""
    first = start - start % BLOCK_BYTES
    blocks = aligned_buffer(-(-(end - first) // BLOCK_BYTES) * BLOCK_BYTES).data
    read = 0
    if _DIRECT:
        with _until_refused(descriptor):
            fcntl.fcntl(descriptor, fcntl.F_SETFL, _DIRECT)
            while first + read < end:
                count = os.preadv(descriptor, [blocks[read : read + STEP_BYTES]], first + read)
                if count == 0:  # the file was truncated
                    break
                read += count
    wanted = blocks[start - first : end - first]
    return wanted, max(0, min(first + read, end) - start)


@contextlib.contextmanager
def _until_refused(descriptor: int) -> Iterator[None]:
    """End the body without an error if the file system rejects direct I/O; then turn it off."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EINVAL:  # how a file system rejects direct I/O
            raise
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, 0)
