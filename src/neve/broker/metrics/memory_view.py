"""The memory that components use, beside their bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from neve.serving.text import several


class MemoryUse(NamedTuple):
    """The memory of one component, and its bound."""

    name: str
    used_bytes: int
    max_bytes: int


def memory_view(uses: Sequence[MemoryUse]) -> Iterator[str]:
    yield several("neve_memory_used_bytes", [((each.name,), each.used_bytes) for each in uses])
    yield several("neve_memory_max_bytes", [((each.name,), each.max_bytes) for each in uses])
