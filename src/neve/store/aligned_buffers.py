"""Block-aligned memory for objects, as direct I/O requires.

Large buffers, such as segments, fragment the heap: small allocations fill the freed space, and the
process grows by another segment. Large buffers are therefore memory maps. The maps are kept for
reuse, because fresh pages cost more than the copy into them. Their number is bounded by the peak
of buffers in use.
"""

from __future__ import annotations

import contextlib
import mmap
import threading

import numpy as np
import numpy.typing as npt

# A file system with larger blocks rejects direct I/O.
BLOCK_BYTES = 4096
LARGE_BYTES = 16 * 1024 * 1024
# Segments differ by a batch or two: the next one should fit into the map of the last one.
ROUNDED_TO_BYTES = 4 * 1024 * 1024
# Maps kept for reuse. A bucket in memory holds on to buffers, and may hold more than these.
KEPT_MAX = 16


def aligned_buffer(size: int) -> npt.NDArray[np.uint8]:
    """Return `size` bytes, aligned to a block, to be written once."""
    if size >= LARGE_BYTES:
        return _mapped.take(size)
    memory = np.empty(size + BLOCK_BYTES, np.uint8)
    first = -address(memory) % BLOCK_BYTES
    return memory[first : first + size]


def give_back_free_mappings() -> None:
    """Unmap every kept map that no view refers to."""
    _mapped.give_back_free()


def address(memory: npt.NDArray[np.uint8]) -> int:
    found: int = memory.__array_interface__["data"][0]
    return found


class MappedBuffers:
    """Memory maps that are reused once nothing refers to their bytes.

    Python's reference count of a map says whether a view of it exists, including one held by a
    write that still runs in a thread after its caller gave up. So no caller has to release one.
    """

    def __init__(self) -> None:
        self._kept: list[mmap.mmap] = []
        self._lock = threading.Lock()

    def take(self, size: int) -> npt.NDArray[np.uint8]:
        with self._lock:
            free = [pages for pages in self._kept if _is_free(pages)]
            found = next((pages for pages in free if len(pages) >= size), None)
            if found is None:
                # Free maps that are too small were for segments of another size.
                self._kept = [pages for pages in self._kept if pages not in free][1 - KEPT_MAX :]
                found = _fresh(size)
                if _is_free(found):  # if a fresh map does not count as free, none ever will
                    self._kept.append(found)
            return np.frombuffer(found, np.uint8, size)

    def give_back_free(self) -> None:
        with self._lock:
            self._kept = [pages for pages in self._kept if not _is_free(pages)]


def _fresh(size: int) -> mmap.mmap:
    pages = mmap.mmap(-1, -(-size // ROUNDED_TO_BYTES) * ROUNDED_TO_BYTES, flags=_PRIVATE)
    with contextlib.suppress(OSError, AttributeError):  # advice that not every kernel supports
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def _is_free(pages: mmap.mmap) -> bool:
    """Return whether no view exists: only then can a map be resized, here to its own size."""
    try:
        pages.resize(len(pages))
    except BufferError:  # in use
        return False
    except (SystemError, AttributeError):  # a system that cannot resize maps
        return False
    return True


_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_mapped = MappedBuffers()
