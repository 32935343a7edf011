"""Writes the `.index` and `.kfst` files that a KafScale bucket lacks.

They have KafScale's formats and keys, so that its own readers use them as well. A sound file is
never overwritten; one that is damaged, or contradicts its segment, is replaced. An index file
without its segment (half a pair) is reported and left alone, and so is a damaged segment.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from neve.bucket.kafscale_layout import KafScaleLayout
from neve.bucket.model import PartitionName
from neve.errors import DamagedError, ExistsError, NotFoundError, UnsupportedError
from neve.log.create import create_own
from neve.log.downloads import fetch_checked, fetch_range_checked
from neve.log.segment import frame, kafscale, kfs
from neve.log.segment.bundle import decode_foreign
from neve.log.segment.frame import FOREIGN_INDEX_BYTES_MAX
from neve.log.segment.kafscale import ForeignSegment, TimeRange
from neve.log.segment.sections import Column
from neve.records.arrow import to_arrow_batches
from neve.store.port import Store

INDEX_INTERVAL = 100
"""KafScale's interval: an entry for every hundred messages, at the start of a batch."""

_TIMES = struct.Struct(">4sIqqqq")


@dataclass
class FilesResult:
    """What was done in one partition of a KafScale bucket, or what a dry run would do."""

    topic: str
    partition: int
    segments: int = 0
    indexes: list[str] = field(default_factory=list)
    times: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    """The segments that cannot be read, and why."""


class ForeignBucket(NamedTuple):
    """The segments of a KafScale bucket by partition, and index files without a segment."""

    partitions: dict[PartitionName, list[ForeignSegment]]
    half_pairs: list[str]


async def list_kafscale(store: Store) -> ForeignBucket:
    """List the segments of a KafScale bucket. Raises NoClusterError if it has none."""
    layout = KafScaleLayout(store)
    await layout.refresh()
    names = [
        PartitionName(topic.name, partition)
        for topic in layout.topics()
        for partition in topic.partitions
    ]
    found = {source.name: list(source.listed) for source in layout.sources(names)}
    return ForeignBucket(found, list(layout.strays))


