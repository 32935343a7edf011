"""The reference decoder and builder of record batches: slow, strict, and close to the format.

It defines what the compiled kernel must return, and is used to read a few records. A batch is
decoded completely or not at all: if a length, varint or count contradicts the bytes, it raises
DamagedError. Unlike Kafka's client it also rejects null lengths other than -1, varints that do not
fit their type, and offset deltas that do not increase or exceed the header's last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from neve.errors import DamagedError, InvalidError
from neve.records import compression
from neve.records.batch import (
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    assemble,
    check_batch,
)

RECORD_BYTES_MIN = 7
"""A byte each for length, attributes, two deltas, key length, value length and header count."""

Headers: TypeAlias = tuple[tuple[str | bytes, bytes | None], ...]

_INT32_BITS, _INT64_BITS = 32, 64
_BASE_OFFSET_MAX = (1 << 63) - (1 << 31)
"""The limit that keeps all offsets of a batch within 64 bits."""


class Record(NamedTuple):
    """One record. Header keys are text, or raw bytes if they are not UTF-8."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def decode_batch(
    data: Buffer,
    position: int = 0,
    *,
    key: str = "",
    limit: int = compression.DECOMPRESSED_BYTES_MAX,
) -> list[Record]:
    """Return every record of the batch at `position`, including control records."""
    return list(iterate_batch(data, position, key=key, limit=limit))


def iterate_batch(
    data: Buffer,
    position: int = 0,
    *,
    key: str = "",
    limit: int = compression.DECOMPRESSED_BYTES_MAX,
) -> Iterator[Record]:
    """Yield the records one by one. A damaged record raises when it is reached."""
    header = check_batch(data, position, key=key)
    section = memoryview(data)[position + HEADER_BYTES : position + header.size]
    records = open_section(
        section,
        header.codec,
        header.record_count,
        header.base_offset,
        key=key,
        limit=limit,
    )
    yield from _iterate_section(header, records, key=key)


def open_section(
    section: memoryview,
    codec: int,
    record_count: int,
    base_offset: int,
    *,
    key: str = "",
    limit: int = compression.DECOMPRESSED_BYTES_MAX,
) -> memoryview:
    """Return the decompressed records of a batch, checked for a plausible size."""
    if not 0 <= base_offset <= _BASE_OFFSET_MAX:
        raise DamagedError(key, f"a batch has base offset {base_offset}")
    # Compaction may leave a header without records, with any codec.
    if codec and len(section):
        section = memoryview(compression.decompress(codec, section, limit, key=key))
    if record_count * RECORD_BYTES_MIN > len(section):
        raise DamagedError(
            key,
            f"the batch at offset {base_offset} says it has {record_count} records, "
            f"its {len(section)} bytes of records cannot hold them",
        )
    return section


def _iterate_section(header: BatchHeader, section: Buffer, *, key: str) -> Iterator[Record]:
    reader = _Reader(_as_bytes(section), f"the batch at offset {header.base_offset}", key)
    last_delta = -1
    for _ in range(header.record_count):
        record, last_delta = _decode_record(reader, header, last_delta)
        yield record
    if reader.position != len(section):
        raise reader.damage(
            f"{len(section) - reader.position} bytes follow its {header.record_count} records"
        )


def _as_bytes(section: Buffer) -> bytes:
    """Return the data as bytes, without a copy if it is a whole bytes object."""
    owner = section.obj if isinstance(section, memoryview) else section
    whole = isinstance(owner, bytes) and len(owner) == len(section)
    return owner if whole and isinstance(owner, bytes) else bytes(section)


