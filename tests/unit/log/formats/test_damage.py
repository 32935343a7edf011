"""Flip any bit or cut at any length: the answer is the same as before, or a clear error."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import pytest

from neve.errors import DamagedError, UnsupportedError
from neve.log import envelope
from neve.log.segment import bundle, kfs
from neve.log.wal import object as wal
from neve.records.batch import walk
from support import format_samples as samples

Read = Callable[[bytes], object]
REFUSED = object()

SEGMENT, BUNDLE = samples.pair()
FOREIGN = samples.foreign_index(SEGMENT)


def attempt(read: Read, data: bytes) -> object:
    try:
        return read(data)
    except (DamagedError, UnsupportedError):
        return REFUSED


def flips(data: bytes) -> Iterator[tuple[int, bytes]]:
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            yield position, bytes(flipped)


def open_sealed(data: bytes) -> object:
    found = envelope.open_envelope(data, envelope.Kind.MANIFEST_RECORD, "topics/t/", 9, "k")
    return found.author, envelope.decode_payload(found, dict[str, int], "k")


SEALED = envelope.seal_envelope(
    envelope.Kind.MANIFEST_RECORD, "topics/t/", 9, samples.AUTHOR, {"a": 1, "b": 22}
)


def read_bundle(data: bytes) -> object:
    return samples.read_everything_of(bundle.decode_bundle(data, "k"))


def read_through_bundle(data: bytes) -> object:
    return samples.read_segment_by_range(SEGMENT, bundle.decode_bundle(data, "k", len(SEGMENT)))


def read_segment_ranges(data: bytes) -> object:
    return samples.read_segment_by_range(data, bundle.decode_bundle(BUNDLE, "k"))


def whole(rollup: bool) -> Read:
    return lambda data: samples.read_wal_whole(data, rollup=rollup)


def ranged(rollup: bool) -> Read:
    return lambda data: samples.read_wal_by_range(data, rollup=rollup)


# Every byte of these is under a checksum that the reader looks at.
COVERED: dict[str, tuple[bytes, Read]] = {
    "data object, whole": (samples.wal_object(), whole(False)),
    "data object, by range": (samples.wal_object(), ranged(False)),
    "roll-up, whole": (samples.wal_object(wal.Kind.ROLLUP), whole(True)),
    "roll-up, by range": (samples.wal_object(wal.Kind.ROLLUP), ranged(True)),
    "seal, whole": (samples.wal_object(wal.Kind.SEAL), whole(False)),
    "seal, by range": (samples.wal_object(wal.Kind.SEAL), ranged(False)),
    "bundle": (BUNDLE, read_bundle),
    "segment, by range": (SEGMENT, read_segment_ranges),
    "envelope": (SEALED, open_sealed),
}


@pytest.mark.parametrize("name", COVERED)
def test_every_flipped_bit_is_found(name: str) -> None:
    data, read = COVERED[name]
    assert attempt(read, data) is not REFUSED
    unseen = {position for position, flipped in flips(data) if attempt(read, flipped) != REFUSED}
    assert not unseen


@pytest.mark.parametrize("name", COVERED)
def test_every_cut_and_every_addition_is_found(name: str) -> None:
    data, read = COVERED[name]
    assert [n for n in range(len(data)) if attempt(read, data[:n]) is not REFUSED] == []
    if "by range" not in name:
        assert attempt(read, data + b"\0") is REFUSED


def test_a_cut_object_still_gives_the_slices_that_are_there() -> None:
    data = samples.wal_object()
    found = wal.decode_directory(data, "k", incarnation=5, number=6)
    for length in range(len(data)):
        for each in found.slices:
            got = attempt(
                lambda cut, each=each: bytes(  # type: ignore[misc]
                    wal.slice_bytes(each, cut[each.position : each.end], "k")
                ),
                data[:length],
            )
            assert (got is REFUSED) == (length < each.end)


def test_a_damaged_bundle_gives_right_stretches_or_none() -> None:
    right = read_through_bundle(BUNDLE)
    results = [attempt(read_through_bundle, data) for _, data in flips(BUNDLE)]
    assert all(result in (right, REFUSED) for result in results)
    # Damage to a section that a read does not need does not stop it.
    assert right in results
    for length in range(len(BUNDLE)):
        assert attempt(read_through_bundle, BUNDLE[:length]) is REFUSED


def test_a_whole_segment_hides_nothing_but_the_time_it_was_made() -> None:
    def read(data: bytes) -> object:
        return kfs.check(data, "k").facts

    unseen = {position for position, data in flips(SEGMENT) if attempt(read, data) is not REFUSED}
    assert unseen == set(range(20, 28))
    for length in range(len(SEGMENT)):
        assert attempt(read, SEGMENT[:length]) is REFUSED
    assert attempt(read, SEGMENT + b"\0") is REFUSED


def batches_from(index: bytes, segment: bytes, offset: int) -> list[bytes]:
    """What a reader without checksums of stretches gives out from `offset` on."""
    found = bundle.decode_foreign(index, "k", len(SEGMENT))
    given: list[bytes] = []
    for each in found.stretches(offset, kfs.OFFSET_MAX):
        stretch = found.verify_stretch(each, segment[each.start : each.end], "s")
        given += [
            bytes(stretch[position : position + header.size])
            for position, header in walk(stretch)
            if header.last_offset >= offset
        ]
    return given


@pytest.mark.parametrize("offset", range(100, 109))
def test_a_damaged_foreign_index_never_skips_a_record(offset: int) -> None:
    right = batches_from(FOREIGN, SEGMENT, offset)
    assert right
    for position, data in flips(FOREIGN):
        got = attempt(lambda index: batches_from(index, SEGMENT, offset), data)
        assert got == right or got is REFUSED, position
    for length in range(len(FOREIGN)):
        assert attempt(lambda index: batches_from(index, SEGMENT, offset), FOREIGN[:length]) in (
            right,
            REFUSED,
        )


@pytest.mark.parametrize("wrong", range(101, 110))
def test_an_entry_with_any_other_offset_never_skips_a_record(wrong: int) -> None:
    assert bundle.decode_foreign(FOREIGN, "k", len(SEGMENT)).offsets.tolist() == [100, 104]
    index = bytearray(FOREIGN)
    struct.pack_into(">q", index, 28, wrong)
    for offset in range(100, 109):
        got = attempt(lambda data, offset=offset: batches_from(data, SEGMENT, offset), bytes(index))  # type: ignore[misc]
        assert got is REFUSED or got == batches_from(FOREIGN, SEGMENT, offset)


def test_without_checksums_only_offsets_and_epochs_of_batches_are_unguarded() -> None:
    right = batches_from(FOREIGN, SEGMENT, 100)
    unguarded: set[int] = set()
    for position, _ in walk(SEGMENT[kfs.HEADER_BYTES : -kfs.FOOTER_BYTES]):
        start = kfs.HEADER_BYTES + position
        unguarded |= {*range(start, start + 8), *range(start + 12, start + 16)}
    for position, data in flips(SEGMENT):
        if kfs.HEADER_BYTES <= position < len(SEGMENT) - kfs.FOOTER_BYTES:
            got = attempt(lambda segment: batches_from(FOREIGN, segment, 100), data)
            assert got is REFUSED or position in unguarded
        else:
            assert batches_from(FOREIGN, data, 100) == right
