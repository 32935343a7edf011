"""Memory for objects, of which a disk can take whole blocks.

A segment is much larger than anything else that is held for a while. In the heap, something small
soon lies where the last one was, the next one goes to the heap's end, and now and then a process
grows by a whole segment for nothing. So what is large has mappings of its own, and they are kept:
fresh pages cost more than the copy into them. As many are kept as were in use at once.
"""

from __future__ import annotations

import contextlib
import mmap
import threading

import numpy as np
import numpy.typing as npt

# A file system whose blocks are larger refuses.
BLOCK_BYTES = 4096
LARGE_BYTES = 16 * 1024 * 1024
# Segments differ by a batch or two: the next one should fit into the last one's place.
ROUNDED_TO_BYTES = 4 * 1024 * 1024
# A bucket in memory holds on to what it is given. Beyond these, it does so without being kept.
KEPT_MAX = 16


def aligned_buffer(size: int) -> npt.NDArray[np.uint8]:
    """Return `size` bytes, aligned to a block, to be written once."""
    if size >= LARGE_BYTES:
        return _mapped.take(size)
    memory = np.empty(size + BLOCK_BYTES, np.uint8)
    first = -address(memory) % BLOCK_BYTES
    return memory[first : first + size]


def give_back_free_mappings() -> None:
    """Return to the system every map that no view refers to."""
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
                # What is free and too small was for segments of another size.
                self._kept = [pages for pages in self._kept if pages not in free][1 - KEPT_MAX :]
                found = _fresh(size)
                if _is_free(found):  # where not even a fresh one is, none ever is told to be
                    self._kept.append(found)
            return np.frombuffer(found, np.uint8, size)

    def give_back_free(self) -> None:
        with self._lock:
            self._kept = [pages for pages in self._kept if not _is_free(pages)]


def _fresh(size: int) -> mmap.mmap:
    pages = mmap.mmap(-1, -(-size // ROUNDED_TO_BYTES) * ROUNDED_TO_BYTES, flags=_PRIVATE)
    with contextlib.suppress(OSError, AttributeError):  # advice, and not every kernel takes it
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def _is_free(pages: mmap.mmap) -> bool:
    """Whether nobody has a view: only then may a mapping be resized, here to what it is."""
    try:
        pages.resize(len(pages))
    except BufferError:  # in use
        return False
    except (SystemError, AttributeError):  # a system on which none can be resized
        return False
    return True


_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_mapped = MappedBuffers()
