"""The grammar of offsets: whatever is written out is parsed back, and nothing else is accepted."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neve.cli.offsets import (
    OFFSET_MAX,
    AfterStart,
    AtTime,
    BeforeEnd,
    Bound,
    Exact,
    OffsetSyntaxError,
    Span,
    parse_bound,
    parse_span,
    placed,
)

NOW_MS = 1_767_225_600_000  # 2026-01-01
HOUR_MS = 3_600_000

counts = st.integers(0, OFFSET_MAX)
offset_bounds = st.one_of(
    st.builds(Exact, counts), st.builds(AfterStart, counts), st.builds(BeforeEnd, counts)
)
moments = st.integers(1_000_000_000_000, 7_000_000_000_000).map(
    lambda ms: datetime.fromtimestamp(ms // 1000, tz=UTC).replace(microsecond=ms % 1000 * 1000)
)


def written(bound: Bound) -> str:
    match bound:
        case Exact(offset):
            return str(offset)
        case AfterStart(count):
            return f"+{count}"
        case BeforeEnd(count):
            return f"-{count}"
    raise AssertionError(bound)


def written_time(moment: datetime, style: str) -> str:
    ms = round(moment.timestamp() * 1000)
    return str(ms) if style == "ms" else moment.isoformat().replace("+00:00", "Z")


def _nothing(_: int) -> int | None:
    return None


@given(offset_bounds)
def test_a_bound_is_parsed_back(bound: Bound) -> None:
    assert parse_span(written(bound), NOW_MS) == Span(bound)
    assert parse_bound(written(bound), NOW_MS) == bound
    assert parse_span(f"{written(bound)}:", NOW_MS) == Span(bound)
    assert parse_span(f":{written(bound)}", NOW_MS).end == bound


@given(offset_bounds, offset_bounds)
def test_a_span_is_parsed_back_or_lies_the_wrong_way(first: Bound, end: Bound) -> None:
    text = f"{written(first)}:{written(end)}"
    forward = True
    if type(first) is type(end):
        low, high = placed(first, 0, OFFSET_MAX, _nothing), placed(end, 0, OFFSET_MAX, _nothing)
        forward = low <= high
    if forward:
        assert parse_span(text, NOW_MS) == Span(first, end)
    else:
        with pytest.raises(OffsetSyntaxError, match="before the start"):
            parse_span(text, NOW_MS)


@given(moments, moments, st.sampled_from(["ms", "iso"]), st.sampled_from(["ms", "iso"]))
def test_times_are_parsed_back(a: datetime, b: datetime, one: str, other: str) -> None:
    first, end = sorted([a, b])
    found = parse_span(f"@{written_time(first, one)}:{written_time(end, other)}", NOW_MS)
    assert found == Span(
        AtTime(round(first.timestamp() * 1000)), AtTime(round(end.timestamp() * 1000))
    )
    assert parse_span(f"@{written_time(first, one)}", NOW_MS) == Span(found.first)


@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_lengths_count_back_from_now_and_on_from_the_first(hours: int, minutes: int) -> None:
    start = AtTime(NOW_MS - hours * HOUR_MS - minutes * 60_000)
    assert parse_span(f"@-{hours}h{minutes}m", NOW_MS) == Span(start)
    assert parse_span(f"@-{hours}h{minutes}m:90s", NOW_MS) == Span(
        start, AtTime(start.timestamp_ms + 90_000)
    )


@given(st.text(alphabet="0123456789+-:@TZ.hmsdwe startn", max_size=24))
def test_any_text_is_a_span_or_a_clear_error(text: str) -> None:
    told = ""
    try:
        first, end = parse_span(text, NOW_MS).within(5, 10, lambda _: 7)
        assert first >= 0
        assert end is None or end >= 0
    except OffsetSyntaxError as error:
        told = str(error)
    assert told.startswith(f"{text!r} is not a valid offset") or not told


@given(offset_bounds, st.integers(0, 100), st.integers(0, 100))
def test_what_is_counted_from_an_edge_stays_within(bound: Bound, low: int, size: int) -> None:
    found = placed(bound, low, low + size, _nothing)
    if isinstance(bound, Exact):
        assert found == bound.offset
    else:
        assert low <= found <= low + size
