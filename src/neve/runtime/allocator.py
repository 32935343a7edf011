"""How the C library hands out memory: keep what was freed, for the next object of its size.

A broker makes and drops buffers of some MiB all day. glibc gives such memory back to the system and
asks for it anew, and each fresh page costs a fault and its zeroing: more than all that is done with
the bytes. What is kept is bounded by what was in use at once.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8
_TRIM_THRESHOLD_BYTES = 1024 * 1024 * 1024
_TOP_PAD_BYTES = 4 * 1024 * 1024


def keep_freed_memory() -> bool:
    """Tune the allocator of this process; False where it is not glibc's, which changes nothing."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    wanted = (
        # No block is mapped by itself: such a one, a segment first of all, would not be kept.
        (_M_MMAP_MAX, 0),
        (_M_TRIM_THRESHOLD, _TRIM_THRESHOLD_BYTES),
        (_M_TOP_PAD, _TOP_PAD_BYTES),
        # Threads that build segments would each keep memory of their own.
        (_M_ARENA_MAX, 1),
    )
    accepted = [mallopt(name, value) for name, value in wanted]
    return all(accepted)


def give_back_freed_memory() -> bool:
    """Give the system all pages of which nothing is in use; False where nothing can be given."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return False
    trim.argtypes = (ctypes.c_size_t,)
    trim.restype = ctypes.c_int
    return bool(trim(0))
