"""The frame of a bundle: the offset index that KafScale reads too, and the directory of sections.

Counts are checked against the actual number of bytes before they are used. The content of sections
is not checked here.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from neve.errors import DamagedError, InvalidError, UnsupportedError
from neve.log.segment import kfs, sections
from neve.log.segment.sections import Column, Section
from neve.records.batch import HEADER_BYTES as BATCH_HEADER_BYTES
from neve.records.crc import crc32c

INDEX_MAGIC = b"IDX\0"
INDEX_VERSION = 1
DIRECTORY_MAGIC = b"NVIX"
DIRECTORY_VERSION = 1
# Positions of sections are unsigned 32-bit numbers; half of that is more than any state needs.
BUNDLE_BYTES_MAX = 2**31 - 1
# An imported index has 12 bytes per batch of its segment, and a batch has at least 61 bytes.
FOREIGN_INDEX_BYTES_MAX = 512 * 1024 * 1024

_INDEX_HEADER = struct.Struct(">4sHiiH")
_INDEX_ENTRY = np.dtype([("offset", ">i8"), ("position", ">i4")])
_DIRECTORY_HEADER = struct.Struct(">4sHH")
_DIRECTORY_ENTRY = struct.Struct(">HHIII")
_CRC = struct.Struct(">I")
INDEX_HEADER_BYTES = _INDEX_HEADER.size
INDEX_ENTRY_BYTES = _INDEX_ENTRY.itemsize
DIRECTORY_HEADER_BYTES = _DIRECTORY_HEADER.size
DIRECTORY_ENTRY_BYTES = _DIRECTORY_ENTRY.size


class Place(NamedTuple):
    """One section's entry in the directory."""

    version: int
    position: int
    length: int
    crc: int


def encode_offset_index(offsets: Column, positions: Column, interval: int) -> bytes:
    """Encode KafScale's version 1 `.index`, which is also the start of a bundle."""
    rows = np.empty(len(offsets), _INDEX_ENTRY)
    rows["offset"], rows["position"] = offsets, positions
    return _INDEX_HEADER.pack(INDEX_MAGIC, INDEX_VERSION, len(rows), interval, 0) + rows.tobytes()


def encode_bundle(offset_index: bytes, payloads: dict[Section, bytes]) -> bytes:
    """Encode a bundle: offset index, directory, and sections in the order of their kinds."""
    kinds = sorted(payloads)
    directory = _DIRECTORY_HEADER.pack(DIRECTORY_MAGIC, DIRECTORY_VERSION, len(kinds))
    position = len(offset_index) + len(directory) + len(kinds) * _DIRECTORY_ENTRY.size + _CRC.size
    total_bytes = position + sum(map(len, payloads.values()))
    if total_bytes > BUNDLE_BYTES_MAX:
        raise InvalidError(f"a bundle has at most {BUNDLE_BYTES_MAX} bytes, not {total_bytes}")
    for kind in kinds:
        payload = payloads[kind]
        directory += _DIRECTORY_ENTRY.pack(
            kind, sections.VERSIONS[kind], position, len(payload), crc32c(payload)
        )
        position += len(payload)
    directory += _CRC.pack(crc32c(directory))
    return b"".join([offset_index, directory, *(payloads[kind] for kind in kinds)])


def decode_offset_index(view: memoryview, key: str) -> tuple[Column, Column]:
    """Decode the offsets and positions of the entries. Ignores what follows them."""
    if len(view) < INDEX_HEADER_BYTES:
        raise DamagedError(key, f"{len(view)} bytes are too few for an index")
    magic, version, count, _, _ = _INDEX_HEADER.unpack_from(view)
    if magic != INDEX_MAGIC:
        raise DamagedError(key, f"it starts with {magic!r}, not {INDEX_MAGIC!r}")
    if version > INDEX_VERSION:
        raise UnsupportedError(f"{key} is an index of version {version}: upgrade to read it")
    end = INDEX_HEADER_BYTES + count * INDEX_ENTRY_BYTES
    if version != INDEX_VERSION or count < 1 or end > len(view):
        raise DamagedError(key, f"version {version} with {count} entries in {len(view)} bytes")
    rows = np.frombuffer(view[INDEX_HEADER_BYTES:end], _INDEX_ENTRY)
    offsets, positions = rows["offset"].astype(np.int64), rows["position"].astype(np.int64)
    ascends = np.all(offsets[1:] > offsets[:-1]) and np.all(
        positions[1:] >= positions[:-1] + BATCH_HEADER_BYTES
    )
    if not ascends or offsets[0] < 0 or positions[0] != kfs.HEADER_BYTES:
        raise DamagedError(key, "its entries do not ascend from the segment's first batch")
    return offsets, positions


def decode_directory(view: memoryview, key: str, entry_count: int) -> dict[int, Place]:
    """Decode the place of each section, by kind, including unknown kinds.

    Raises DamagedError unless the sections fill the rest of the bundle without gaps.
    """
    start = INDEX_HEADER_BYTES + entry_count * INDEX_ENTRY_BYTES
    if len(view) < start + DIRECTORY_HEADER_BYTES:
        raise DamagedError(key, f"{len(view)} bytes are too few for a directory at {start}")
    magic, version, count = _DIRECTORY_HEADER.unpack_from(view, start)
    if magic != DIRECTORY_MAGIC:
        raise DamagedError(key, f"{magic!r} where its directory starts, not {DIRECTORY_MAGIC!r}")
    if version > DIRECTORY_VERSION:
        raise UnsupportedError(f"{key} is a bundle of version {version}: upgrade to read it")
    rows_start = start + DIRECTORY_HEADER_BYTES
    rows_end = rows_start + count * DIRECTORY_ENTRY_BYTES
    if version != DIRECTORY_VERSION or len(view) < rows_end + _CRC.size:
        raise DamagedError(key, f"its directory has version {version} and {count} sections")
    if _CRC.unpack_from(view, rows_end)[0] != crc32c(view[start:rows_end]):
        raise DamagedError(key, "its directory does not match its checksum")
    places: dict[int, Place] = {}
    expected = rows_end + _CRC.size
    for kind, *fields in _DIRECTORY_ENTRY.iter_unpack(view[rows_start:rows_end]):
        place = Place(*fields)
        if place.position != expected or kind in places or kind <= Section.OFFSET:
            raise DamagedError(key, f"section {kind} does not fit into its directory")
        places[kind] = place
        expected += place.length
    if expected != len(view):
        raise DamagedError(key, f"it has {len(view)} bytes and states {expected}")
    return places
