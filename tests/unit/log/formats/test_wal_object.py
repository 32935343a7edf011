"""The WAL object: what is written is read, by whole and by range, and nothing else is."""

from __future__ import annotations

import random
import struct
from unittest import mock

import numpy as np
import pytest

from neve.errors import DamagedError, InvalidError, UnsupportedError
from neve.log.wal import object as wal
from neve.records.crc import crc32c
from support import format_samples as samples

PLACE = {"incarnation": 5, "number": 6}


def resealed(data: bytes) -> bytes:
    """The same object with header and directory under right checksums again."""
    changed = bytearray(data)
    struct.pack_into(">I", changed, 60, crc32c(changed[:60]))
    (count,) = struct.unpack_from(">I", changed, 48)
    end = 64 + 64 * min(count, wal.SLICES_MAX)
    if end + 4 <= len(changed):
        struct.pack_into(">I", changed, end, crc32c(changed[:end]))
    return bytes(changed)


def changed(layout: str, position: int, *values: object) -> bytes:
    data = bytearray(samples.wal_object())
    struct.pack_into(layout, data, position, *values)
    return resealed(bytes(data))


def test_the_bytes_are_those_of_the_page() -> None:
    (meta, parts), *_ = samples.wal_slices()
    body = b"".join(parts)
    data = wal.encode(
        wal.Kind.DATA, [(meta, parts)], incarnation=5, number=6, author=samples.AUTHOR, created_ms=9
    ).data
    header = struct.pack(">4sHHQQ16sqIQ", b"NVWL", 1, 1, 5, 6, samples.AUTHOR, 9, 1, len(body))
    header += struct.pack(">I", crc32c(header))
    entry = struct.pack(
        ">16siiqqqQII", samples.TOPIC_A, 0, 4, 10, 12, 1001, 132, len(body), crc32c(body)
    )
    assert data == header + entry + struct.pack(">I", crc32c(header + entry)) + body


def test_a_slice_may_come_in_parts_of_any_buffer_type() -> None:
    (meta, parts), *_ = samples.wal_slices()
    options = {**PLACE, "author": samples.AUTHOR, "created_ms": 0}
    joined = wal.encode(wal.Kind.DATA, [(meta, [b"".join(parts)])], **options).data
    views = [memoryview(parts[0]), bytearray(parts[1])]
    assert wal.encode(wal.Kind.DATA, [(meta, views)], **options).data == joined


def test_sizes_are_known_from_the_header_alone() -> None:
    data = samples.wal_object()
    header = wal.decode_header(data[:64], "k", **PLACE)
    assert wal.directory_bytes(header) == 64 + 3 * 64 + 4
    assert wal.object_bytes(header) == len(data)
    assert (header.kind, header.author, header.created_ms) == (wal.Kind.DATA, samples.AUTHOR, 1234)


def test_a_seal_has_a_header_and_nothing_else() -> None:
    data = wal.encode_seal(**PLACE, author=samples.AUTHOR, created_ms=3)
    found = wal.decode(data, "k", **PLACE)
    assert (found.header.kind, found.slices, len(data)) == (wal.Kind.SEAL, (), 68)


@pytest.mark.parametrize(
    "place", [{"incarnation": 4, "number": 6}, {"incarnation": 5, "number": 7}]
)
def test_an_object_under_another_key_is_damage(place: dict[str, int]) -> None:
    with pytest.raises(DamagedError, match="was written as number 6 of incarnation 5"):
        wal.decode(samples.wal_object(), "wal/x", **place)


def test_a_roll_up_is_no_number_and_a_number_no_roll_up() -> None:
    with pytest.raises(DamagedError, match="does not belong here"):
        wal.decode(samples.wal_object(wal.Kind.ROLLUP), "k", **PLACE)
    for kind in (wal.Kind.DATA, wal.Kind.SEAL):
        with pytest.raises(DamagedError, match="does not belong here"):
            wal.decode(samples.wal_object(kind), "k", **PLACE, rollup=True)


def test_a_newer_version_is_refused_as_such() -> None:
    with pytest.raises(UnsupportedError, match="version 2"):
        wal.decode(changed(">H", 4, 2), "k", **PLACE)


@pytest.mark.parametrize(
    ("layout", "position", "value", "reason"),
    [
        (">H", 4, 0, "version 0"),
        (">H", 6, 9, "kind 9"),
        (">I", 48, 0, "cannot have 0 slices"),
        (">Q", 52, 1, "its body 1"),
        (">i", 64 + 16, -1, "negative partition"),
        (">q", 64 + 24, 13, "ends before it starts"),
        (">Q", 64 + 48, 261, "back to back"),
        (">I", 64 + 56, 60, "its slices have"),
    ],
)
def test_a_contradiction_under_right_checksums_is_damage(
    layout: str, position: int, value: int, reason: str
) -> None:
    with pytest.raises(DamagedError, match=reason):
        wal.decode_directory(changed(layout, position, value), "k", **PLACE)


def test_the_header_alone_bounds_what_a_reader_fetches_next() -> None:
    most = changed(">I", 48, wal.SLICES_MAX)[:64]
    header = wal.decode_header(most, "k", **PLACE)
    assert wal.directory_bytes(header) == 64_000_068
    with pytest.raises(DamagedError, match="above the bound of 1000000"):
        wal.decode_header(changed(">I", 48, wal.SLICES_MAX + 1)[:64], "k", **PLACE)
    with pytest.raises(DamagedError, match="above the bound of 2147483647"):
        wal.decode_header(changed(">Q", 52, 2**31)[:64], "k", **PLACE)


