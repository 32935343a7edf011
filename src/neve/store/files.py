"""Operations of a folder store on single files."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from neve.errors import NotFoundError

NOT_AN_OBJECT = "this is a folder, pipe, socket or device, not an object"
# A socket, a device without a driver, a link to itself: opening them fails.
_CANNOT_BE_OPENED = frozenset({errno.ENXIO, errno.ENODEV, errno.ELOOP})


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


def read_no_further(descriptor: int) -> None:
    """Turn off the kernel's read-ahead for this file."""
    with contextlib.suppress(OSError, AttributeError):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)


def leave_cache(descriptor: int) -> None:
    """Drop the file's pages from the page cache."""
    with contextlib.suppress(OSError, AttributeError):  # advice that not every system supports
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
