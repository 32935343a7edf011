"""Metrics of the process: memory, CPU time and version."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

from neve.serving.text import one, several

_STATM = Path("/proc/self/statm")


def process_view(version: str) -> Iterator[str]:
    """Yield the metrics of this process. `version` is Neve's, which this layer cannot import."""
    yield one("process_resident_memory_bytes", resident_bytes())
    spent = os.times()
    yield one("process_cpu_seconds_total", spent.user + spent.system)
    about = (version, platform.python_version(), platform.system())
    yield several("neve_build_info", [(about, 1)])


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 if the system does not report it."""
    try:
        pages = int(_STATM.read_bytes().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