def encode(kind: wal.Kind, slices: list[tuple[wal.SliceMeta, list[bytes]]]) -> bytes:
    return wal.encode(kind, slices, **PLACE, author=samples.AUTHOR, created_ms=0).data


def test_what_could_not_be_read_is_not_written() -> None:
    slices = samples.wal_slices()
    meta, parts = slices[0]
    for wrong in (
        [],
        [(meta, [])],
        [(meta, [b"short"])],
        [(meta._replace(last_offset=9), parts)],
        [(meta._replace(topic_id=b"short"), parts)],
        [slices[0], slices[0]],
    ):
        with pytest.raises(InvalidError):
            encode(wal.Kind.DATA, wrong)
    with pytest.raises(InvalidError, match="SEAL"):
        encode(wal.Kind.SEAL, slices)
    with pytest.raises(InvalidError, match="author"):
        wal.encode_seal(**PLACE, author=b"short", created_ms=0)


def test_only_a_roll_up_must_be_sorted_by_partition() -> None:
    backwards = samples.wal_slices()[::-1]
    assert len(wal.decode(encode(wal.Kind.DATA, backwards), "k", **PLACE).slices) == 3
    with pytest.raises(InvalidError, match="sorted"):
        encode(wal.Kind.ROLLUP, backwards)


def test_topic_ids_and_partitions_sort_as_unsigned_bytes() -> None:
    body = samples.batch(0)
    slices = [
        samples.slice_of(topic_id, partition, body)
        for topic_id in (b"\x00" * 16, b"\x00" * 15 + b"\xff", b"\x7f" * 16, b"\xff" * 16)
        for partition in (0, 1, 2**31 - 1)
    ]
    assert len(wal.decode(encode(wal.Kind.ROLLUP, slices), "k", **PLACE, rollup=True).slices) == 12


def test_slices_of_one_partition_ascend_even_with_others_between() -> None:
    early, late = (
        samples.slice_of(samples.TOPIC_A, 0, samples.batch(5)),
        samples.slice_of(samples.TOPIC_A, 0, samples.batch(7)),
    )
    other = samples.slice_of(samples.TOPIC_B, 0, samples.batch(5))
    encode(wal.Kind.DATA, [early, other, late])
    with pytest.raises(InvalidError, match="do not ascend"):
        encode(wal.Kind.DATA, [late, other, early])


@pytest.mark.parametrize(
    "wrong",
    [
        {"leader_epoch": 5},
        {"base_offset": 9},
        {"last_offset": 13},
        {"max_timestamp": 1002},
    ],
)
def test_a_slice_that_is_not_what_its_entry_says_is_found(wrong: dict[str, int]) -> None:
    meta, parts = samples.wal_slices()[0]
    data = encode(wal.Kind.DATA, [(meta._replace(**wrong), parts)])
    (entry,) = wal.decode(data, "k", **PLACE).slices
    with pytest.raises(DamagedError):
        wal.check_slice(entry, data[entry.position : entry.end], "k")


def test_batches_of_a_slice_must_ascend_and_match_their_checksums() -> None:
    good, other = samples.batch(10), samples.batch(10, 1)
    meta, _ = samples.slice_of(samples.TOPIC_A, 0, good)
    for parts in ([good, other], [good[:-1] + b"\x77"]):
        data = encode(wal.Kind.DATA, [(meta, parts)])
        (entry,) = wal.decode(data, "k", **PLACE).slices
        with pytest.raises(DamagedError):
            wal.check_slice(entry, data[entry.position : entry.end], "k")


@pytest.mark.parametrize("kind", [wal.Kind.DATA, wal.Kind.ROLLUP])
def test_few_slices_are_judged_like_many(kind: wal.Kind) -> None:
    """The loop for a handful and the columns for many find the same faults."""
    chance = random.Random(7)
    judged: set[str] = set()
    for _ in range(3_000):
        rows = random_rows(chance)
        columns = np.array(rows, wal._ENTRY_COLUMNS)
        body = sum(row[8] for row in rows) + chance.choice([0, 0, 0, 1])
        few = wal._few_slices_problem(kind, columns.tolist(), 100, body)
        with mock.patch.object(wal, "FEW_SLICES", 0):
            many = wal._directory_problem(kind, columns, 100, body)
        assert bool(few) == bool(many), (rows, few, many)
        judged.add(few[:20])
    assert len(judged) >= 5, judged


def random_rows(chance: random.Random) -> list[tuple[int, ...]]:
    """A few entries, right or a little wrong."""
    rows = []
    position = 100
    for at in range(chance.randint(1, 4)):
        length = chance.choice([61, 100, 100, 100, 100, 60])
        base = chance.choice([10 * at, 10 * at, 10 * at, 0, -1])
        last = base + chance.choice([0, 5, 5, 5, -1])
        shift = chance.choice([0, 0, 0, 0, 0, 0, 1])
        partition = chance.choice([0, 0, 1, 1, 2])
        rows.append((0, 7, partition, 0, base, last, 0, position + shift, length, 0))
        position += length
    return rows
