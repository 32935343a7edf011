"""Plans: which objects hold a range of offsets."""

from __future__ import annotations

from neve.log.manifest.records import Segment, Skip
from neve.log.manifest.skips import clipped_skips, is_skipped, next_skip, past_skips, without
from neve.log.reading.spans import Span, TimeWindow, plan_spans
from neve.log.tail import TailSlice
from neve.log.wal.object import Slice
from neve.log.wal.reader import TailObject


def segment(base: int, last: int, youngest: int = 0, oldest: int | None = None) -> Segment:
    return Segment(
        key=f"s{base}",
        base=base,
        last=last,
        bytes=1,
        records=1,
        min_timestamp=oldest or 0,
        max_timestamp=youngest,
        created_ms=0,
        epoch=0,
        crc=0,
        owned=oldest is None,
    )


def tail(base: int, last: int) -> TailSlice:
    entry = Slice(b"t" * 16, 0, 0, base, last, 0, 0, 61, 0)
    return TailSlice(1, TailObject(f"w{base}", 0, (entry,), None), entry)


def skip(first: int, last: int) -> Skip:
    return Skip(first, last, 0, "test")


def ranges(first: int, end: int, *, segments=(), slices=(), skips=()) -> list[tuple[int, int]]:  # type: ignore[no-untyped-def]
    return [(p.first, p.end) for p in plan_spans(first, end, segments, slices, skips).spans]


def test_segments_and_then_the_tail() -> None:
    found = plan_spans(5, 33, [segment(0, 9), segment(10, 19)], [tail(20, 29), tail(30, 39)], ())
    assert [(p.first, p.end) for p in found.spans] == [(5, 10), (10, 20), (20, 30), (30, 33)]
    assert found.missing == found.skipped == ()


def test_what_overlaps_is_read_once() -> None:
    segments, slices = [segment(0, 14), segment(10, 19)], [tail(12, 24)]
    assert ranges(0, 25, segments=segments, slices=slices) == [(0, 15), (15, 20), (20, 25)]


def test_what_nothing_holds_is_missing() -> None:
    found = plan_spans(0, 40, [segment(5, 9)], [tail(20, 29)], ())
    assert found.missing == ((0, 5), (10, 20), (30, 40))


def test_skips_are_in_no_span_and_not_missing() -> None:
    found = plan_spans(0, 30, [segment(0, 9), segment(20, 29)], (), [skip(8, 21), skip(25, 26)])
    assert [(p.first, p.end) for p in found.spans] == [(0, 8), (22, 25), (27, 30)]
    assert found.skipped == ((8, 22), (25, 27))
    assert found.missing == ()


def test_a_segment_that_is_skipped_whole_is_not_touched() -> None:
    found = plan_spans(0, 20, [segment(0, 9), segment(10, 19)], (), [skip(0, 9)])
    assert [p.key for p in found.spans] == ["s10"]


def test_nothing_is_asked_of_an_empty_range() -> None:
    assert plan_spans(7, 7, [segment(0, 9)], (), ()) == plan_spans(7, 7, (), (), ())


def test_skips_are_clipped_and_joined() -> None:
    rows = [skip(10, 20), skip(0, 3), skip(15, 30), skip(31, 31), skip(90, 99)]
    assert clipped_skips(rows, 2, 60) == [(2, 4), (10, 32)]


def test_what_is_left_beside_holes() -> None:
    assert without(0, 10, [(2, 4), (4, 6), (9, 12)]) == [(0, 2), (6, 9)]
    assert without(3, 5, [(0, 10)]) == []


def test_offsets_past_skips_and_up_to_the_next_one() -> None:
    rows = [skip(10, 20), skip(15, 30), skip(31, 31), skip(90, 99)]
    assert [past_skips(rows, offset) for offset in (9, 10, 31, 32, 95)] == [9, 32, 32, 32, 100]
    assert [next_skip(rows, offset) for offset in (0, 10, 31, 90)] == [10, 15, 90, None]
    assert is_skipped(rows, 12, 32)
    assert not is_skipped(rows, 12, 33)


def test_spans_outside_the_times_are_left_out_and_not_missing() -> None:
    segments = [segment(0, 9, 100), segment(10, 19, 250, oldest=200), segment(20, 29, 300)]
    young = plan_spans(0, 30, segments, (), (), times=TimeWindow(250, None))
    old = plan_spans(0, 30, segments, (), (), times=TimeWindow(None, 200))
    assert [span.first for span in young.spans] == [10, 20]
    # The least timestamp of a segment is known only if it was imported.
    assert [span.first for span in old.spans] == [0, 20]
    assert young.missing == old.missing == ()


def test_a_part_of_a_span_counts_bytes_in_proportion() -> None:
    whole = Span(0, 10, segment(0, 9))
    assert (whole.size, whole.is_whole, whole.offsets) == (1, True, (0, 10))
    part = Span(5, 10, tail(0, 9))
    assert (part.size, part.is_whole) == (31, False)
