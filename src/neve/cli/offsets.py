"""Syntax of offsets: `start`, `end`, `47`, `+2`, `-3`, `10:20`, `@-1h`, `@2026-01-01:1d`.

The grammar is rpk's. A *bound* is one position in a partition. A *span* runs from a bound up to but
excluding another one. A span without an end extends as far as the reader does.

    start       where the log starts          +2   two after the start
    end         where the log ends            -3   three before the end
    47          this offset                   @…   the first record at or after a time

Times are `@2026-01-01` (midnight, UTC), `@2026-01-01T10:00:00Z`, `@1700000000000` (milliseconds),
`@1700000000` (seconds), `@-1h30m` (before now). In a span of times, `@first:end`, the end may also
be `end`, or a length such as `1h`, counted from the first.

Parsing is pure: the caller passes the current time, and the offsets of a partition to
`Span.within`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from neve import runtime
from neve.cli.output import UsageError

OFFSET_MAX = TIME_MS_MAX = 2**63 - 1
GRAMMAR = "start, end, 47, +2 (after the start), -3 (before the end), 10:20, @-1h or @2026-01-01"


class OffsetSyntaxError(UsageError):
    """The text is not a valid offset or span."""


@dataclass(frozen=True)
class Exact:
    """This offset."""

    offset: int


@dataclass(frozen=True)
class AfterStart:
    """A number of offsets after the log's start."""

    count: int = 0


@dataclass(frozen=True)
class BeforeEnd:
    """A number of offsets before the log's end."""

    count: int = 0


@dataclass(frozen=True)
class AtTime:
    """The first record at or after this timestamp; the end if there is none."""

    timestamp_ms: int


Bound: TypeAlias = Exact | AfterStart | BeforeEnd | AtTime
OffsetAtTime: TypeAlias = Callable[[int], int | None]
"""Maps a timestamp to the offset of the first record at or after it; None past the end."""


@dataclass(frozen=True)
class Span:
    """From a bound up to but excluding another one; None means as far as the reader goes."""

    first: Bound
    end: Bound | None = None

    def within(self, low: int, high: int, offset_at: OffsetAtTime) -> tuple[int, int | None]:
        """Resolve the span in a partition with the offsets from low up to but excluding high.

        Only bounds relative to the start or the end are clamped to these offsets.
        """
        first = placed(self.first, low, high, offset_at)
        return first, None if self.end is None else placed(self.end, low, high, offset_at)


def placed(bound: Bound, low: int, high: int, offset_at: OffsetAtTime) -> int:
    """Resolve a bound in a partition with the offsets from low up to but excluding high."""
    match bound:
        case Exact(offset):
            return offset
        case AfterStart(count):
            return min(low + count, high)
        case BeforeEnd(count):
            return max(high - count, low)
        case AtTime(timestamp_ms):
            found = offset_at(timestamp_ms)
            return high if found is None else found


def parse_span(text: str, now_ms: int) -> Span:
    """Parse a span of offsets or of times."""
    wanted = text.strip()
    try:
        return _times(wanted[1:], now_ms) if wanted.startswith("@") else _offsets(wanted)
    except OffsetSyntaxError as error:
        raise OffsetSyntaxError(f"{text!r} is not a valid offset: {error}") from None


def parse_bound(text: str, now_ms: int) -> Bound:
    """Parse a single position. Raises OffsetSyntaxError for a span with an end."""
    span = parse_span(text, now_ms)
    if span.end is not None:
        raise OffsetSyntaxError(f"{text!r} is a range: give a single offset")
    return span.first


# --- offsets


def _offsets(text: str) -> Span:
    first, colon, end = text.partition(":")
    if not colon:
        return Span(_bound(first))
    if ":" in end:
        raise OffsetSyntaxError("more than one colon")
    if not first and not end:
        raise OffsetSyntaxError("one side of the colon must be given")
    span = Span(_bound(first) if first else AfterStart(), _bound(end) if end else None)
    _refuse_reversed(span)
    return span