class _Reader:
    """A bounds-checked reader of bytes."""

    def __init__(self, data: bytes, about: str, key: str) -> None:
        self.data = data
        self.position = 0
        self._about = about
        self._key = key

    def damage(self, reason: str) -> DamagedError:
        return DamagedError(self._key, f"{self._about}: {reason} (at byte {self.position})")

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.position:
            raise self.damage(f"a length of {size} passes the end")
        self.position += size
        return self.data[self.position - size : self.position]

    def varint(self, bits: int = _INT32_BITS) -> int:
        """Read a zigzag varint that fits a signed integer of `bits` bits."""
        value = 0
        for index in range((bits + 6) // 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                if value >> bits:
                    break
                return (value >> 1) ^ -(value & 1)
        raise self.damage(f"a varint does not fit {bits} bits")

    def nullable(self) -> bytes | None:
        size = self.varint()
        if size < -1:
            raise self.damage(f"a length is {size}")
        return None if size == -1 else self.take(size)


def _decode_record(reader: _Reader, header: BatchHeader, last_delta: int) -> tuple[Record, int]:
    length = reader.varint()
    end = reader.position + length
    if length < 0 or end > len(reader.data):
        raise reader.damage(f"a record says it has {length} bytes")
    reader.take(1)  # attributes: none are defined
    timestamp = _int64(header.base_timestamp + reader.varint(_INT64_BITS))
    if header.attributes & LOG_APPEND_TIME:
        timestamp = header.max_timestamp
    delta = reader.varint()
    if not last_delta < delta <= header.last_offset_delta:
        raise reader.damage(
            f"offset delta {delta} follows {last_delta}; the last is {header.last_offset_delta}"
        )
    record = Record(
        header.base_offset + delta,
        timestamp,
        reader.nullable(),
        reader.nullable(),
        _headers(reader),
    )
    if reader.position != end:
        raise reader.damage(f"a record of {length} bytes ends elsewhere than it says")
    return record, delta


def _int64(value: int) -> int:
    """Wrap timestamps and their deltas around 64 bits, as Kafka's Java does."""
    return ((value + (1 << 63)) & 0xFFFFFFFFFFFFFFFF) - (1 << 63)


def _headers(reader: _Reader) -> Headers:
    count = reader.varint()
    if count < 0:
        raise reader.damage(f"a record says it has {count} headers")
    headers: list[tuple[str | bytes, bytes | None]] = []
    for _ in range(count):
        name = reader.nullable()
        if name is None:
            raise reader.damage("a header has no key")
        headers.append((_text(name), reader.nullable()))
    return tuple(headers)


def _text(name: bytes) -> str | bytes:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return name


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    codec: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    last_offset_delta: int | None = None,
) -> bytes:
    """Build a batch of these records.

    `base_offset` and `last_offset_delta` default to those of the records; compacted batches have
    others. With `log_append_time`, all records have that time.
    """
    first = records[0] if records else Record(base_offset or 0, NO_TIMESTAMP, None, None)
    base = first.offset if base_offset is None else base_offset
    delta = records[-1].offset - base if records else -1
    times = [record.timestamp for record in records] or [NO_TIMESTAMP]
    flags = (
        (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
        | (LOG_APPEND_TIME if log_append_time is not None else 0)
    )
    return assemble(
        b"".join(encode_record(record, base, first.timestamp) for record in records),
        record_count=len(records),
        last_offset_delta=delta if last_offset_delta is None else last_offset_delta,
        base_offset=base,
        base_timestamp=first.timestamp,
        max_timestamp=max(times) if log_append_time is None else log_append_time,
        leader_epoch=leader_epoch,
        codec=codec,
        flags=flags,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def encode_record(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """Encode one record."""
    delta = record.offset - base_offset
    if not 0 <= delta < 1 << 31:
        raise InvalidError(
            f"offset {record.offset} cannot be in a batch with base offset {base_offset}"
        )
    body = bytearray(b"\x00")
    body += varint(_int64(record.timestamp - base_timestamp))
    body += varint(delta)
    body += _nullable(record.key) + _nullable(record.value) + varint(len(record.headers))
    for name, value in record.headers:
        body += _nullable(name.encode() if isinstance(name, str) else name) + _nullable(value)
    return varint(len(body)) + bytes(body)


def varint(value: int) -> bytes:
    """Encode a zigzag varint of at most 64 bits."""
    rest = ((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _nullable(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data
