"""Rendering of a metrics scrape, without blocking the event loop for long.

A view is a generator of short pieces of text. `scrape` yields to the event loop after
`SLICE_SECONDS` of work. The samples of one scrape are therefore not taken at one instant: a counter
of a later family may include a request that an earlier one does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from neve import runtime

SLICE_SECONDS = 0.001

View: TypeAlias = Callable[[], Iterator[str]]


async def scrape(views: Sequence[View]) -> bytes:
    """Return the text of all views."""
    parts: list[str] = []
    started = runtime.monotonic()
    for view in views:
        for piece in view():
            parts.append(piece)
            if runtime.monotonic() - started >= SLICE_SECONDS:
                await runtime.sleep(0)
                started = runtime.monotonic()
    return "".join(parts).encode()
