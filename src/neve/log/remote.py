"""The port to tiered segments: copy one with its indexes, read a range, fetch indexes, delete.

Kafka's tiered storage has such a port; here it also fetches several kinds of index at once, so that
a cold segment costs one request and not one a kind. A plug-in may implement `fetch_index` alone and
inherits the rest: a kind that is absent is left out, every other error is raised, and what it does
not offer says so. `BucketRemoteStorage` is the one that Neve uses: all indexes of a segment are one
object there, so they come in one get.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

import numpy as np

from neve import runtime
from neve.errors import InvalidError, NeveError, UnsupportedError
from neve.log import keys
from neve.log.fetch import fetch_checked, fetch_range_checked
from neve.log.manifest.records import Segment
from neve.log.segment import frame, kfs
from neve.log.segment.bundle import Bundle, decode_bundle, decode_foreign
from neve.log.segment.sections import Section
from neve.log.segment.upload import upload_pair
from neve.store.port import Buffer, Store

# The interval of an index is a signed 32-bit number.
INDEX_INTERVAL_MAX = 2**31 - 1


class IndexAbsentError(NeveError):
    """A segment has no index of this kind, and need not have: read on without it."""

    def __init__(self, segment: Segment, kind: Section) -> None:
        super().__init__(f"{segment.key} has no {kind.name} index")
        self.kind = kind


class RemoteStorage(ABC):
    """Where segments lie once they are tiered. Segments are named as the manifest lists them."""

    async def copy_segment(
        self, segment: Segment, segment_data: Buffer, index_data: Buffer
    ) -> None:
        """Store a segment and its bundle under the keys that `segment` names, both or an error."""
        total = len(segment_data) + len(index_data)
        raise UnsupportedError(
            f"{segment.key}: {type(self).__name__} does not store segments ({total} bytes)"
        )

    async def fetch_range(self, segment: Segment, start: int, end: int) -> memoryview:
        """Exactly the bytes from start up to, not including, end. The caller checks them."""
        raise UnsupportedError(
            f"{segment.key}: {type(self).__name__} does not read segments ({start} to {end})"
        )

    @abstractmethod
    async def fetch_index(self, segment: Segment, kind: Section) -> memoryview:
        """One index, still encoded. IndexAbsentError if the segment has none of this kind."""

    async def fetch_indexes(
        self, segment: Segment, kinds: Iterable[Section]
    ) -> dict[Section, memoryview]:
        """Those of these kinds that the segment has."""
        found: dict[Section, memoryview] = {}
        for kind in kinds:
            try:
                found[kind] = await self.fetch_index(segment, kind)
            except IndexAbsentError:
                continue
        return found

    async def fetch_all_indexes(self, segment: Segment) -> dict[Section, memoryview]:
        """Every index that the segment has."""
        return await self.fetch_indexes(segment, Section)

    async def delete_segment(self, segment: Segment) -> None:
        """Remove a segment and its indexes, whichever of them is there. It has been doomed."""
        raise UnsupportedError(f"{segment.key}: {type(self).__name__} does not delete segments")


class BucketRemoteStorage(RemoteStorage):
    """Segments and bundles in the bucket, under the keys that the manifest lists."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def copy_segment(
        self, segment: Segment, segment_data: Buffer, index_data: Buffer
    ) -> None:
        if segment.index_key is None:
            raise InvalidError(f"{segment.key}: a segment is copied together with its bundle")
        await upload_pair(
            self._store,
            segment.key,
            segment_data,
            segment.index_key,
            index_data,
        )

    async def fetch_range(self, segment: Segment, start: int, end: int) -> memoryview:
        if not 0 <= start <= end <= segment.bytes:
            raise InvalidError(
                f"{segment.key}: bytes {start} to {end} of a segment of {segment.bytes}"
            )
        return await fetch_range_checked(self._store, segment.key, start, end, memoryview)

    async def fetch_index(self, segment: Segment, kind: Section) -> memoryview:
        found = await self.fetch_indexes(segment, (kind,))
        if kind not in found:
            raise IndexAbsentError(segment, kind)
        return found[kind]

    async def fetch_indexes(
        self, segment: Segment, kinds: Iterable[Section]
    ) -> dict[Section, memoryview]:
        wanted = tuple(kinds)
        index_key = segment.index_key
        if index_key is None:
            return _sections(bare_bundle(segment), wanted)
        return await fetch_checked(
            self._store,
            index_key,
            segment.index_bytes_max,
            lambda data: _sections(_decoded(segment, index_key, data), wanted),
        )

    async def delete_segment(self, segment: Segment) -> None:
        if not segment.owned:
            raise InvalidError(f"{segment.key} was imported in place and is not Neve's to delete")
        doomed = [key for key in (segment.key, segment.index_key) if key is not None]
        await runtime.gather(*(self._store.delete(key) for key in doomed))


def bare_bundle(segment: Segment) -> Bundle:
    """Return the index of a segment that has none: its first batch, so that it is one stretch.

    The stretch is checked batch by batch. The checksum in the segment's footer covers more, so read
    all of such a segment as a whole.
    """
    interval = min(max(segment.records, 1), INDEX_INTERVAL_MAX)
    offsets, positions = np.array([segment.base]), np.array([kfs.HEADER_BYTES])
    data = frame.encode_offset_index(offsets, positions, interval)
    return decode_foreign(data, segment.index_key or segment.key, segment.bytes)


def encode_indexes(segment: Segment, indexes: Mapping[Section, Buffer]) -> bytes:
    """Indexes that were fetched one by one as a bundle again. OFFSET has to be among them."""
    if Section.OFFSET not in indexes:
        raise IndexAbsentError(segment, Section.OFFSET)
    offset_index = bytes(indexes[Section.OFFSET])
    if Section.CHECKSUM not in indexes:
        return offset_index  # KafScale's: without the checksums, a directory would be refused
    others = {kind: bytes(data) for kind, data in indexes.items()}
    del others[Section.OFFSET]
    return frame.encode_bundle(offset_index, others)


def _decoded(segment: Segment, index_key: str, data: memoryview) -> Bundle:
    # Under a key that Neve made, a bundle without a directory is a damaged one, not KafScale's.
    if keys.segment_name(index_key) is not None:
        return decode_bundle(data, index_key, segment.bytes)
    return decode_foreign(data, index_key, segment.bytes)


def _sections(bundle: Bundle, wanted: tuple[Section, ...]) -> dict[Section, memoryview]:
    payloads = {kind: bundle.section(kind) for kind in wanted}
    return {kind: payload for kind, payload in payloads.items() if payload is not None}
