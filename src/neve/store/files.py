"""What a folder store asks of single files: which of them are objects, and how the system reads."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from neve.errors import NotFoundError

NOT_AN_OBJECT = "there is a folder, pipe, socket or device of this name, not an object"
# A socket, a device without a driver, a link to itself: opening them fails.
_CANNOT_BE_OPENED = frozenset({errno.ENXIO, errno.ENODEV, errno.ELOOP})


def open_object(path: Path, key: str) -> int:
    """A descriptor to read an object with; NotFoundError for what is not a regular file."""
    try:
        # A pipe would be waited for until another process writes to it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(key, "there is no such object") from None
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
    """Whether a file is where the folder of the store should be, or above it."""
    return any(path.is_file() for path in (root, *root.absolute().parents))


def read_no_further(descriptor: int) -> None:
    """Have the system read what it is asked for, and not what follows."""
    with contextlib.suppress(OSError, AttributeError):
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)


def leave_cache(descriptor: int) -> None:
    """Give back the memory in which the system keeps what was written."""
    with contextlib.suppress(OSError, AttributeError):  # advice, and not every system takes it
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
