"""The index bundle (`.index`): everything that is indexed about one segment, in one object.

It begins with KafScale's version 1 offset index. KafScale's reader stops after its entries, where a
directory and Neve's other sections follow. The CHECKSUM section has a checksum for each stretch of
the segment, from one index entry to the next, so that a ranged read of whole stretches is verified
like a read of the whole segment.

KafScale's own `.index` files have no directory. `decode_foreign` reads them; stretches are then
checked batch by batch, which does not cover the base offset and leader epoch of a batch.
docs/contributors/format.md specifies the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from neve.errors import DamagedError, InvalidError, UnsupportedError
from neve.log.segment import frame, kfs, sections
from neve.log.segment.sections import Column, Section
from neve.records.batch import HEADER_BYTES as BATCH_HEADER_BYTES
from neve.records.batch import Buffer, batches_crc, check_batch
from neve.records.crc import crc32c


class Stretch(NamedTuple):
    """The batches from one index entry to the next. `crc` is None if the bundle has none."""

    entry: int
    base_offset: int
    start: int
    end: int
    crc: int | None


class Bundle:
    """A decoded bundle. Sections are checked and decoded on first use."""

    def __init__(
        self,
        data: memoryview,
        key: str,
        entries: tuple[Column, Column],
        places: dict[int, frame.Place] | None,
        segment_bytes: int | None,
    ) -> None:
        self.key = key
        self.offsets, self.positions = entries
        self._data = data
        self._places = places or {}
        self.checksums = None if places is None else self._decoded_checksums()
        stated = segment_bytes if self.checksums is None else self.checksums.segment_bytes
        if stated is None or segment_bytes not in (None, stated):
            raise DamagedError(
                key, f"its segment has {segment_bytes} bytes, the bundle states {stated}"
            )
        last_end = int(self.positions[-1]) + BATCH_HEADER_BYTES + kfs.FOOTER_BYTES
        if not last_end <= stated <= kfs.SEGMENT_BYTES_MAX:
            raise DamagedError(key, f"its entries are outside a segment of {stated} bytes")
        self.segment_bytes = stated

    @property
    def encoded_bytes(self) -> int:
        """The size of the bundle as it was read."""
        return len(self._data)

    @property
    def checksummed(self) -> bool:
        """Whether a ranged read of the segment can be checked to the last byte."""
        return self.checksums is not None

    @property
    def last_offset(self) -> int | None:
        """The segment's last offset; None if only its footer has it."""
        return self.checksums.last_offset if self.checksums else None

    @cached_property
    def timestamps(self) -> sections.Timestamps | None:
        payload = self.section(Section.TIMESTAMP)
        return None if payload is None else sections.decode_timestamps(payload, self.key)

    @cached_property
    def transactions(self) -> tuple[sections.AbortedTransaction, ...]:
        payload = self.section(Section.TRANSACTION)
        return () if payload is None else sections.decode_transactions(payload, self.key)

    @cached_property
    def producers(self) -> tuple[sections.ProducerEntry, ...] | None:
        payload = self.section(Section.PRODUCER_SNAPSHOT)
        return None if payload is None else sections.decode_producers(payload, self.key)

    @cached_property
    def epochs(self) -> tuple[sections.EpochStart, ...] | None:
        payload = self.section(Section.LEADER_EPOCH)
        return None if payload is None else sections.decode_epochs(payload, self.key)

    @cached_property
    def state(self) -> tuple[sections.StateRow, ...] | None:
        payload = self.section(Section.STATE)
        return None if payload is None else sections.decode_state(payload, self.key)

    @property
    def kinds(self) -> tuple[Section, ...]:
        """The kinds of the bundle's sections, except those unknown to this version."""
        return (Section.OFFSET, *(kind for kind in Section if kind in self._places))

    def section(self, kind: Section) -> memoryview | None:
        """Return the checked payload of one kind, still encoded; None if it is absent.

        Raises DamagedError, or UnsupportedError for a newer version of the section.
        """
        if kind is Section.OFFSET:
            return self._data[
                : frame.INDEX_HEADER_BYTES + len(self.offsets) * frame.INDEX_ENTRY_BYTES
            ]
        place = self._places.get(kind)
        if place is None:
            return None
        payload = self._payload(place, kind.name)
        if place.version > sections.VERSIONS[kind]:
            raise UnsupportedError(
                f"{self.key} has section {kind.name} in version {place.version}: "
                "a newer Neve wrote it, upgrade"
            )
        if place.version != sections.VERSIONS[kind]:
            raise DamagedError(self.key, f"section {kind.name} has version {place.version}")
        return payload

    def check_all(self) -> None:
        """Check every section, including kinds unknown to this version."""
        for kind, place in self._places.items():
            self._payload(place, str(kind))
        for each in ("timestamps", "transactions", "producers", "epochs", "state"):
            getattr(self, each)

    def stretch_for(self, offset: int) -> Stretch:
        """Return the stretch of an offset; the first or last one if it is outside the segment."""
        return self._stretch(
            int(np.searchsorted(self.offsets, max(offset, self.offsets[0]), "right")) - 1
        )

    def stretches(self, from_offset: int, to_offset: int) -> list[Stretch]:
        """Return the stretches that may have offsets from `from_offset` to before `to_offset`."""
        end = int(np.searchsorted(self.offsets, to_offset, "left"))
        if end == 0 or from_offset >= to_offset:
            return []
        return self.stretches_between(self.stretch_for(from_offset).entry, end)

    def stretches_between(self, first: int, end: int) -> list[Stretch]:
        """Return the stretches of the entries from `first` up to, not including, `end`."""
        return [self._stretch(index) for index in range(first, end)]

    def offset_for_timestamp(self, timestamp: int) -> int | None:
        """Return the offset to scan from for the first record at or past `timestamp`.

        Returns None if there is no such record. Without a TIMESTAMP section, returns the segment's
        first offset.
        """
        if self.timestamps is None:
            return int(self.offsets[0])
        return self.timestamps.offset_to_scan(timestamp)

    def verify_stretch(self, stretch: Stretch, data: Buffer, segment_key: str) -> memoryview:
        """Check a ranged read from `stretch.start` to `stretch.end`, and return it."""
        view = memoryview(data)
        if len(view) != stretch.end - stretch.start:
            raise DamagedError(
                segment_key,
                f"{len(view)} bytes at {stretch.start} where {self.key} has "
                f"{stretch.end - stretch.start}",
            )
        if stretch.crc is None:
            self._check_batches(stretch, view, segment_key)
        elif crc32c(view) != stretch.crc:
            raise DamagedError(
                segment_key, f"bytes {stretch.start} to {stretch.end} do not match {self.key}"
            )
        return view

    def verify_range(
        self, stretches: Sequence[Stretch], data: Buffer, segment_key: str
    ) -> memoryview:
        """Check one ranged read over adjacent stretches, and return it."""
        view = memoryview(data)
        start = stretches[0].start
        if len(view) != stretches[-1].end - start:
            raise DamagedError(
                segment_key,
                f"{len(view)} bytes at {start} where {self.key} has {stretches[-1].end - start}",
            )
        for each in stretches:
            self.verify_stretch(each, view[each.start - start : each.end - start], segment_key)
        return view

    def verify_header(self, data: Buffer, segment_key: str) -> kfs.SegmentHeader:
        """Check and decode a ranged read of the segment's first HEADER_BYTES."""
        wanted = self.checksums.header_crc if self.checksums else None
        self._verify_edge(data, kfs.HEADER_BYTES, wanted, segment_key)
        return kfs.decode_header(data, segment_key)

    def verify_footer(self, data: Buffer, segment_key: str) -> kfs.SegmentFooter:
        """Check and decode a ranged read of the segment's last FOOTER_BYTES."""
        wanted = self.checksums.footer_crc if self.checksums else None
        self._verify_edge(data, kfs.FOOTER_BYTES, wanted, segment_key)
        return kfs.decode_footer(data, segment_key)

    def _verify_edge(self, data: Buffer, length: int, crc: int | None, segment_key: str) -> None:
        if len(data) != length or (crc is not None and crc32c(data) != crc):
            raise DamagedError(segment_key, f"its header or footer does not match {self.key}")

    def _stretch(self, index: int) -> Stretch:
        last = index + 1 == len(self.positions)
        return Stretch(
            index,
            int(self.offsets[index]),
            int(self.positions[index]),
            self.segment_bytes - kfs.FOOTER_BYTES if last else int(self.positions[index + 1]),
            int(self.checksums.stretch_crcs[index]) if self.checksums else None,
        )

    def _check_batches(self, stretch: Stretch, view: memoryview, segment_key: str) -> None:
        """Check a stretch without a checksum by its batches: their checksums and offsets."""
        last = stretch.entry + 1 == len(self.offsets)
        bound = kfs.OFFSET_MAX if last else int(self.offsets[stretch.entry + 1]) - 1
        position, next_offset = 0, stretch.base_offset
        while position < len(view):
            header = check_batch(view, position, key=segment_key)
            in_order = next_offset <= header.base_offset <= header.last_offset <= bound
            if not in_order or (position == 0 and header.base_offset != next_offset):
                raise DamagedError(
                    segment_key,
                    f"a batch of offsets {header.base_offset} to {header.last_offset} at "
                    f"{stretch.start + position} contradicts {self.key}",
                )
            next_offset = header.next_offset
            position += header.size

    def _payload(self, place: frame.Place, name: str) -> memoryview:
        payload = self._data[place.position : place.position + place.length]
        if crc32c(payload) != place.crc:
            raise DamagedError(self.key, f"section {name} does not match its checksum")
        return payload

    def _decoded_checksums(self) -> sections.Checksums:
        payload = self.section(Section.CHECKSUM)
        if payload is None:
            raise DamagedError(self.key, "it has no CHECKSUM section")
        found = sections.decode_checksums(payload, self.key)
        offset_index = self.section(Section.OFFSET)
        if offset_index is None or crc32c(offset_index) != found.offset_index_crc:
            raise DamagedError(self.key, "its offset index does not match its checksum")
        if len(found.stretch_crcs) != len(self.offsets) or found.last_offset < self.offsets[-1]:
            raise DamagedError(
                self.key,
                f"{len(found.stretch_crcs)} stretches to {found.last_offset} have checksums, "
                f"{len(self.offsets)} to {self.offsets[-1]} are indexed",
            )
        return found


