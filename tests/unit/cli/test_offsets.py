"""The grammar of offsets, by example."""

from __future__ import annotations

import pytest

from neve.cli.offsets import (
    AfterStart,
    AtTime,
    BeforeEnd,
    Exact,
    OffsetSyntaxError,
    Span,
    parse_bound,
    parse_span,
)

NOW_MS = 1_767_312_000_000  # 2026-01-02
DAY_MS = 86_400_000
FIRST = AtTime(NOW_MS - DAY_MS)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("start", Span(AfterStart())),
        ("end", Span(BeforeEnd())),
        ("47", Span(Exact(47))),
        (" 47 ", Span(Exact(47))),
        ("+2", Span(AfterStart(2))),
        ("-3", Span(BeforeEnd(3))),
        ("10:20", Span(Exact(10), Exact(20))),
        ("10:10", Span(Exact(10), Exact(10))),
        (":end", Span(AfterStart(), BeforeEnd())),
        ("47:", Span(Exact(47))),
        (":20", Span(AfterStart(), Exact(20))),
        ("-10:-5", Span(BeforeEnd(10), BeforeEnd(5))),
        ("+1:end", Span(AfterStart(1), BeforeEnd())),
        ("@-1d", Span(FIRST)),
        ("@-24h", Span(FIRST)),
        ("@2026-01-01", Span(FIRST)),
        ("@2026-01-01T00:00:00Z", Span(FIRST)),
        ("@2026-01-01T01:00+01:00", Span(FIRST)),
        ("@2026-01-01T00:00:00.250Z", Span(AtTime(FIRST.timestamp_ms + 250))),
        ("@2026-01-01T00:00:00.2501Z", Span(AtTime(FIRST.timestamp_ms + 251))),
        ("@1767225600000", Span(FIRST)),
        ("@1767225600", Span(FIRST)),
        ("@-1d:", Span(FIRST)),
        ("@-1d:end", Span(FIRST, BeforeEnd())),
        ("@-1d:-12h", Span(FIRST, AtTime(NOW_MS - DAY_MS // 2))),
        ("@2026-01-01:1h", Span(FIRST, AtTime(FIRST.timestamp_ms + 3_600_000))),
        ("@2026-01-01T00:00:00Z:1.5s", Span(FIRST, AtTime(FIRST.timestamp_ms + 1500))),
        ("@:2026-01-01", Span(AfterStart(), FIRST)),
        ("@-9999999w", Span(AtTime(0))),
        ("@1969-12-31T23:59:59.999Z", Span(AtTime(0))),
        ("@0001-01-01:2026-01-01", Span(AtTime(0), FIRST)),
        ("@2026-01-01:999999999999w", Span(FIRST, AtTime(2**63 - 1))),
        ("@1767312000000:1h", Span(AtTime(NOW_MS), AtTime(NOW_MS + 3_600_000))),
    ],
)
def test_what_is_understood(text: str, span: Span) -> None:
    assert parse_span(text, NOW_MS) == span


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "write start, end"),
        ("soon", "write start, end"),
        ("1.5", "write start, end"),
        ("--3", "write start, end"),
        ("9223372036854775808", "the maximum offset is"),
        (":", "one side of the colon"),
        ("1:2:3", "more than one colon"),
        ("20:10", "before the start"),
        ("-1:-3", "before the start"),
        ("@", "use 2026-01-31"),
        ("@soon", "use 2026-01-31"),
        ("@:", "one side of the colon"),
        ("@12", "has 2 digits"),
        ("@1h", "write -1h"),
        ("@:1h", "write -1h"),
        ("@2026-02-30", "is not a valid time"),
        ("@2026-01-01T10:00", "add the time zone"),
        ("@2026-01-01x", "'x' is left over"),
        ("@-1h:-2h", "before the start"),
        ("@-2h:-1h:3", "':3' is left over"),
    ],
)
def test_what_is_refused_says_why(text: str, told: str) -> None:
    with pytest.raises(OffsetSyntaxError, match=told) as caught:
        parse_span(text, NOW_MS)
    assert str(caught.value).startswith(f"{text!r} is not a valid offset: ")


def test_one_place_is_no_range() -> None:
    assert parse_bound("+3", NOW_MS) == AfterStart(3)
    with pytest.raises(OffsetSyntaxError, match="is a range"):
        parse_bound("10:20", NOW_MS)


def test_a_span_in_a_partition() -> None:
    at = {FIRST.timestamp_ms: 8}.get
    assert parse_span("start", NOW_MS).within(5, 10, at) == (5, None)
    assert parse_span(":end", NOW_MS).within(5, 10, at) == (5, 10)
    assert parse_span("+3:-1", NOW_MS).within(5, 10, at) == (8, 9)
    assert parse_span("+9", NOW_MS).within(5, 10, at) == (10, None)
    assert parse_span("-9", NOW_MS).within(5, 10, at) == (5, None)
    assert parse_span("3:99", NOW_MS).within(5, 10, at) == (3, 99)
    assert parse_span("@-1d", NOW_MS).within(5, 10, at) == (8, None)
    assert parse_span("@-1h", NOW_MS).within(5, 10, at) == (10, None)
