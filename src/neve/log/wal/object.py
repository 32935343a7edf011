"""Encodes and decodes WAL objects, seals and roll-ups. Pure.

Layout: header, directory of slices, the directory's checksum, slices. The directory comes first, so
one small ranged read finds one partition's bytes. Every byte is covered by a checksum that is
verified before the byte is used, whether an object is read whole or by range: the header has its
own, the directory's covers header and directory, and each slice's is in the directory.

An object contains its stream and number; under another key it counts as damaged.
docs/contributors/format.md specifies the bytes.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from neve.errors import DamagedError, InvalidError, UnsupportedError
from neve.log.concat_buffers import concat_buffers
from neve.records.batch import HEADER_BYTES as BATCH_HEADER_BYTES
from neve.records.batch import Buffer, batches_crc, check_batch
from neve.records.crc import crc32c

MAGIC = b"NVWL"
VERSION = 1
AUTHOR_BYTES = 16
TOPIC_ID_BYTES = 16
# A directory of this many slices has 64 MB: the most that an invalid count can make a reader fetch.
SLICES_MAX = 1_000_000
# Up to this many slices, a plain loop is faster than arrays.
FEW_SLICES = 16
# Parts smaller than this on average are joined before their checksum is computed.
SMALL_PART_BYTES = 4 * 1024
# Lengths and positions then fit a signed 32-bit number everywhere, in stores and in clients.
OBJECT_BYTES_MAX = 2**31 - 1

_HEADER = struct.Struct(">4sHHQQ16sqIQ")
_CRC = struct.Struct(">I")
_ENTRY = struct.Struct(">16siiqqqQII")
HEADER_BYTES = _HEADER.size + _CRC.size
ENTRY_BYTES = _ENTRY.size
DIRECTORY_CRC_BYTES = _CRC.size
# A seal has no slices; objects with records are larger.
SEAL_BYTES = HEADER_BYTES + DIRECTORY_CRC_BYTES

Columns: TypeAlias = np.ndarray[Any, np.dtype[np.void]]
_ENTRY_COLUMNS = np.dtype(
    [
        ("topic_id_high", ">u8"),
        ("topic_id_low", ">u8"),
        ("partition", ">i4"),
        ("leader_epoch", ">i4"),
        ("base_offset", ">i8"),
        ("last_offset", ">i8"),
        ("max_timestamp", ">i8"),
        ("position", ">u8"),
        ("length", ">u4"),
        ("crc", ">u4"),
    ]
)


class Kind(enum.IntEnum):
    """The kind of an object of a stream."""

    DATA = 1
    SEAL = 2
    ROLLUP = 3


class Header(NamedTuple):
    """The checked header. `number` of a roll-up is the checkpoint that it was made for."""

    kind: Kind
    incarnation: int
    number: int
    author: bytes
    created_ms: int
    slice_count: int
    body_bytes: int


class SliceMeta(NamedTuple):
    """A writer's description of one slice: record batches of one partition under one epoch.

    `max_timestamp` is the greatest one in the headers of its batches.
    """

    topic_id: bytes
    partition: int
    leader_epoch: int
    base_offset: int
    last_offset: int
    max_timestamp: int


class Slice(NamedTuple):
    """One entry of the directory; `position` counts from the start of the object."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    position: int
    length: int
    crc: int

    @property
    def end(self) -> int:
        return self.position + self.length


class WalObject(NamedTuple):
    """Header and directory, checked. The slices' bytes are checked as they are read."""

    header: Header
    slices: tuple[Slice, ...]


class Encoded(NamedTuple):
    """An object as consecutive buffers, and its directory."""

    parts: list[Buffer]
    slices: tuple[Slice, ...]

    @property
    def data(self) -> memoryview:
        """The object's bytes in one buffer, copied from the parts."""
        return concat_buffers(self.parts)


def directory_bytes(header: Header) -> int:
    """Return how many bytes from the start of the object `decode_directory` needs."""
    return _directory_bytes(header.slice_count)


