"""The unit in which reads return records."""

from __future__ import annotations

from typing import NamedTuple


class RecordChunk(NamedTuple):
    """Whole, checked batches in the order of their offsets, as consecutive views.

    The records from `first_offset` up to, not including, `next_offset` were read; batches at the
    edges may hold others. Continue at `next_offset`. A broker's chunk begins at the base offset of
    its first batch and leaves `key` empty: a client gets whole batches, and they may come from
    several objects. `absent` counts offsets of the range that a foreign segment turned out not to
    hold. The views keep their bytes alive when caches drop them.
    """

    parts: list[memoryview]
    size: int
    first_offset: int
    next_offset: int
    key: str = ""
    absent: int = 0
