"""The port to the indexes of tiered segments.

Kafka's tiered storage has a similar port. This one also fetches several kinds of index at once, so
that a cold segment needs one request instead of one per kind. An implementation needs only
`fetch_index`: by default the other methods call it for each kind, leave out a kind that is absent,
and raise every other error. `BucketRemoteStorage` is Neve's implementation. There, all indexes of a
segment are one object and take one get.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import numpy as np

from neve.errors import NeveError, NotFoundError
from neve.log import keys
from neve.log.downloads import fetch_checked
from neve.log.manifest.records import Segment
from neve.log.segment import frame, kfs
from neve.log.segment.bundle import Bundle, decode_bundle, decode_foreign
from neve.log.segment.sections import Section
from neve.store.port import Buffer, Store

T = TypeVar("T")

# The interval of an index is a signed 32-bit number.
INDEX_INTERVAL_MAX = 2**31 - 1


class IndexAbsentError(NeveError):
    """A segment has no index of this kind. It is optional: read without it."""

    def __init__(self, segment: Segment, kind: Section) -> None:
        super().__init__(f"{segment.key} has no {kind.name} index")
        self.kind = kind


class RemoteStorage(ABC):
    """The indexes of tiered segments. Segments are named as the manifest lists them."""

    @abstractmethod
    async def fetch_index(self, segment: Segment, kind: Section) -> memoryview:
        """Return one index, encoded. Raises IndexAbsentError if the segment does not have it."""

    async def fetch_indexes(
        self, segment: Segment, kinds: Iterable[Section]
    ) -> dict[Section, memoryview]:
        """Return the indexes of these kinds that the segment has."""
        found: dict[Section, memoryview] = {}
        for kind in kinds:
            try:
                found[kind] = await self.fetch_index(segment, kind)
            except IndexAbsentError:
                continue
        return found

    async def fetch_all_indexes(self, segment: Segment) -> dict[Section, memoryview]:
        """Return every index that the segment has."""
        return await self.fetch_indexes(segment, Section)


class BucketRemoteStorage(RemoteStorage):
    """Bundles in the bucket, under the keys that the manifest lists."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def fetch_index(self, segment: Segment, kind: Section) -> memoryview:
        found = await self.fetch_indexes(segment, (kind,))
        if kind not in found:
            raise IndexAbsentError(segment, kind)
        return found[kind]

    async def fetch_indexes(
        self, segment: Segment, kinds: Iterable[Section]
    ) -> dict[Section, memoryview]:
        wanted = tuple(kinds)
        if segment.index_key is None:
            return _sections(bare_bundle(segment), wanted)
        return await read_bundle(self._store, segment, lambda bundle: _sections(bundle, wanted))


async def load_bundle(store: Store, segment: Segment) -> Bundle:
    """Read a listed segment's bundle without caches. See `read_bundle`."""
    return await read_bundle(store, segment, lambda bundle: bundle)


async def read_bundle(store: Store, segment: Segment, take: Callable[[Bundle], T]) -> T:
    """Read a listed segment's bundle and return what `take` makes of it.

    If `take` raises DamagedError, the read may have been torn and is repeated. Raises
    NotFoundError, DamagedError or UnsupportedError, which name the object.
    """
    key = segment.index_key
    if key is None:
        raise NotFoundError(segment.key, "this segment has no index")
    return await fetch_checked(
        store, key, segment.index_bytes_max, lambda data: take(_decoded(segment, key, data))
    )


def bare_bundle(segment: Segment) -> Bundle:
    """Return a minimal index for a segment without one: one stretch from its first batch on.

    Reading the stretch checks each batch. The checksum in the segment's footer covers more, so
    readers should read all of such a segment as a whole.
    """
    interval = min(max(segment.records, 1), INDEX_INTERVAL_MAX)
    offsets, positions = np.array([segment.base]), np.array([kfs.HEADER_BYTES])
    data = frame.encode_offset_index(offsets, positions, interval)
    return decode_foreign(data, segment.index_key or segment.key, segment.bytes)


def encode_indexes(segment: Segment, indexes: Mapping[Section, Buffer]) -> bytes:
    """Return separately fetched indexes as a bundle. Raises IndexAbsentError without OFFSET."""
    if Section.OFFSET not in indexes:
        raise IndexAbsentError(segment, Section.OFFSET)
    offset_index = bytes(indexes[Section.OFFSET])
    if Section.CHECKSUM not in indexes:
        return offset_index  # KafScale's: a bundle with a directory must have checksums
    others = {kind: bytes(data) for kind, data in indexes.items()}
    del others[Section.OFFSET]
    return frame.encode_bundle(offset_index, others)


def _decoded(segment: Segment, index_key: str, data: memoryview) -> Bundle:
    # Under a key of Neve, an index without a directory is damaged. KafScale's have none.
    if keys.segment_name(index_key) is not None:
        return decode_bundle(data, index_key, segment.bytes)
    return decode_foreign(data, index_key, segment.bytes)


def _sections(bundle: Bundle, wanted: tuple[Section, ...]) -> dict[Section, memoryview]:
    payloads = {kind: bundle.section(kind) for kind in wanted}
    return {kind: payload for kind, payload in payloads.items() if payload is not None}
