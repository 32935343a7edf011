"""The header of a Kafka record batch (magic 2): parsing, checking, patching and building.

A batch keeps the bytes that its producer sent. Neve patches base offset and leader epoch, which the
batch's checksum does not cover; only log-append time and recompression change more. Nothing here
parses the records, and only `recompressed` decompresses them.

The checksum covers everything from the attributes on. The checksum of the segment or WAL object
that contains the batch covers base offset (bytes 0 to 7) and leader epoch (12 to 15).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from neve.errors import DamagedError, InvalidError, UnsupportedError
from neve.records import compression
from neve.records.crc import combined, crc32c

Buffer: TypeAlias = bytes | bytearray | memoryview

HEADER_BYTES = 61
"""Size of everything before the records."""
LENGTH_END = 12
"""The length field counts the bytes from here on."""
CRC_END = 21
"""The checksum covers the bytes from here on."""

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1

# For larger batches, combining two checksums is faster than computing one.
LARGE_BATCH_BYTES = 16 * 1024

_HEADER = struct.Struct(">qiibIhiqqqhii")
_GLANCE = struct.Struct(">8xi4xbI")
_EPOCH = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_AT_EPOCH, _AT_MAGIC, _AT_CRC, _AT_ATTRIBUTES, _AT_MAX_TIMESTAMP = 12, 16, 17, 21, 35


class BatchHeader(NamedTuple):
    """The header's fields, in wire order."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The size of the whole batch in bytes, including the header."""
        return self.length + LENGTH_END

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """0: create time (the producer's); 1: log-append time."""
        return (self.attributes & LOG_APPEND_TIME) >> 3

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL != 0


def parse_header(data: Buffer, position: int = 0, *, key: str = "") -> BatchHeader:
    """Unpack the fields without checks, except for the bounds of `data`."""
    try:
        return BatchHeader._make(_HEADER.unpack_from(data, position))
    except struct.error:
        raise DamagedError(
            key, f"{len(data) - position} bytes at {position} are too few for a batch header"
        ) from None


def check_header(data: Buffer, position: int = 0, *, key: str = "") -> BatchHeader:
    """Return the header of a batch that is completely within `data`; skips the checksum."""
    room = len(data) - position
    # Kafka's older formats have shorter headers, so check the magic before the size.
    if _AT_MAGIC < room < HEADER_BYTES:
        _check_magic(data[position + _AT_MAGIC], position, key)
    header = parse_header(data, position, key=key)
    if header.magic != 2:
        _check_magic(header.magic, position, key)
    if not HEADER_BYTES <= header.length + LENGTH_END <= room:
        raise DamagedError(
            key,
            f"the batch at {position} says it has {header.length} bytes after its length, "
            f"{room - LENGTH_END} are there",
        )
    if header.record_count < 0 or header.last_offset_delta < -1:
        raise DamagedError(
            key,
            f"the batch at {position} says it has {header.record_count} records and a last "
            f"offset delta of {header.last_offset_delta}",
        )
    return header


def check_batch(data: Buffer, position: int = 0, *, key: str = "") -> BatchHeader:
    """Return the header of a batch that is completely within `data`; verifies the checksum."""
    header = check_header(data, position, key=key)
    found = crc32c(memoryview(data)[position + CRC_END : position + LENGTH_END + header.length])
    if found != header.crc:
        raise DamagedError(
            key,
            f"the batch at {position} has checksum {found:08x} where {header.crc:08x} is recorded",
        )
    return header


def check_produced(data: Buffer, position: int = 0) -> BatchHeader:
    """Return the header of a produced batch. `data` may continue after it.

    Raises DamagedError for bytes that fail their checks, InvalidError for a batch that contradicts
    itself or that only a broker may write, UnsupportedError for an old format or unknown codec.
    """
    if len(data) - position >= HEADER_BYTES:
        # All checks of a valid batch at once: this runs for every produced batch.
        header = BatchHeader._make(_HEADER.unpack_from(data, position))
        end = position + LENGTH_END + header.length
        if (
            header.magic == 2
            and position + HEADER_BYTES <= end <= len(data)
            and 1 <= header.record_count == header.last_offset_delta + 1
            and not header.attributes & CONTROL
            and header.attributes & CODEC_MASK in compression.CODECS
            and crc32c(memoryview(data)[position + CRC_END : end]) == header.crc
        ):
            return header
    return _judged(data, position)