def object_bytes(header: Header) -> int:
    """Return the size of the whole object."""
    return directory_bytes(header) + header.body_bytes


def _directory_bytes(slice_count: int) -> int:
    return HEADER_BYTES + slice_count * ENTRY_BYTES + DIRECTORY_CRC_BYTES


def encode(
    kind: Kind,
    slices: Sequence[tuple[SliceMeta, Sequence[Buffer]]],
    *,
    incarnation: int,
    number: int,
    author: bytes,
    created_ms: int,
) -> Encoded:
    """Encode one object. The parts of a slice are whole batches.

    Raises InvalidError if the slices break a rule of the format.
    """
    directory_end = _directory_bytes(len(slices))
    directory, parts, body_bytes = _encode_directory(slices, directory_end)
    problem = _counts_problem(kind, len(slices), body_bytes) or _directory_problem(
        kind, np.frombuffer(directory, _ENTRY_COLUMNS), directory_end, body_bytes
    )
    if problem:
        raise InvalidError(f"WAL object {number} of incarnation {incarnation}: {problem}")
    head = _HEADER.pack(
        MAGIC,
        VERSION,
        kind,
        incarnation,
        number,
        _exactly(author, AUTHOR_BYTES, "an author's id"),
        created_ms,
        len(slices),
        body_bytes,
    )
    head += _CRC.pack(crc32c(head))
    head += directory
    entries = tuple(map(Slice._make, _ENTRY.iter_unpack(directory)))
    return Encoded([head, _CRC.pack(crc32c(head)), *parts], entries)


def _encode_directory(
    slices: Sequence[tuple[SliceMeta, Sequence[Buffer]]], directory_end: int
) -> tuple[bytes, list[Buffer], int]:
    """Return the encoded entries, the parts of the body, and the body's size."""
    entries: list[bytes] = []
    body: list[Buffer] = []
    position = directory_end
    for meta, parts in slices:
        length = sum(map(len, parts))
        if length < len(parts) * SMALL_PART_BYTES:
            # A checksum call for each small part takes longer than joining them first.
            parts = (b"".join(parts),)  # noqa: PLW2901
        checksum = 0
        for part in parts:
            checksum = batches_crc(part, checksum)
        body += parts
        # Checked before packing, because a greater length does not fit an entry.
        if position + length > OBJECT_BYTES_MAX:
            raise InvalidError(f"a WAL object has at most {OBJECT_BYTES_MAX} bytes: cut it earlier")
        _exactly(meta.topic_id, TOPIC_ID_BYTES, "a topic's id")
        entries.append(_ENTRY.pack(*meta, position, length, checksum))
        position += length
    return b"".join(entries), body, position - directory_end


def encode_seal(*, incarnation: int, number: int, author: bytes, created_ms: int) -> memoryview:
    """Return a seal: the object that ends a stream whose owner may still be writing."""
    return encode(
        Kind.SEAL,
        (),
        incarnation=incarnation,
        number=number,
        author=author,
        created_ms=created_ms,
    ).data


def decode_header(
    data: Buffer, key: str, *, incarnation: int, number: int, rollup: bool = False
) -> Header:
    """Decode and check the first HEADER_BYTES of an object; `data` may continue after them."""
    if len(data) < HEADER_BYTES:
        raise DamagedError(key, f"{len(data)} bytes are too few for a WAL object's header")
    view = memoryview(data)
    magic, version, kind, *rest = _HEADER.unpack_from(view)
    if magic != MAGIC:
        raise DamagedError(key, f"it starts with {magic!r}, not {MAGIC!r}")
    if _CRC.unpack_from(view, _HEADER.size)[0] != crc32c(view[: _HEADER.size]):
        raise DamagedError(key, "its header does not match its checksum")
    if version > VERSION:
        raise UnsupportedError(f"{key} has version {version}: a newer Neve wrote it, upgrade")
    if version != VERSION or kind not in ((Kind.ROLLUP,) if rollup else (Kind.DATA, Kind.SEAL)):
        raise DamagedError(key, f"a version {version} object of kind {kind} does not belong here")
    header = Header(Kind(kind), *rest)
    if (header.incarnation, header.number) != (incarnation, number):
        raise DamagedError(
            key,
            f"it was written as number {header.number} of incarnation {header.incarnation}, "
            f"and found as {number} of {incarnation}",
        )
    if problem := _counts_problem(header.kind, header.slice_count, header.body_bytes):
        raise DamagedError(key, problem)
    return header