def _bound(text: str) -> Bound:
    if text == "start":
        return AfterStart()
    if text == "end":
        return BeforeEnd()
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text, re.ASCII):
        raise OffsetSyntaxError(f"write {GRAMMAR}")
    number = abs(int(text))
    if number > OFFSET_MAX:
        raise OffsetSyntaxError(f"the maximum offset is {OFFSET_MAX}")
    if text[0] == "+":
        return AfterStart(number)
    return BeforeEnd(number) if text[0] == "-" else Exact(number)


def _refuse_reversed(span: Span) -> None:
    """Check that the end is not before the start, if both are of the same kind."""
    match span:
        case Span(Exact(first), Exact(end)) | Span(AfterStart(first), AfterStart(end)):
            reversed_ = first > end
        case Span(BeforeEnd(first), BeforeEnd(end)):
            reversed_ = first < end
        case Span(AtTime(first), AtTime(end)):
            reversed_ = first > end
        case _:
            reversed_ = False
    if reversed_:
        raise OffsetSyntaxError("the end is before the start")


# --- times

_UNITS_MS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
_PART = r"[0-9]{1,12}(?:\.[0-9]{1,9})?(?:ms|s|m|h|d|w)"
_LENGTH = re.compile(rf"(-?)((?:{_PART})+)", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_DATE_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?",
    re.ASCII,
)
_NUMBER = re.compile(r"[0-9]+", re.ASCII)
_TIME_HELP = (
    "use 2026-01-31, 2026-01-31T12:00:00Z, milliseconds (13 digits) or seconds "
    "(10 digits) since 1970, or -1h (ms, s, m, h, d, w) for a time before now"
)


def _times(text: str, now_ms: int) -> Span:
    if text.startswith(":"):
        first: int | None = None
        rest = text[1:]
    else:
        first, rest = _moment(text, now_ms, None)
        if not rest:
            return Span(AtTime(first))
        if not rest.startswith(":"):
            raise OffsetSyntaxError(f"{rest!r} is left over; {_TIME_HELP}")
        rest = rest[1:]
    start: Bound = AfterStart() if first is None else AtTime(first)
    if not rest:
        if first is None:
            raise OffsetSyntaxError("one side of the colon must be given")
        return Span(start)
    if rest == "end":
        return Span(start, BeforeEnd())
    end, rest = _moment(rest, now_ms, first)
    if rest:
        raise OffsetSyntaxError(f"{rest!r} is left over; {_TIME_HELP}")
    span = Span(start, AtTime(end))
    _refuse_reversed(span)
    return span


def _moment(text: str, now_ms: int, length_from_ms: int | None) -> tuple[int, str]:
    """Parse a time at the beginning of a text. Returns it and the rest of the text.

    A negative duration counts back from now, a positive one forward from `length_from_ms`.
    """
    if found := _DATE_TIME.match(text):
        if found[1] is None:
            raise OffsetSyntaxError("add the time zone, such as Z for UTC")
        return _from_iso(found[0]), text[found.end() :]
    if found := _DATE.match(text):
        return _from_iso(f"{found[0]}T00:00:00Z"), text[found.end() :]
    if found := _LENGTH.match(text):
        length = _length_ms(found[2])
        if found[1]:
            return max(now_ms - length, 0), text[found.end() :]
        if length_from_ms is None:
            raise OffsetSyntaxError(f"{found[0]} is in the future: write -{found[0]}")
        return min(length_from_ms + length, TIME_MS_MAX), text[found.end() :]
    if found := _NUMBER.match(text):
        return _from_number(found[0]), text[found.end() :]
    raise OffsetSyntaxError(_TIME_HELP)


def _from_iso(text: str) -> int:
    try:
        since_1970_ms = runtime.ms_from_wall(datetime.fromisoformat(text))
    except ValueError:
        raise OffsetSyntaxError(f"{text} is not a valid time") from None
    return max(
        since_1970_ms, 0
    )  # in Kafka, negative timestamps have special meanings: -1 is the end


def _length_ms(text: str) -> int:
    parts = re.findall(r"([0-9.]+)([a-z]+)", text)
    return round(sum(float(number) * _UNITS_MS[unit] for number, unit in parts))


def _from_number(digits: str) -> int:
    if len(digits) == 13:
        return int(digits)
    if len(digits) in (9, 10):
        return int(digits) * 1000
    raise OffsetSyntaxError(f"{digits} has {len(digits)} digits; {_TIME_HELP}")
