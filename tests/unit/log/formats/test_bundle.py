"""The bundle: its entries, its stretches, its sections, and what it refuses."""

from __future__ import annotations

import itertools
import struct

import numpy as np
import pytest

from neve.errors import DamagedError, InvalidError, UnsupportedError
from neve.log.segment import bundle, frame, kfs, sections
from neve.log.segment.sections import Section
from neve.records.batch import check_header, walk
from neve.records.crc import crc32c
from support import format_samples as samples

SEGMENT, BUNDLE = samples.pair()


def decoded(data: bytes = BUNDLE) -> bundle.Bundle:
    return bundle.decode_bundle(data, "k", len(SEGMENT))


def with_section(kind: int, version: int, payload: bytes) -> bytes:
    """BUNDLE with one section more, or another in the place of one, under right checksums."""
    found = decoded()
    payloads = {
        each: (1, bytes(found.section(each) or b""))
        for each in found.kinds
        if each is not Section.OFFSET
    }
    payloads[kind] = (version, payload)  # type: ignore[index]
    start = bytes(found.section(Section.OFFSET) or b"")
    directory = struct.pack(">4sHH", b"NVIX", 1, len(payloads))
    position = len(start) + 8 + 16 * len(payloads) + 4
    for each, (its_version, its_payload) in payloads.items():
        directory += struct.pack(
            ">HHIII", each, its_version, position, len(its_payload), crc32c(its_payload)
        )
        position += len(its_payload)
    directory += struct.pack(">I", crc32c(directory))
    return start + directory + b"".join(payload for _, payload in payloads.values())


def test_entries_stand_where_kafscale_would_put_them() -> None:
    batches = [samples.batch(100 + 2 * i) for i in range(10)]
    for interval in (1, 2, 3, 4, 7, 100):
        segment = kfs.build(100, 0, batches)
        data = bundle.build_bundle(segment, interval, producers=(), epochs=())
        expected, since = [], interval
        for position, header in walk(b"".join(batches)):
            if since >= interval:
                expected.append((header.base_offset, 32 + position))
                since = 0
            since += header.record_count
        found = bundle.decode_bundle(data, "k")
        assert list(zip(found.offsets.tolist(), found.positions.tolist(), strict=True)) == expected


def test_the_stretch_of_every_offset_holds_it_and_no_other_does() -> None:
    found = decoded()
    for offset in range(100, 109):
        stretch = found.stretch_for(offset)
        held = [
            header.base_offset <= offset <= header.last_offset
            for _, header in walk(SEGMENT[stretch.start : stretch.end])
        ]
        assert any(held)


def test_stretches_fill_the_segment_between_header_and_footer() -> None:
    found = decoded()
    every = found.stretches(0, 2**62)
    assert len(every) > 1
    assert every[0].start == kfs.HEADER_BYTES
    assert every[-1].end == len(SEGMENT) - kfs.FOOTER_BYTES
    assert all(a.end == b.start for a, b in itertools.pairwise(every))
    whole = found.verify_range(every, SEGMENT[32:-16], "s")
    assert whole == SEGMENT[32:-16]
    with pytest.raises(DamagedError, match=r"^s is damaged"):
        found.verify_range(every, SEGMENT[32:-17], "s")


def test_stretches_are_those_of_the_offsets_asked_for() -> None:
    found = decoded()
    starts = found.offsets.tolist()
    assert found.stretches(0, starts[0]) == []
    assert found.stretches(200, 200) == []
    assert [each.entry for each in found.stretches(starts[1], starts[1] + 1)] == [1]
    assert [each.entry for each in found.stretches(starts[1] - 1, starts[1])] == [0]
    assert [each.entry for each in found.stretches(starts[1] - 1, starts[1] + 1)] == [0, 1]
    assert [each.entry for each in found.stretches(500, 600)] == [len(starts) - 1]


def test_stretches_between_entries_are_those_of_the_entries() -> None:
    found = decoded()
    assert [each.entry for each in found.stretches_between(0, 1)] == [0]
    assert found.stretches_between(0, len(found.offsets)) == found.stretches(0, 2**62)


def test_a_timestamp_leads_to_the_stretch_of_its_first_batch() -> None:
    found = decoded()
    headers = [header for _, header in walk(SEGMENT[32:-16])]
    for timestamp in (-1, 0, 999, 1000, 1001, 1002, 2000, 2001, 5105, 5106):
        first = next((h for h in headers if h.max_timestamp >= timestamp), None)
        wanted = None if first is None else found.stretch_for(first.base_offset).base_offset
        assert found.offset_for_timestamp(timestamp) == wanted


def test_parts_do_not_change_the_bundle() -> None:
    built = kfs.build(100, 77, samples.segment_batches())
    checked = kfs.check(SEGMENT, "k")
    assert built.facts == checked.facts
    for mine, other in zip(built.batches, checked.batches, strict=True):
        assert np.array_equal(mine, other)
    assert bundle.build_bundle(built, 2, producers=(), epochs=()) == bundle.build_bundle(
        checked, 2, producers=(), epochs=()
    )