def decode_bundle(data: Buffer, key: str, segment_bytes: int | None = None) -> Bundle:
    """Decode a bundle that Neve wrote: offset index, directory and checksums now, the rest later.

    Raises DamagedError if it is inconsistent, or not for a segment of `segment_bytes`, if given.
    """
    view = memoryview(data)
    entries = frame.decode_offset_index(view, key)
    return Bundle(
        view, key, entries, frame.decode_directory(view, key, len(entries[0])), segment_bytes
    )


def decode_foreign(data: Buffer, key: str, segment_bytes: int) -> Bundle:
    """Decode an `.index` that KafScale may have written. Ignores unknown bytes after its entries.

    If a directory of Neve follows the entries, it is decoded as a bundle.
    """
    view = memoryview(data)
    entries = frame.decode_offset_index(view, key)
    rest = view[frame.INDEX_HEADER_BYTES + len(entries[0]) * frame.INDEX_ENTRY_BYTES :]
    if rest[: len(frame.DIRECTORY_MAGIC)] == frame.DIRECTORY_MAGIC:
        return decode_bundle(data, key, segment_bytes)
    return Bundle(view, key, entries, None, segment_bytes)


def build_bundle(
    segment: kfs.Segment,
    interval: int,
    *,
    producers: Iterable[sections.ProducerEntry],
    epochs: Iterable[sections.EpochStart],
    transactions: Sequence[sections.AbortedTransaction] = (),
    state: Sequence[sections.StateRow] | None = None,
) -> bytes:
    """Encode the bundle of a segment. `producers`, `epochs` and `state` are those at its end."""
    rows = _indexed_batches(segment.batches, interval)
    offsets, positions = segment.batches.base_offset[rows], segment.batches.position[rows]
    offset_index = frame.encode_offset_index(offsets, positions, interval)
    payloads = {
        Section.TIMESTAMP: sections.encode_timestamps(_timestamps(segment.batches, rows)),
        Section.PRODUCER_SNAPSHOT: sections.encode_producers(tuple(producers)),
        Section.LEADER_EPOCH: sections.encode_epochs(tuple(epochs)),
        Section.CHECKSUM: sections.encode_checksums(
            _checksums(segment, positions, crc32c(offset_index))
        ),
    }
    if transactions:
        payloads[Section.TRANSACTION] = sections.encode_transactions(transactions)
    if state is not None:
        payloads[Section.STATE] = sections.encode_state(state)
    return frame.encode_bundle(offset_index, payloads)