def decode_directory(
    data: Buffer, key: str, *, incarnation: int, number: int, rollup: bool = False
) -> WalObject:
    """Decode and check header and directory, which need `directory_bytes(header)` bytes."""
    header = decode_header(data, key, incarnation=incarnation, number=number, rollup=rollup)
    end = directory_bytes(header)
    if len(data) < end:
        raise DamagedError(key, f"{len(data)} bytes are too few for {header.slice_count} slices")
    view = memoryview(data)[:end]
    covered, trailer = view[:-DIRECTORY_CRC_BYTES], view[-DIRECTORY_CRC_BYTES:]
    if _CRC.unpack(trailer)[0] != crc32c(covered):
        raise DamagedError(key, "its directory does not match its checksum")
    entries = covered[HEADER_BYTES:]
    if problem := _directory_problem(
        header.kind, np.frombuffer(entries, _ENTRY_COLUMNS), end, header.body_bytes
    ):
        raise DamagedError(key, problem)
    return WalObject(header, tuple(map(Slice._make, _ENTRY.iter_unpack(entries))))


def decode(
    data: Buffer, key: str, *, incarnation: int, number: int, rollup: bool = False
) -> WalObject:
    """Decode a whole object, and check it including every slice."""
    decoded = decode_directory(data, key, incarnation=incarnation, number=number, rollup=rollup)
    if len(data) != object_bytes(decoded.header):
        raise DamagedError(
            key, f"it has {len(data)} bytes and states {object_bytes(decoded.header)}"
        )
    view = memoryview(data)
    for entry in decoded.slices:
        slice_bytes(entry, view[entry.position : entry.end], key)
    return decoded


def slice_bytes(entry: Slice, data: Buffer, key: str) -> memoryview:
    """Check a ranged read from `entry.position` to `entry.end`, and return it."""
    if len(data) != entry.length:
        raise DamagedError(
            key, f"{len(data)} bytes at {entry.position} where a slice has {entry.length}"
        )
    if crc32c(data) != entry.crc:
        raise DamagedError(key, f"the slice at {entry.position} does not match its checksum")
    return memoryview(data)


def check_slice(entry: Slice, data: Buffer, key: str) -> None:
    """Check that a slice's batches match its entry: offsets, epoch, timestamp, checksums."""
    view = slice_bytes(entry, data, key)
    position, max_timestamp, next_offset = 0, None, entry.base_offset
    while position < len(view):
        header = check_batch(view, position, key=key)
        first = position == 0
        if header.base_offset < next_offset or (first and header.base_offset != next_offset):
            raise DamagedError(
                key, f"a batch at offset {header.base_offset} where {next_offset} is next"
            )
        if header.leader_epoch != entry.leader_epoch or header.last_offset < header.base_offset:
            raise DamagedError(
                key,
                f"the batch at offset {header.base_offset} has epoch {header.leader_epoch} and "
                f"ends at {header.last_offset}; its slice has epoch {entry.leader_epoch}",
            )
        if max_timestamp is None or header.max_timestamp > max_timestamp:
            max_timestamp = header.max_timestamp
        next_offset = header.next_offset
        position += header.size
    if (next_offset - 1, max_timestamp) != (entry.last_offset, entry.max_timestamp):
        raise DamagedError(
            key,
            f"the slice at {entry.position} ends at offset {next_offset - 1}, time "
            f"{max_timestamp}; its entry says {entry.last_offset} and {entry.max_timestamp}",
        )