def _judged(data: Buffer, position: int) -> BatchHeader:
    """Repeat the checks of `check_produced` one by one, to raise the error that applies.

    Returns the header if no check fails.
    """
    header = check_batch(data, position, key="produced batch")
    if header.record_count < 1 or header.record_count != header.last_offset_delta + 1:
        raise InvalidError(
            f"a produced batch has {header.record_count} records but a last offset delta of "
            f"{header.last_offset_delta}: send count = last offset delta + 1, at least one record"
        )
    if header.codec not in compression.CODECS:
        raise UnsupportedError(
            f"a produced batch has compression codec {header.codec}: send one of "
            f"{', '.join(compression.CODECS.values())}"
        )
    if header.is_control:
        raise InvalidError("a produced batch is a control batch, which only a broker may write")
    return header


def walk(data: Buffer, *, key: str = "") -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of adjacent batches, checking bounds but not content.

    A reader that returns records must use `check_batch`.
    """
    position = 0
    while position < len(data):
        header = check_header(data, position, key=key)
        yield position, header
        position += header.size


def batches_crc(data: Buffer, previous: int = 0) -> int:
    """Return the CRC-32C of whole batches that are known to match their own checksums.

    For large batches this combines the checksum in the header instead of reading the records. If
    they are damaged after all, the result does not match them either, so readers detect it.
    """
    view = memoryview(data)
    while len(view) >= LARGE_BATCH_BYTES:
        length, magic, crc = _GLANCE.unpack_from(view)
        size = length + LENGTH_END
        if magic != 2 or not LARGE_BATCH_BYTES <= size <= len(view):
            break
        previous = combined(crc32c(view[:CRC_END], previous), crc, size - CRC_END)
        view = view[size:]
    return crc32c(view, previous)


def patch(
    buffer: bytearray | memoryview, base_offset: int, leader_epoch: int, position: int = 0
) -> None:
    """Set base offset and leader epoch in place; the batch's checksum does not cover them."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + _AT_EPOCH, leader_epoch)


def patch_log_append_time(
    buffer: bytearray | memoryview, timestamp_ms: int, position: int = 0
) -> BatchHeader:
    """Set the log-append time of a batch, which applies to all its records; update the checksum.

    Returns the new header, which indexes by time need.
    """
    header = check_header(buffer, position)
    _ATTRIBUTES.pack_into(buffer, position + _AT_ATTRIBUTES, header.attributes | LOG_APPEND_TIME)
    _OFFSET.pack_into(buffer, position + _AT_MAX_TIMESTAMP, timestamp_ms)
    covered = memoryview(buffer)[position + CRC_END : position + header.size]
    _CRC.pack_into(buffer, position + _AT_CRC, crc32c(covered))
    return parse_header(buffer, position)


def recompressed(data: Buffer, codec: int, limit: int) -> bytearray:
    """Return a checked batch in another codec; the rest of its header is unchanged.

    Raises OversizeError if it decompresses to more than `limit` bytes, and DamagedError if it
    cannot be decompressed.
    """
    header = parse_header(data)
    section = compression.decompress(
        header.codec, memoryview(data)[HEADER_BYTES : header.size], limit, key="produced batch"
    )
    batch = assemble(
        section,
        record_count=header.record_count,
        last_offset_delta=header.last_offset_delta,
        base_offset=header.base_offset,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        leader_epoch=header.leader_epoch,
        codec=codec,
        flags=header.attributes & ~CODEC_MASK,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return bytearray(batch)


def assemble(
    section: Buffer,
    *,
    record_count: int,
    last_offset_delta: int,
    base_offset: int = 0,
    base_timestamp: int = NO_TIMESTAMP,
    max_timestamp: int = NO_TIMESTAMP,
    leader_epoch: int = -1,
    codec: int = 0,
    flags: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytes:
    """Return a batch of encoded records. `flags` are attribute bits other than the codec."""
    body = compression.compress(codec, section)
    batch = bytearray(HEADER_BYTES + len(body))
    batch[HEADER_BYTES:] = body
    _HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LENGTH_END,
        leader_epoch,
        2,
        0,
        flags | codec,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    _CRC.pack_into(batch, _AT_CRC, crc32c(memoryview(batch)[CRC_END:]))
    return bytes(batch)


def _check_magic(magic: int, position: int, key: str) -> None:
    if magic == 2:
        return
    if magic in (0, 1):
        raise UnsupportedError(
            f"{key or 'data'}: the batch at {position} has Kafka's old format (magic {magic}): "
            "use a client that supports magic 2 (Kafka 0.11 or later)"
        )
    raise DamagedError(key, f"the batch at {position} has the unknown magic {magic}")