def _indexed_batches(batches: kfs.BatchColumns, interval: int) -> Column:
    """Return the rows of batches to index: the first one, then one per `interval` messages."""
    if not 1 <= interval <= 2**31 - 1:
        raise InvalidError(f"an index interval of {interval} messages: choose at least 1")
    before = np.cumsum(batches.record_count) - batches.record_count
    rows, row = [], 0
    while row < len(before):
        rows.append(row)
        row = int(np.searchsorted(before, before[row] + interval, "left"))
    return np.array(rows, np.int64)


def _timestamps(batches: kfs.BatchColumns, rows: Column) -> sections.Timestamps:
    greatest = np.maximum.accumulate(np.maximum.reduceat(batches.max_timestamp, rows))
    grows = np.concatenate(([True], greatest[1:] > greatest[:-1]))
    return sections.Timestamps(greatest[grows], batches.base_offset[rows][grows])


def _checksums(
    segment: kfs.Segment, positions: Column, offset_index_crc: int
) -> sections.Checksums:
    facts = segment.facts
    body_end = facts.segment_bytes - kfs.FOOTER_BYTES
    header_crc, *stretches, footer_crc = _crcs_between(
        segment.parts, [*positions.tolist(), body_end, facts.segment_bytes]
    )
    return sections.Checksums(
        facts.segment_bytes,
        facts.last_offset,
        header_crc,
        footer_crc,
        offset_index_crc,
        np.array(stretches, np.int64),
    )


def _crcs_between(parts: Iterable[Buffer], ends: Sequence[int]) -> list[int]:
    """Return the checksum of each range, from one end to the next, across all parts."""
    crcs: list[int] = []
    crc = position = 0
    for part in parts:
        view = memoryview(part)
        start = 0
        while start < len(view):
            taken = min(len(view) - start, ends[len(crcs)] - position)
            crc = batches_crc(view[start : start + taken], crc)
            start += taken
            position += taken
            if position == ends[len(crcs)]:
                crcs.append(crc)
                crc = 0
    return crcs
