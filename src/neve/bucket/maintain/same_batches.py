"""Detects that a topic was imported from a KafScale bucket although it lists none of its keys.

A merge of imported segments copies their batches unchanged into segments of Neve's own. So a batch
that is in both, at the same offset and with the same checksum, shows that the topic was imported
from there, however often it was merged and whatever was produced since.
"""

from __future__ import annotations

from collections.abc import Sequence

from neve.errors import DamagedError, NotFoundError
from neve.log.downloads import fetch_range_checked
from neve.log.manifest.records import Segment
from neve.log.remote import bare_bundle, load_bundle
from neve.log.segment import kfs
from neve.log.segment.bundle import Bundle
from neve.log.segment.kafscale import ForeignSegment
from neve.records.batch import HEADER_BYTES, BatchHeader, parse_header, walk
from neve.store.port import Store


async def holds_batches_of(
    store: Store, listed: Sequence[Segment], foreign: Sequence[ForeignSegment]
) -> bool:
    """Return whether the first batch of a foreign segment is also in a listed segment.

    Only the first foreign segment whose base offset is in a listed one is compared.
    """
    for theirs in foreign:
        base = theirs.name.base_offset
        ours = next((row for row in listed if row.base <= base <= row.last), None)
        if ours is not None:
            return await _first_batch(store, theirs) == await _batch_at(store, ours, base)
    return False


async def _first_batch(store: Store, segment: ForeignSegment) -> BatchHeader:
    start = kfs.HEADER_BYTES
    return await fetch_range_checked(
        store,
        segment.key,
        start,
        start + HEADER_BYTES,
        lambda data: parse_header(data, key=segment.key),
    )


async def _batch_at(store: Store, segment: Segment, base: int) -> BatchHeader | None:
    """Return the header of the batch that begins at this offset, or None."""
    bundle = await _bundle(store, segment)
    stretch = bundle.stretch_for(base)
    data = await fetch_range_checked(
        store,
        segment.key,
        stretch.start,
        stretch.end,
        lambda data: bundle.verify_stretch(stretch, data, segment.key),
    )
    headers = (header for _, header in walk(data, key=segment.key))
    return next((header for header in headers if header.base_offset == base), None)


async def _bundle(store: Store, segment: Segment) -> Bundle:
    try:
        return await load_bundle(store, segment)
    except (NotFoundError, DamagedError):
        return bare_bundle(segment)
