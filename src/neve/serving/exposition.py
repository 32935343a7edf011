"""A scrape: all views, one after the other, without keeping the loop from its clients for long.

A view is a generator of pieces of text; each piece is short work. After `SLICE_SECONDS` of them the
loop gets its turn. So the numbers of one scrape are not of one moment: a counter of a later family
may have seen a request that an earlier one has not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from neve import runtime

SLICE_SECONDS = 0.001

View: TypeAlias = Callable[[], Iterator[str]]


async def scrape(views: Sequence[View]) -> bytes:
    """The text of all views."""
    parts: list[str] = []
    started = runtime.monotonic()
    for view in views:
        for piece in view():
            parts.append(piece)
            if runtime.monotonic() - started >= SLICE_SECONDS:
                await runtime.sleep(0)
                started = runtime.monotonic()
    return "".join(parts).encode()
