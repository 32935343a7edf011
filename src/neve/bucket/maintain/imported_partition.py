"""Describes a partition of a KafScale bucket as a manifest's first number.

Every segment is read completely and checked before it is listed, unless the caller trusts the
bucket: then only its header, footer and `.kfst` are read. Offsets that no segment has are recorded
as skips, so that readers pass over them. A partition in which two segments hold the same offset is
refused, because it is unknown which of them is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from neve import runtime
from neve.bucket.maintain.kafscale_files import examine, last_offset, other_base, sound_times
from neve.errors import DamagedError, InvalidError, NotFoundError, UnsupportedError
from neve.log.downloads import fetch_checked, fetch_range_checked
from neve.log.manifest.records import NO_CRC, Segment, Skip
from neve.log.reading.segment_indexes import check_fits
from neve.log.segment import kfs
from neve.log.segment.bundle import decode_foreign
from neve.log.segment.frame import FOREIGN_INDEX_BYTES_MAX
from neve.log.segment.kafscale import ForeignSegment
from neve.store.port import Store

READS_AT_ONCE = 4
# The time range of a segment whose records were not read: it may hold any timestamp.
TIME_MIN, TIME_MAX = -(2**63), 2**63 - 1
UNKNOWN_EPOCH = -1
GAP_REASON = "no segment of the KafScale bucket has them"


@dataclass
class ImportedPartition:
    """One partition as its manifest will list it."""

    partition: int
    segments: list[Segment] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was left out, and why."""

    @property
    def start(self) -> int:
        return self.segments[0].base if self.segments else 0


async def examine_partition(
    store: Store,
    partition: int,
    found: Sequence[ForeignSegment],
    *,
    trust: bool,
    skip_damaged: bool,
    progress: Callable[[int], None] = lambda _: None,
) -> ImportedPartition:
    """Examine all segments of a partition.

    Raises DamagedError if one cannot be read, unless `skip_damaged` leaves it out, and InvalidError
    if two hold the same offset.
    """
    imported = ImportedPartition(partition)

    async def described(row: ForeignSegment) -> Segment | DamagedError:
        try:
            return await _described(store, row, imported.notes, trust=trust)
        except DamagedError as error:
            return error
        except NotFoundError as error:
            return DamagedError(row.key, error.reason)
        finally:
            progress(row.segment_bytes)

    for at in range(0, len(found), READS_AT_ONCE):
        some = found[at : at + READS_AT_ONCE]
        for result in await runtime.gather(*(described(row) for row in some)):
            if isinstance(result, Segment):
                imported.segments.append(result)
            elif skip_damaged:
                imported.notes.append(f"left out: {result}")
            else:
                raise result
    _fill_gaps(imported)
    return imported


def _fill_gaps(imported: ImportedPartition) -> None:
    imported.segments.sort(key=lambda row: row.base)
    expected = imported.start
    for row in imported.segments:
        if row.base < expected:
            raise InvalidError(
                f"{row.key} holds offset {row.base}, and the segment before it reaches to "
                f"{expected - 1}: two segments hold the same offsets, so this partition "
                "is not imported"
            )
        if row.base > expected:
            imported.skips.append(Skip(expected, row.base - 1, runtime.now_ms(), GAP_REASON))
        expected = row.last + 1


async def _described(
    store: Store, row: ForeignSegment, notes: list[str], *, trust: bool
) -> Segment:
    if trust:
        segment = await _from_edges(store, row)
    else:
        segment = await fetch_checked(
            store, row.key, kfs.SEGMENT_BYTES_MAX, lambda data: _from_whole(data, row)
        )
    return await _with_index(store, row, segment, notes)


def _from_whole(data: memoryview, row: ForeignSegment) -> Segment:
    found = examine(data, row)
    facts = found.segment.facts
    return Segment(
        key=row.key,
        base=facts.base_offset,
        last=facts.last_offset,
        bytes=facts.segment_bytes,
        records=facts.message_count,
        min_timestamp=found.times.min_timestamp,
        max_timestamp=found.times.max_timestamp,
        created_ms=facts.created_ms,
        epoch=UNKNOWN_EPOCH,
        crc=facts.body_crc,
        owned=False,
    )


async def _from_edges(store: Store, row: ForeignSegment) -> Segment:
    size, key = row.segment_bytes, row.key
    if size < kfs.HEADER_BYTES + kfs.FOOTER_BYTES:
        raise DamagedError(key, f"no segment has {size} bytes")
    header = await fetch_range_checked(
        store, key, 0, kfs.HEADER_BYTES, lambda data: kfs.decode_header(data, key)
    )
    if header.base_offset != row.name.base_offset:
        raise other_base(row, header.base_offset)
    last = await last_offset(store, row)
    if last < header.base_offset:
        raise DamagedError(key, f"it ends at {last}, before its own base")
    times = await sound_times(store, row, last)
    return Segment(
        key=key,
        base=header.base_offset,
        last=last,
        bytes=size,
        records=header.message_count,
        min_timestamp=TIME_MIN if times is None else times.min_timestamp,
        max_timestamp=TIME_MAX if times is None else times.max_timestamp,
        created_ms=header.created_ms,
        epoch=UNKNOWN_EPOCH,
        crc=NO_CRC,
        owned=False,
    )


async def _with_index(
    store: Store, row: ForeignSegment, segment: Segment, notes: list[str]
) -> Segment:
    """Return the segment with its index if that is usable; readers read it whole otherwise."""
    key = row.index_key
    if key is None:
        notes.append(f"{row.key} has no index: `neve maintain build-index` makes one")
        return segment

    def check(data: memoryview) -> int:
        bundle = decode_foreign(data, key, segment.bytes)
        check_fits(bundle, segment)
        return len(data)

    try:
        size = await fetch_checked(store, key, FOREIGN_INDEX_BYTES_MAX, check)
    except (NotFoundError, DamagedError, UnsupportedError) as error:
        notes.append(f"not used: {error}")
        return segment
    return msgspec.structs.replace(segment, index_key=key, index_bytes=size)
