"""Encodes and checks segments (`.kfs`): KafScale's version 1, so that both systems can read them.

Layout: header, adjacent record batches, footer. The footer's checksum covers the batches, including
base offsets and leader epochs. This format has no checksum of header and footer themselves. A whole
read (`check`) therefore compares them with the batches, and the bundle's CHECKSUM section covers
every byte of them. docs/contributors/format.md specifies the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from neve.errors import DamagedError, InvalidError, UnsupportedError
from neve.records.batch import HEADER_BYTES as BATCH_HEADER_BYTES
from neve.records.batch import BatchHeader, Buffer, batches_crc, check_batch, check_header
from neve.records.crc import crc32c

MAGIC = b"KAFS"
END_MAGIC = b"END!"
VERSION = 1
# Positions in the index are signed 32-bit numbers.
SEGMENT_BYTES_MAX = 2**31 - 1
MESSAGE_COUNT_MAX = 2**31 - 1
OFFSET_MAX = 2**63 - 1

_HEADER = struct.Struct(">4sHHqiqI")
_FOOTER = struct.Struct(">Iq4s")
HEADER_BYTES = _HEADER.size
FOOTER_BYTES = _FOOTER.size
# The batches of one segment. Any batch of a WAL object fits, since the object's header and
# directory are larger than a segment's header and footer.
BODY_BYTES_MAX = SEGMENT_BYTES_MAX - HEADER_BYTES - FOOTER_BYTES

Column: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Observer: TypeAlias = Callable[[BatchHeader, memoryview], object]
"""Called for every batch in order, with its header and its bytes."""


class SegmentHeader(NamedTuple):
    """The fields of a segment's header."""

    base_offset: int
    message_count: int
    created_ms: int


class SegmentFooter(NamedTuple):
    """The fields of a segment's footer."""

    body_crc: int
    last_offset: int


class SegmentFacts(NamedTuple):
    """A summary of a segment's batches.

    The timestamps are those of batch headers. A producer may give a record an earlier timestamp
    than its batch's first one, so only `max_timestamp` limits those of records.
    """

    base_offset: int
    last_offset: int
    message_count: int
    segment_bytes: int
    body_crc: int
    min_base_timestamp: int
    max_timestamp: int
    created_ms: int


class BatchColumns(NamedTuple):
    """Columns with one row per batch; positions are relative to the start of the segment."""

    position: Column
    base_offset: Column
    record_count: Column
    max_timestamp: Column


class Segment(NamedTuple):
    """A built or checked segment: its bytes in consecutive parts, facts, and batches."""

    parts: tuple[Buffer, ...]
    facts: SegmentFacts
    batches: BatchColumns


def encode_header(header: SegmentHeader) -> bytes:
    return _HEADER.pack(
        MAGIC, VERSION, 0, header.base_offset, header.message_count, header.created_ms, 0
    )


def encode_footer(footer: SegmentFooter) -> bytes:
    return _FOOTER.pack(footer.body_crc, footer.last_offset, END_MAGIC)


def build(
    base_offset: int,
    created_ms: int,
    batches: Iterable[Buffer],
    *,
    observe: Observer | None = None,
) -> Segment:
    """Build a segment of `batches`, each a buffer of one or more whole batches, without copying.

    The batches must already have passed their own checks, and `base_offset` must be that of the
    first one. Raises InvalidError otherwise, or if the segment would be too large.
    """
    body = tuple(batches)
    scan = _Scan("the segment being built")
    body_crc = 0
    for part in body:
        scan.take(part, check_header, observe)
        body_crc = batches_crc(part, body_crc)
        if scan.position + FOOTER_BYTES > SEGMENT_BYTES_MAX:
            raise InvalidError(f"a segment has at most {SEGMENT_BYTES_MAX} bytes: cut it earlier")
    facts, columns = scan.result(body_crc, created_ms)
    if facts.base_offset != base_offset:
        raise InvalidError(
            f"requested a segment with base offset {base_offset}, "
            f"but its first batch has {facts.base_offset}"
        )
    header = encode_header(SegmentHeader(base_offset, facts.message_count, created_ms))
    footer = encode_footer(SegmentFooter(body_crc, facts.last_offset))
    return Segment((header, *body, footer), facts, columns)


