"""Tiered segments for cold reads, with their indexes stored as Neve does and as in KIP-405.

All segments of a bucket have different keys and the same bytes, because the cost of a read does not
depend on the content. The bundle is a real one, and readers decode it. The three indexes that a
cold fetch of Kafka's tiered storage requests are stored beside it, one object each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from neve.bench.storage.batches import TIMESTAMP_MS, batch_of_bytes
from neve.log.manifest.records import Segment
from neve.log.remote import RemoteStorage
from neve.log.segment import kfs
from neve.log.segment.bundle import decode_bundle
from neve.log.segment.history import History
from neve.log.segment.rebuild import bundle_of
from neve.log.segment.sections import Section
from neve.records.batch import patch
from neve.settings import SegmentSettings
from neve.store.memory import MemoryBucket
from neve.store.port import Store

KIP405_KINDS = (Section.OFFSET, Section.TIMESTAMP, Section.TRANSACTION)


class ColdSegments(NamedTuple):
    """A bucket, which benchmarks only read, and its segments as a manifest would list them."""

    bucket: MemoryBucket
    segments: tuple[Segment, ...]


class SeparateIndexes(RemoteStorage):
    """Indexes as in KIP-405: one object per kind, fetched one after another.

    The loop over kinds is the default `fetch_indexes` of RemoteStorage.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def fetch_index(self, segment: Segment, kind: Section) -> memoryview:
        return await self._store.get(_separate_key(segment, kind))


def _separate_key(segment: Segment, kind: Section) -> str:
    return f"{segment.key}.{kind.name.lower()}"


def cold_segments(count: int, segment_bytes: int, batch_bytes: int) -> ColdSegments:
    """Create segments of at most `segment_bytes`, each with its bundle and its three indexes."""
    history = History("a cold segment")
    batches = list(_batches(segment_bytes, batch_bytes))
    built = kfs.build(0, TIMESTAMP_MS, batches, observe=history.observe)
    data = b"".join(built.parts)
    bundle_data = bundle_of(built, history, SegmentSettings().index_interval)
    bundle = decode_bundle(bundle_data, "the bundle being placed", len(data))
    bucket = MemoryBucket()
    segments = tuple(_described(number, built.facts, len(bundle_data)) for number in range(count))
    for segment in segments:
        assert segment.index_key is not None
        bucket.write(segment.key, data)
        bucket.write(segment.index_key, bundle_data)
        for kind in KIP405_KINDS:
            # An absent index is an empty object: in KIP-405 it costs a request too.
            bucket.write(_separate_key(segment, kind), bundle.section(kind) or b"")
    return ColdSegments(bucket, segments)


def _batches(segment_bytes: int, batch_bytes: int) -> Iterator[bytearray]:
    body_bytes = segment_bytes - kfs.HEADER_BYTES - kfs.FOOTER_BYTES
    for offset in range(body_bytes // batch_bytes):
        batch = bytearray(batch_of_bytes(batch_bytes))
        patch(batch, offset, 0)
        yield batch


def _described(number: int, facts: kfs.SegmentFacts, index_bytes: int) -> Segment:
    # Neve's own form of names: a bundle under such a name must have its directory.
    name = f"segment-{number:020d}-{0:020d}-{number:016x}"
    return Segment(
        key=f"{name}.kfs",
        index_key=f"{name}.index",
        base=facts.base_offset,
        last=facts.last_offset,
        bytes=facts.segment_bytes,
        index_bytes=index_bytes,
        records=facts.message_count,
        min_timestamp=facts.min_base_timestamp,
        max_timestamp=facts.max_timestamp,
        created_ms=facts.created_ms,
        epoch=0,
        crc=facts.body_crc,
    )