def test_all_kinds_are_there_and_absent_ones_are_none() -> None:
    assert decoded().kinds == tuple(Section)
    segment = kfs.build(0, 0, [samples.batch(0)])
    bare = bundle.decode_bundle(bundle.build_bundle(segment, 1, producers=(), epochs=()), "k")
    assert Section.TRANSACTION not in bare.kinds
    assert (bare.transactions, bare.state, bare.producers, bare.epochs) == ((), None, (), ())
    assert bare.section(Section.STATE) is None
    assert (bare.last_offset, bare.segment_bytes) == (1, segment.facts.segment_bytes)


def test_a_kind_from_the_future_is_ignored_and_still_checked() -> None:
    data = with_section(99, 7, b"future")
    found = decoded(data)
    found.check_all()
    assert found.kinds == tuple(Section)
    with pytest.raises(DamagedError, match="section 99"):
        decoded(data[:-1] + b"?").check_all()


@pytest.mark.parametrize("kind", [each for each in Section if each is not Section.OFFSET])
def test_a_known_kind_in_a_newer_version_is_refused_as_such(kind: Section) -> None:
    payload = bytes(decoded().section(kind) or b"")
    with pytest.raises(UnsupportedError, match=kind.name):
        decoded(with_section(kind, 2, payload)).check_all()
    with pytest.raises(DamagedError, match=kind.name):
        decoded(with_section(kind, 0, payload)).check_all()


def test_a_damaged_section_is_named_and_the_others_serve() -> None:
    data = bytearray(BUNDLE)
    data[data.index(b"state")] ^= 1
    found = decoded(bytes(data))
    assert found.producers is not None
    with pytest.raises(DamagedError, match="section STATE"):
        _ = found.state


def test_a_newer_bundle_is_refused_as_such() -> None:
    start = len(decoded().section(Section.OFFSET) or b"")
    newer = BUNDLE[: start + 4] + struct.pack(">H", 2) + BUNDLE[start + 6 :]
    with pytest.raises(UnsupportedError, match="bundle of version 2"):
        decoded(newer)


def test_a_bundle_belongs_to_one_length_of_segment() -> None:
    with pytest.raises(DamagedError, match="states"):
        bundle.decode_bundle(BUNDLE, "k", len(SEGMENT) + 1)


def test_a_directory_whose_sections_overlap_or_repeat_is_damaged() -> None:
    start = len(decoded().section(Section.OFFSET) or b"")
    rows = start + 8
    (count,) = struct.unpack_from(">H", BUNDLE, start + 6)
    for layout, position, value in (
        (">I", rows + 16 + 4, struct.unpack_from(">I", BUNDLE, rows + 4)[0]),
        (">H", rows + 16, Section.TIMESTAMP),
        (">H", rows, Section.OFFSET),
    ):
        data = bytearray(BUNDLE)
        struct.pack_into(layout, data, position, value)
        end = rows + 16 * count
        struct.pack_into(">I", data, end, crc32c(data[start:end]))
        with pytest.raises(DamagedError, match="does not fit"):
            decoded(bytes(data))


def test_a_bundle_of_ours_without_its_sections_is_damaged_not_foreign() -> None:
    with pytest.raises(DamagedError):
        bundle.decode_bundle(samples.foreign_index(SEGMENT), "k", len(SEGMENT))
    bare = frame.encode_bundle(samples.foreign_index(SEGMENT), {})
    with pytest.raises(DamagedError, match="no CHECKSUM"):
        decoded(bare)


def test_a_bundle_with_the_checksums_of_another_is_refused() -> None:
    mine = decoded().checksums
    assert mine is not None
    for wrong in (
        mine._replace(stretch_crcs=mine.stretch_crcs[:-1]),
        mine._replace(last_offset=3),
        mine._replace(segment_bytes=2**40),
        mine._replace(segment_bytes=60),
        mine._replace(offset_index_crc=0),
    ):
        data = with_section(Section.CHECKSUM, 1, sections.encode_checksums(wrong))
        with pytest.raises(DamagedError):
            bundle.decode_bundle(data, "k")


def test_a_segment_is_not_built_of_what_does_not_fit() -> None:
    with pytest.raises(InvalidError, match="first batch has 100"):
        kfs.build(99, 0, samples.segment_batches())
    with pytest.raises(InvalidError, match="at least one batch"):
        kfs.build(0, 0, [])
    with pytest.raises(DamagedError, match="where 109 is next"):
        kfs.build(100, 0, [*samples.segment_batches(), samples.batch(108)])
    with pytest.raises(InvalidError, match="interval"):
        bundle.build_bundle(kfs.check(SEGMENT, "k"), 0, producers=(), epochs=())


def test_the_message_count_is_that_of_records_not_of_offsets() -> None:
    thin = samples.batch(10, 2, last_offset_delta=99)
    facts = kfs.build(10, 0, [thin]).facts
    assert (facts.message_count, facts.last_offset) == (2, 109)
    assert check_header(thin).last_offset == 109
