"""Byte ranges of segments: what they cover, where they end, and what their checks refuse."""

from __future__ import annotations

import itertools

import pytest

from neve.errors import DamagedError
from neve.log.manifest.records import NO_CRC, Segment
from neve.log.reading import located_range
from neve.log.reading.located_range import segment_range, segment_ranges, whole_range
from neve.log.segment import kfs
from neve.log.segment.bundle import Bundle, build_bundle, decode_bundle, decode_foreign
from neve.log.segment.sections import Section
from support import format_samples as samples

BATCHES = [samples.batch(100 + 2 * i) for i in range(10)]
BUILT = kfs.build(100, 0, BATCHES)
DATA = b"".join(BUILT.parts)
BODY_END = len(DATA) - kfs.FOOTER_BYTES
BUNDLE = decode_bundle(build_bundle(BUILT, 1, producers=(), epochs=()), "i", len(DATA))
LAST = BUILT.facts.last_offset
END = LAST + 1
STARTS = [int(at) for at in BUNDLE.offsets]


def listed(last: int = LAST, *, crc: int = BUILT.facts.body_crc, owned: bool = True) -> Segment:
    return Segment(
        key="s",
        base=100,
        last=last,
        bytes=len(DATA),
        records=1,
        min_timestamp=0,
        max_timestamp=0,
        created_ms=0,
        epoch=0,
        crc=crc,
        index_key="i",
        owned=owned,
    )


def foreign() -> Bundle:
    """The index of the same segment without checksums, as KafScale writes it."""
    return decode_foreign(bytes(BUNDLE.section(Section.OFFSET) or b""), "i", len(DATA))


@pytest.mark.parametrize("part_bytes", [1, 100, 300, 10_000])
@pytest.mark.parametrize(("first", "end"), [(100, END), (103, 111), (STARTS[4], STARTS[5])])
def test_ranges_cover_a_span_part_by_part(first: int, end: int, part_bytes: int) -> None:
    found = list(segment_ranges(listed(), BUNDLE, first, end, part_bytes))
    assert found[0].first_offset <= first < found[0].end_offset
    assert found[-1].first_offset < end <= found[-1].end_offset
    for before, after in itertools.pairwise(found):
        assert (before.end_offset, before.end) == (after.first_offset, after.start)
        assert before.end // part_bytes > before.start // part_bytes
    for located in found:
        checked = located.check(memoryview(DATA)[located.start : located.end])
        assert checked == (DATA[located.start : located.end], located.end_offset)


def test_a_range_without_an_end_goes_to_the_end_of_its_part() -> None:
    only = segment_range(listed(), BUNDLE, 103, 2**30)
    assert (only.start, only.end) == (int(BUNDLE.positions[STARTS.index(102)]), BODY_END)
    assert (only.first_offset, only.end_offset, only.size) == (102, END, BODY_END - only.start)


def test_a_range_covers_the_target_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(located_range, "FIRST_BYTES_MIN", 0)
    stretch = BUNDLE.stretch_for(100)
    size = stretch.end - stretch.start
    ends = [
        segment_range(listed(), BUNDLE, 100, 2**30, target_bytes=wanted).end_offset
        for wanted in (0, size, size + 1, 2**40)
    ]
    assert ends == [STARTS[1], STARTS[1], STARTS[2], END]


def test_damage_anywhere_in_a_range_is_found() -> None:
    located = segment_range(listed(), BUNDLE, 100, 2**30)
    for at in range(located.start, located.end, 7):
        with pytest.raises(DamagedError):
            located.check(damaged(at)[located.start : located.end])
    # Without checksums of stretches, those of the batches are left.
    located = segment_range(listed(), foreign(), 100, 2**30)
    with pytest.raises(DamagedError):
        located.check(damaged(located.end - 1)[located.start : located.end])


def damaged(at: int) -> memoryview:
    data = bytearray(DATA)
    data[at] ^= 1
    return memoryview(data)


def test_a_foreign_segment_tells_where_its_batches_end() -> None:
    promised = listed(END + 6, crc=NO_CRC, owned=False)
    located = segment_range(promised, foreign(), 100, 2**30)
    assert located.end_offset == END + 7
    assert located.check(memoryview(DATA)[located.start : located.end]).end_offset == END
    assert whole_range(promised).check(memoryview(DATA)).end_offset == END


def test_a_whole_segment_is_checked_against_its_list() -> None:
    body = DATA[kfs.HEADER_BYTES : BODY_END]
    assert whole_range(listed()).check(memoryview(DATA)) == (body, END)
    with pytest.raises(DamagedError, match="this key holds another segment"):
        whole_range(listed(crc=1)).check(memoryview(DATA))
    with pytest.raises(DamagedError, match="this key holds another segment"):
        whole_range(listed(LAST - 2)).check(memoryview(DATA))
    # KafScale's segments may overlap, and the one with the higher base counts.
    overlapped = listed(LAST - 2, crc=NO_CRC, owned=False)
    assert whole_range(overlapped).check(memoryview(DATA)).data == body
