"""The process: its memory, its processor time, and which Neve it is."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

from neve.serving.text import one, several

_STATM = Path("/proc/self/statm")


def process_view(version: str) -> Iterator[str]:
    """`version` is Neve's, which this layer is part of and cannot ask."""
    yield one("process_resident_memory_bytes", resident_bytes())
    spent = os.times()
    yield one("process_cpu_seconds_total", spent.user + spent.system)
    about = (version, platform.python_version(), platform.system())
    yield several("neve_build_info", [(about, 1)])


def resident_bytes() -> int:
    """What the system counts as this process's memory; 0 where it does not tell."""
    try:
        pages = int(_STATM.read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
