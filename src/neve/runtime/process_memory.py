"""This process's memory: its size, and tuning of glibc's malloc to keep freed memory for reuse.

A broker allocates and frees buffers of a few MiB all the time. By default glibc returns such memory
to the operating system, and every new page costs a page fault and zeroing: more than the broker's
own work on the bytes. The memory that is kept is bounded by the peak of memory in use.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8
_TRIM_THRESHOLD_BYTES = 1024 * 1024 * 1024
_TOP_PAD_BYTES = 4 * 1024 * 1024
_STATM = Path("/proc/self/statm")


def keep_freed_memory() -> bool:
    """Tune the allocator of this process. Returns False, with no effect, unless it is glibc's."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    wanted = (
        # Never use mmap for a block: free() would unmap large ones, such as segments.
        (_M_MMAP_MAX, 0),
        (_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES),
        (_M_TOP_PAD, _TOP_PAD_BYTES),
        # One arena: otherwise each thread that builds segments keeps its own freed memory.
        (_M_ARENA_MAX, 1),
    )
    accepted = [mallopt(name, value) for name, value in wanted]
    return all(accepted)


def give_back_freed_memory() -> bool:
    """Return unused pages to the operating system. Returns True if any were returned."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return False
    trim.argtypes = (ctypes.c_size_t,)
    trim.restype = ctypes.c_int
    return bool(trim(0))


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 if the system does not report it."""
    try:
        pages = int(_STATM.read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