async def build_kafscale_files(
    store: Store,
    name: PartitionName,
    segments: Sequence[ForeignSegment],
    *,
    dry_run: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> FilesResult:
    """Write the missing index files of these segments of one partition.

    `progress` is called with the bytes of each segment.
    """
    result = FilesResult(name.topic, name.partition, segments=len(segments))
    for segment in segments:
        try:
            await _complete(store, segment, result, dry_run=dry_run)
        except (DamagedError, NotFoundError, UnsupportedError) as error:
            result.failed.append(str(error))
        progress(segment.segment_bytes)
    return result


async def _complete(
    store: Store, segment: ForeignSegment, result: FilesResult, *, dry_run: bool
) -> None:
    entries = await _entries(store, segment)
    has_times = await sound_times(store, segment, await last_offset(store, segment)) is not None
    if has_times and entries is not None:
        return
    facts = await fetch_checked(
        store, segment.key, kfs.SEGMENT_BYTES_MAX, lambda data: examine(data, segment)
    )
    if entries is None or not facts.has(*entries):
        key = kafscale.format_key(segment.name, "index")
        result.indexes.append(key)
        if not dry_run:
            await _write(store, key, facts.index(), segment.index_key)
    if not has_times:
        key = kafscale.format_key(segment.name, "kfst")
        result.times.append(key)
        if not dry_run:
            await _write(store, key, encode_times(facts.times), segment.times_key)


@dataclass(frozen=True)
class Examined:
    """A complete segment that passed its checks, and the time range of its records."""

    segment: kfs.Segment
    times: TimeRange

    def has(self, offsets: Column, positions: Column) -> bool:
        """Return whether every entry of an index points to a batch with the entry's offset."""
        batches = self.segment.batches
        at = np.searchsorted(batches.position, positions)
        at = np.minimum(at, len(batches.position) - 1)
        return bool(
            np.all(batches.position[at] == positions) and np.all(batches.base_offset[at] == offsets)
        )

    def index(self) -> bytes:
        """Return the segment's index in KafScale's version 1 format."""
        batches = self.segment.batches
        rows = [0]
        counted = 0
        for row, count in enumerate(batches.record_count.tolist()):
            if row and counted >= INDEX_INTERVAL:
                rows.append(row)
                counted = 0
            counted += count
        return frame.encode_offset_index(
            batches.base_offset[rows], batches.position[rows], INDEX_INTERVAL
        )


def examine(data: memoryview, segment: ForeignSegment) -> Examined:
    """Check a complete segment, and find the least and greatest timestamp of its records.

    Raises DamagedError also if its first offset is not the one in its key, which all readers use.
    A record may have an earlier timestamp than the first one of its batch, so all are decoded.
    """
    found = kfs.check(data, segment.key)
    facts = found.facts
    if facts.base_offset != segment.name.base_offset:
        raise other_base(segment, facts.base_offset)
    body = data[kfs.HEADER_BYTES : len(data) - kfs.FOOTER_BYTES]
    least = greatest = facts.max_timestamp
    for batch in to_arrow_batches(body, columns=("timestamp",), unit="ms", key=segment.key):
        times = pc.min_max(batch.column(0).cast("int64")).as_py()
        least, greatest = min(least, times["min"]), max(greatest, times["max"])
    return Examined(found, TimeRange(least, greatest, facts.base_offset, facts.last_offset))


def other_base(segment: ForeignSegment, found: int) -> DamagedError:
    """Return the error for a segment whose first offset is not the one in its key."""
    return DamagedError(
        segment.key,
        f"its key says that it begins at offset {segment.name.base_offset}, it begins at {found}",
    )


def encode_times(times: TimeRange) -> bytes:
    """Encode the content of a `.kfst` file."""
    return _TIMES.pack(kafscale.TIMES_MAGIC, kafscale.TIMES_VERSION, *times)


async def last_offset(store: Store, segment: ForeignSegment) -> int:
    """Return the last offset in a segment's footer."""
    size, key = segment.segment_bytes, segment.key
    footer = await fetch_range_checked(
        store,
        key,
        max(0, size - kfs.FOOTER_BYTES),
        size,
        lambda data: kfs.decode_footer(data, key),
    )
    return footer.last_offset


async def sound_times(store: Store, segment: ForeignSegment, last: int) -> TimeRange | None:
    """Return the content of a segment's `.kfst`; None if it is unusable.

    It is unusable if it is for other offsets than those up to `last`.
    """
    key = segment.times_key
    if key is None:
        return None
    try:
        found = await fetch_checked(
            store, key, kafscale.TIMES_BYTES, lambda data: kafscale.decode_times(data, key)
        )
    except (NotFoundError, DamagedError):
        return None
    whole = (segment.name.base_offset, last)
    return found if (found.min_offset, found.max_offset) == whole else None


async def _entries(store: Store, segment: ForeignSegment) -> tuple[Column, Column] | None:
    """Return the entries of a segment's index, or None if it has no usable one."""
    key = segment.index_key
    if key is None:
        return None
    try:
        bundle = await fetch_checked(
            store,
            key,
            FOREIGN_INDEX_BYTES_MAX,
            lambda data: decode_foreign(data, key, segment.segment_bytes),
        )
    except (NotFoundError, DamagedError):
        return None
    if int(bundle.offsets[0]) != segment.name.base_offset:
        return None
    return bundle.offsets, bundle.positions


async def _write(store: Store, key: str, data: bytes, damaged: str | None) -> None:
    """Write an index file, or overwrite the damaged one.

    If KafScale created the missing file meanwhile, it stays as it is.
    """
    if damaged is not None:
        await store.put(key, data)
        return
    try:
        await create_own(store, key, data)
    except ExistsError:
        return
