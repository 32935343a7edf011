"""Lengths and counts that lie, under right checksums, do not make a reader ask for memory."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable

import pytest

from neve.errors import DamagedError
from neve.log import envelope
from neve.log.segment import bundle, kfs, sections
from neve.log.wal import object as wal
from neve.records.crc import crc32c
from support import format_samples as samples

# Far below what any of the lying lengths stands for, and above what an error message costs.
MEMORY_BYTES_MAX = 256 * 1024

U16, U32, U63 = 2**16 - 1, 2**32 - 1, 2**63 - 1
SEGMENT, BUNDLE = samples.pair()


def wal_header(slice_count: int, body_bytes: int, kind: int = 1) -> bytes:
    head = struct.pack(
        ">4sHHQQ16sqIQ", b"NVWL", 1, kind, 5, 6, samples.AUTHOR, 0, slice_count, body_bytes
    )
    head += struct.pack(">I", crc32c(head))
    return head + struct.pack(">I", crc32c(head)) + b"\0" * 200


def read_wal(data: bytes) -> object:
    return wal.decode(data, "k", incarnation=5, number=6)


def index(count: int) -> bytes:
    return struct.pack(">4sHiiH", b"IDX\0", 1, count, 1, 0) + b"\0" * 100


def directory(count: int, position: int, length: int) -> bytes:
    start = struct.pack(">4sHiiH", b"IDX\0", 1, 1, 1, 0) + struct.pack(">qi", 0, 32)
    rows = struct.pack(">4sHH", b"NVIX", 1, count) + struct.pack(
        ">HHIII", sections.Section.CHECKSUM, 1, position, length, 0
    )
    return start + rows + struct.pack(">I", crc32c(rows)) + b"\0" * 100


def read_bundle(data: bytes) -> object:
    return bundle.decode_bundle(data, "k")


def read_foreign(data: bytes) -> object:
    return bundle.decode_foreign(data, "k", 1000)


def read_envelope(data: bytes) -> object:
    return envelope.open_envelope(data, envelope.Kind.MANIFEST_RUN, "p", 1, "k")


def sealed_with_length(length: int) -> bytes:
    data = bytearray(envelope.seal_envelope(envelope.Kind.MANIFEST_RUN, "p", 1, samples.AUTHOR, {}))
    struct.pack_into(">I", data, 36, length)
    struct.pack_into(">I", data, len(data) - 4, crc32c(data[:-4]))
    return bytes(data)


def segment_with_batch_length(length: int) -> bytes:
    data = bytearray(SEGMENT)
    struct.pack_into(">i", data, 32 + 8, length)
    struct.pack_into(">I", data, len(data) - 16, crc32c(data[32:-16]))
    return bytes(data)


def decoder(decode: Callable[[bytes, str], object]) -> Callable[[bytes], object]:
    return lambda data: decode(data, "k")


check_segment = decoder(kfs.check)
producers = decoder(sections.decode_producers)
# A producer that says it has more batches than any may have.
one_producer = struct.pack(">qhiqqiqH", 1, 0, 0, 0, 0, 0, 0, U16)
ONE = struct.pack(">I", 1) + one_producer[:-2]

CASES: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "slices": (read_wal, wal_header(U32, 100)),
    "slices at the bound": (read_wal, wal_header(wal.SLICES_MAX, 100_000_000)),
    "slices above the bound": (read_wal, wal_header(wal.SLICES_MAX + 1, 100_000_000)),
    "body": (read_wal, wal_header(1, 2**64 - 1)),
    "body of a seal": (read_wal, wal_header(0, 2**64 - 1, kind=2)),
    "index entries": (read_foreign, index(2**31 - 1)),
    "index entries below zero": (read_foreign, index(-1)),
    "no index entries": (read_foreign, index(0)),
    "sections": (read_bundle, directory(U16, 56, 10)),
    "section length": (read_bundle, directory(1, 56, U32)),
    "section position": (read_bundle, directory(1, U32, 10)),
    "timestamps": (decoder(sections.decode_timestamps), struct.pack(">I", U32) + b"\0" * 160),
    "transactions": (decoder(sections.decode_transactions), struct.pack(">I", U32) + b"\0" * 160),
    "epochs": (decoder(sections.decode_epochs), struct.pack(">I", U32) + b"\0" * 120),
    "producers": (producers, struct.pack(">I", U32) + b"\0" * 160),
    "recent batches": (producers, struct.pack(">I", 1) + one_producer + b"\0" * 160),
    "stretches": (
        decoder(sections.decode_checksums),
        struct.pack(">QqIIII", U63, U63, 0, 0, 0, U32) + b"\0" * 40,
    ),
    "payload": (read_envelope, sealed_with_length(U32)),
    "payload at the bound": (read_envelope, sealed_with_length(envelope.PAYLOAD_BYTES_MAX)),
    "batch": (check_segment, segment_with_batch_length(2**31 - 1)),
    "batch below zero": (check_segment, segment_with_batch_length(-1)),
    "empty section": (producers, b""),
    "section below a count": (decoder(sections.decode_timestamps), b"\0\0"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_lying_length_is_damage_and_costs_no_memory(name: str) -> None:
    read, data = CASES[name]
    tracemalloc.start()
    try:
        with pytest.raises(DamagedError):
            read(data)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < MEMORY_BYTES_MAX


@pytest.mark.parametrize(
    ("decode", "payload"),
    [
        (sections.decode_timestamps, struct.pack(">Iqqqq", 2, 5, 1, 5, 2)),
        (sections.decode_timestamps, struct.pack(">I", 0)),
        (sections.decode_transactions, struct.pack(">Iqqqq", 1, 1, 9, 8, 9)),
        (sections.decode_transactions, struct.pack(">I8q", 2, 1, 1, 8, 9, 1, 1, 8, 9)),
        (sections.decode_epochs, struct.pack(">Iiqiq", 2, 1, 5, 2, 5)),
        (sections.decode_epochs, struct.pack(">Iiqiq", 2, 2, 5, 1, 6)),
        (sections.decode_producers, struct.pack(">I", 2) + 2 * (one_producer[:-2] + b"\0\0")),
        (
            sections.decode_producers,
            struct.pack(">I", 1) + one_producer[:-2] + b"\0\1" + b"\0" * 31,
        ),
        (
            sections.decode_producers,
            struct.pack(">I", 1) + one_producer[:-2] + b"\0\2" + b"\0" * 32,
        ),
        (sections.decode_producers, ONE + b"\0\6" + b"\0" * 6 * 32),
        (sections.decode_producers, struct.pack(">I", 0) + b"\0"),
        (sections.decode_checksums, b"\0" * 31),
    ],
)
def test_a_section_that_contradicts_itself_is_damage(
    decode: Callable[[bytes, str], object], payload: bytes
) -> None:
    with pytest.raises(DamagedError, match="section"):
        decode(payload, "k")
