"""What is held in memory against its bounds, each of which a setting names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from neve.serving.text import several


class Held(NamedTuple):
    """One bounded thing: how much it holds and how much it may."""

    what: str
    used_bytes: int
    max_bytes: int


def memory_view(things: Sequence[Held]) -> Iterator[str]:
    yield several("neve_memory_used_bytes", [((each.what,), each.used_bytes) for each in things])
    yield several("neve_memory_max_bytes", [((each.what,), each.max_bytes) for each in things])