def _exactly(value: bytes, length: int, what: str) -> bytes:
    if len(value) != length:
        raise InvalidError(f"{what} has {length} bytes, not {len(value)}")
    return value


def _counts_problem(kind: Kind, slice_count: int, body_bytes: int) -> str:
    if slice_count > SLICES_MAX:
        return f"{slice_count} slices are above the bound of {SLICES_MAX}"
    if body_bytes + _directory_bytes(slice_count) > OBJECT_BYTES_MAX:
        return f"{body_bytes} bytes of slices are above the bound of {OBJECT_BYTES_MAX}"
    if (slice_count == 0) != (kind is Kind.SEAL) or (slice_count == 0) != (body_bytes == 0):
        return f"a {kind.name} cannot have {slice_count} slices of {body_bytes} bytes"
    return ""


def _directory_problem(kind: Kind, columns: Columns, directory_end: int, body_bytes: int) -> str:
    """Return why a directory is inconsistent; an empty string if it is consistent."""
    if len(columns) == 0:
        return ""
    if len(columns) <= FEW_SLICES:
        return _few_slices_problem(kind, columns.tolist(), directory_end, body_bytes)
    lengths = columns["length"].astype(np.int64)
    ends = directory_end + np.cumsum(lengths)
    if int(ends[-1]) != directory_end + body_bytes:
        return f"its slices have {int(ends[-1]) - directory_end} bytes, its body {body_bytes}"
    if not np.array_equal(columns["position"], (ends - lengths).astype(np.uint64)):
        return "its slices do not lie back to back"
    if int(lengths.min()) < BATCH_HEADER_BYTES:
        return f"a slice of {int(lengths.min())} bytes cannot hold a batch"
    base, last = columns["base_offset"], columns["last_offset"]
    if int(base.min()) < 0 or bool(np.any(last < base)) or int(columns["partition"].min()) < 0:
        return "a slice has a negative partition or offset, or ends before it starts"
    return _order_problem(kind, columns)


def _few_slices_problem(
    kind: Kind, rows: list[tuple[int, ...]], directory_end: int, body_bytes: int
) -> str:
    """Do the same in a loop, which is faster than arrays for a few slices."""
    end = directory_end
    if (total := sum(row[8] for row in rows)) != body_bytes:
        return f"its slices have {total} bytes, its body {body_bytes}"
    before: dict[tuple[int, ...], int] = {}
    for high, low, partition, _, base, last, _, position, length, _ in rows:
        if position != end:
            return "its slices do not lie back to back"
        if length < BATCH_HEADER_BYTES:
            return f"a slice of {length} bytes cannot hold a batch"
        if base < 0 or last < base or partition < 0:
            return "a slice has a negative partition or offset, or ends before it starts"
        name = (high, low, partition)
        if kind is Kind.ROLLUP and before and name < next(reversed(before)):
            return "the slices of a roll-up are not sorted by partition"
        if before.get(name, -1) >= base:
            return "slices of one partition do not ascend"
        before[name] = last
        end += length
    return ""


def _order_problem(kind: Kind, columns: Columns) -> str:
    """Check that slices of a partition ascend, and those of a roll-up are sorted by partition."""
    partition, low, high = (
        columns[name].astype(native)
        for name, native in (("partition", "i4"), ("topic_id_low", "u8"), ("topic_id_high", "u8"))
    )
    order = np.lexsort((partition, low, high))
    if kind is Kind.ROLLUP and not np.array_equal(order, np.arange(len(columns))):
        return "the slices of a roll-up are not sorted by partition"
    before, after = order[:-1], order[1:]
    same = (
        (partition[before] == partition[after])
        & (low[before] == low[after])
        & (high[before] == high[after])
    )
    if bool(np.any(same & (columns["last_offset"][before] >= columns["base_offset"][after]))):
        return "slices of one partition do not ascend"
    return ""
