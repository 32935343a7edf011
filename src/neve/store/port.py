"""The port: everything Neve asks of a bucket.

Seven calls. `create` is the one on which all coordination rests: it writes a key only if the key
does not exist. Implementations raise the store errors of `neve.errors`, DamagedError for an object
that is too large, and nothing else, and return bytes as read-only memoryviews, so that no layer
above copies them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

OBJECT_BYTES_MAX = 2**31 - 1
"""No format of Neve's has larger objects."""


class ObjectInfo(NamedTuple):
    """One row of a listing. `modified_ms` is the store's clock and decides nothing."""

    key: str
    size: int
    modified_ms: int


class Store(Protocol):
    """A bucket, or a prefix of one. Keys are relative, with `/` between parts, never a folder."""

    async def get(self, key: str, bytes_max: int = OBJECT_BYTES_MAX) -> memoryview:
        """The whole object. NotFoundError if there is none.

        DamagedError if it has more than `bytes_max` bytes, of which then none are read: what lies
        under a key decides nothing about how much memory is taken.
        """

    async def get_range(self, key: str, start: int, end: int) -> memoryview:
        """Bytes from start up to, not including, end; fewer where the object ends earlier.

        An empty range asks the store nothing.
        """

    async def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Several ranges of one object, each as with get_range, in the order asked for."""

    async def put(self, key: str, data: Buffer) -> None:
        """Write or overwrite. For what does not coordinate (heartbeats, caches)."""

    async def create(self, key: str, data: Buffer) -> None:
        """Write only if the key does not exist; ExistsError if it does, ConflictError if undecided.

        The caller never changes `data` again, nor after a put: an attempt that was cancelled, timed
        out or lost to its hedge may still be reading it when the call has returned.
        """

    async def delete(self, key: str) -> None:
        """Remove the object; removing what is not there is fine."""

    async def list(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        """All objects whose key starts with prefix and sorts above `after`, sorted by key."""

    async def close(self) -> None:
        """Release connections. Calls after this fail."""
