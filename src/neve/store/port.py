"""The store port: all operations that Neve needs of a bucket.

All coordination rests on `create`, which writes a key only if it does not exist. An object appears
whole or not at all, whatever interrupts the write. Implementations raise only the store errors of
`neve.errors`, and DamagedError for an object that is too large. They return bytes as read-only
memoryviews, so that no layer above copies them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

OBJECT_BYTES_MAX = 2**31 - 1
"""The maximum size of an object in all formats of Neve."""


class ObjectInfo(NamedTuple):
    """One row of a listing. `modified_ms` is from the store's clock.

    It serves only to estimate the age of orphans and to check clocks, never for coordination.
    """

    key: str
    size: int
    modified_ms: int


class Store(Protocol):
    """A bucket or a prefix of one. Keys are relative, with `/` between parts."""

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        """Return the whole object. Raises NotFoundError if it does not exist.

        Raises DamagedError, without reading it, if the object has more than `bytes_max` bytes: the
        content of a bucket must not decide how much memory is used.
        """

    async def get_range(self, key: str, start: int, end: int) -> memoryview:
        """Return the bytes from start up to but excluding end; fewer if the object ends earlier.

        An empty range sends no request.
        """

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return several ranges of one object, each as `get_range` does, in the given order."""

    async def put(self, key: str, data: Buffer) -> None:
        """Write or overwrite an object. For data without coordination."""

    async def create(self, key: str, data: Buffer) -> None:
        """Write an object only if the key does not exist.

        Raises ExistsError if it exists, and ConflictError if the outcome is undecided. The caller
        must not modify `data` afterwards, nor after a put: a cancelled, timed-out or hedged attempt
        may still read it after the call has returned.
        """

    async def delete(self, key: str) -> None:
        """Delete the object, if it exists."""

    async def list(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        """Return all objects whose key starts with prefix and sorts above `after`, by key."""

    async def close(self) -> None:
        """Release connections. Later calls raise ClosedError."""