def decode_header(data: Buffer, key: str) -> SegmentHeader:
    """Decode the first HEADER_BYTES of a segment; `data` may continue after them."""
    if len(data) < HEADER_BYTES:
        raise DamagedError(key, f"{len(data)} bytes are too few for a segment's header")
    magic, version, flags, base_offset, count, created_ms, reserved = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise DamagedError(key, f"it starts with {magic!r}, not {MAGIC!r}")
    if version > VERSION or flags:
        raise UnsupportedError(
            f"{key} is a segment of version {version} with flags {flags:#x}: "
            f"this Neve reads version {VERSION} without flags, upgrade"
        )
    if version != VERSION or reserved or base_offset < 0 or count < 0:
        raise DamagedError(
            key,
            f"its header has version {version}, base offset {base_offset}, "
            f"{count} messages, reserved {reserved}",
        )
    return SegmentHeader(base_offset, count, created_ms)


def decode_footer(data: Buffer, key: str) -> SegmentFooter:
    """Decode the last FOOTER_BYTES of a segment; `data` may have more before them."""
    if len(data) < FOOTER_BYTES:
        raise DamagedError(key, f"{len(data)} bytes are too few for a segment's footer")
    body_crc, last_offset, magic = _FOOTER.unpack_from(data, len(data) - FOOTER_BYTES)
    if magic != END_MAGIC:
        raise DamagedError(key, f"it ends with {magic!r}, not {END_MAGIC!r}: it was cut short")
    return SegmentFooter(body_crc, last_offset)


def check(data: Buffer, key: str, *, observe: Observer | None = None) -> Segment:
    """Check a whole segment, including every batch. Raises DamagedError or UnsupportedError."""
    if not HEADER_BYTES + BATCH_HEADER_BYTES + FOOTER_BYTES <= len(data) <= SEGMENT_BYTES_MAX:
        raise DamagedError(key, f"no segment has {len(data)} bytes")
    header, footer = decode_header(data, key), decode_footer(data, key)
    body = memoryview(data)[HEADER_BYTES:-FOOTER_BYTES]
    # First, because this also covers the fields that the batches' own checksums do not.
    if crc32c(body) != footer.body_crc:
        raise DamagedError(key, "its batches do not match the checksum in its footer")
    scan = _Scan(key)
    scan.take(body, check_batch, observe)
    facts, columns = scan.result(footer.body_crc, header.created_ms)
    stated = (header.base_offset, header.message_count, footer.last_offset)
    found = (facts.base_offset, facts.message_count, facts.last_offset)
    if stated != found:
        raise DamagedError(
            key,
            f"it states base offset {stated[0]}, {stated[1]} messages, last offset {stated[2]}; "
            f"its batches amount to {found[0]}, {found[1]}, {found[2]}",
        )
    return Segment((data,), facts, columns)


class _Scan:
    """One pass over a segment's batches."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.position = HEADER_BYTES
        self._next_offset = 0
        self._min_base_timestamp = 2**63 - 1
        # A list while scanning: appending to an array would cost ten times as much.
        self._rows: list[tuple[int, int, int, int]] = []

    def take(
        self, part: Buffer, check_one: Callable[..., BatchHeader], observe: Observer | None
    ) -> None:
        view = memoryview(part)
        start = 0
        while start < len(view):
            header = check_one(view, start, key=self._key)
            last_offset = header.last_offset
            if not self._next_offset <= header.base_offset <= last_offset <= OFFSET_MAX:
                raise DamagedError(
                    self._key,
                    f"a batch of offsets {header.base_offset} to {last_offset} "
                    f"where {self._next_offset} is next",
                )
            if observe is not None:
                observe(header, view[start : start + header.size])
            self._rows.append(
                (
                    self.position + start,
                    header.base_offset,
                    header.record_count,
                    header.max_timestamp,
                )
            )
            self._min_base_timestamp = min(self._min_base_timestamp, header.base_timestamp)
            self._next_offset = last_offset + 1
            start += header.size
        self.position += start

    def result(self, body_crc: int, created_ms: int) -> tuple[SegmentFacts, BatchColumns]:
        if not self._rows:
            raise InvalidError(f"{self._key}: a segment has at least one batch")
        columns = BatchColumns(*np.array(self._rows, np.int64).T)
        facts = SegmentFacts(
            base_offset=int(columns.base_offset[0]),
            last_offset=self._next_offset - 1,
            message_count=min(int(columns.record_count.sum()), MESSAGE_COUNT_MAX),
            segment_bytes=self.position + FOOTER_BYTES,
            body_crc=body_crc,
            min_base_timestamp=self._min_base_timestamp,
            max_timestamp=int(columns.max_timestamp.max()),
            created_ms=created_ms,
        )
        return facts, columns
