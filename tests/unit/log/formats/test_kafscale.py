"""KafScale's files, made here by hand from what its format says."""

from __future__ import annotations

import struct

import pytest

from neve.errors import DamagedError, UnsupportedError
from neve.log.segment import bundle, kafscale, kfs
from neve.log.segment.kafscale import ForeignName
from neve.log.segment.rebuild import rebuild
from neve.records.crc import crc32c
from support import format_samples as samples

BATCHES = [samples.batch(40, 2, leader_epoch=-1), samples.batch(42, 1, leader_epoch=0)]
BODY = b"".join(BATCHES)
SEGMENT = (
    struct.pack(">4sHHqiqI", b"KAFS", 1, 0, 40, 3, 1_700_000_000_000, 0)
    + BODY
    + struct.pack(">Iq4s", crc32c(BODY), 42, b"END!")
)
INDEX = struct.pack(">4sHiiH", b"IDX\0", 1, 2, 2, 0) + struct.pack(
    ">qiqi", 40, 32, 42, 32 + len(BATCHES[0])
)
TIMES = struct.pack(">4sIqqqq", b"KFTF", 1, 1000, 1001, 40, 42)


def test_a_segment_by_hand_is_read() -> None:
    found = kfs.check(SEGMENT, "k")
    assert found.facts == kfs.SegmentFacts(
        base_offset=40,
        last_offset=42,
        message_count=3,
        segment_bytes=len(SEGMENT),
        body_crc=crc32c(BODY),
        min_base_timestamp=1000,
        max_timestamp=1001,
        created_ms=1_700_000_000_000,
    )


def test_a_segment_of_ours_is_the_same_bytes() -> None:
    assert b"".join(kfs.build(40, 1_700_000_000_000, BATCHES).parts) == SEGMENT


def test_an_index_by_hand_is_read_and_is_how_our_bundles_begin() -> None:
    found = bundle.decode_foreign(INDEX, "k", len(SEGMENT))
    assert not found.checksummed
    assert found.last_offset is None
    assert found.kinds == (bundle.Section.OFFSET,)
    second = found.stretch_for(42)
    assert (second.base_offset, second.start, second.crc) == (42, 32 + len(BATCHES[0]), None)
    assert found.verify_stretch(second, SEGMENT[second.start : second.end], "s") == BATCHES[1]
    assert found.offset_for_timestamp(10**15) == 40
    ours = rebuild(SEGMENT, "k", 2, producers=(), epochs=()).bundle
    assert ours.startswith(INDEX)


def test_whatever_follows_the_entries_is_ignored() -> None:
    assert not bundle.decode_foreign(INDEX + b"anything", "k", len(SEGMENT)).checksummed


def test_a_bundle_of_ours_beside_a_foreign_segment_keeps_its_checksums() -> None:
    ours = rebuild(SEGMENT, "k", 2, producers=(), epochs=()).bundle
    assert bundle.decode_foreign(ours, "k", len(SEGMENT)).checksummed


def test_an_index_of_another_segment_is_refused() -> None:
    with pytest.raises(DamagedError, match="outside a segment"):
        bundle.decode_foreign(INDEX, "k", 120)


def test_epochs_that_a_producer_left_do_not_confuse() -> None:
    history = rebuild(SEGMENT, "k", 2, producers=(), epochs=()).history
    assert history.epochs.starts == ((0, 42),)


def test_times_by_hand_are_read() -> None:
    assert kafscale.decode_times(TIMES, "k") == (1000, 1001, 40, 42)


@pytest.mark.parametrize(
    "wrong",
    [
        TIMES[:-1],
        TIMES + b"\0",
        b"XXXX" + TIMES[4:],
        struct.pack(">4sIqqqq", b"KFTF", 1, 2, 1, 0, 0),
    ],
)
def test_damaged_times_are_refused(wrong: bytes) -> None:
    with pytest.raises(DamagedError):
        kafscale.decode_times(wrong, "k")


def test_newer_files_are_refused_as_such() -> None:
    for read, data in (
        (lambda data: kfs.check(data, "k"), SEGMENT),
        (lambda data: bundle.decode_foreign(data, "k", len(SEGMENT)), INDEX),
    ):
        newer = data[:4] + struct.pack(">H", 2) + data[6:]
        with pytest.raises(UnsupportedError):
            read(newer)
    with pytest.raises(UnsupportedError):
        kafscale.decode_times(TIMES[:4] + struct.pack(">I", 2) + TIMES[8:], "k")


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("ns/t/0/segment-00000000000000000040.kfs", ForeignName("ns", "t", 0, 40)),
        ("a/b/t.x/12/segment-00000000000000000000.index", ForeignName("a/b", "t.x", 12, 0)),
        ("t/3/segment-09223372036854775807.kfst", ForeignName("", "t", 3, 2**63 - 1)),
    ],
)
def test_keys_are_parsed_and_made_again(key: str, name: ForeignName) -> None:
    suffix = key.rpartition(".")[2]
    assert kafscale.parse_key(key) == (name, suffix)
    assert kafscale.format_key(name, suffix) == key


@pytest.mark.parametrize(
    "key",
    [
        "ns/t/0/segment-40.kfs",
        "ns/t/00/segment-00000000000000000040.kfs",
        "ns/t/x/segment-00000000000000000040.kfs",
        "ns/t/0/segment-99999999999999999999.kfs",
        "ns/t/9999999999/segment-00000000000000000040.kfs",
        "ns/t/0/segment-00000000000000000040.tmp",
        "0/segment-00000000000000000040.kfs",
        "",
    ],
)
def test_other_keys_are_not_taken_for_segments(key: str) -> None:
    assert kafscale.parse_key(key) is None


def test_a_listing_is_put_together_in_order_whatever_its_own() -> None:
    def key(offset: int, suffix: str) -> str:
        return kafscale.format_key(ForeignName("ns", "t", 0, offset), suffix)

    listing = [
        (key(200, "kfst"), 40),
        (key(200, "kfs"), 500),
        (key(7, "index"), 28),
        (key(9, "kfst"), 40),
        ("ns/t/0/readme", 1),
        (key(100, "kfs"), 400),
        (key(200, "index"), 28),
    ]
    expected = kafscale.group_listing(listing)
    assert kafscale.group_listing(sorted(listing)) == expected
    assert [
        (each.name.base_offset, each.segment_bytes, each.index_key, each.times_key)
        for each in expected.segments
    ] == [(100, 400, None, None), (200, 500, key(200, "index"), key(200, "kfst"))]
    assert expected.strays == [key(7, "index"), key(9, "kfst")]
