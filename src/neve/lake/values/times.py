"""Parses dates and timestamps in JSON values.

A timestamp is ISO 8601 text, or an integer: milliseconds since 1970. The text is a date alone
(midnight UTC), or a date, `T` or a space, hours, and optionally minutes, seconds and a fraction,
then optionally `Z` or an offset; without either it is in UTC. Digits of a fraction after the sixth
are dropped. Years must be 1 to 9999.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)"
    r"(?:[T ](\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d{1,18}))?)?)?(?:(Z)|([+-])(\d\d)(?::?(\d\d))?)?)?",
    re.ASCII,
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

MICROSECONDS_MIN = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
MICROSECONDS_MAX = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def microseconds_of_text(text: str) -> int | None:
    """Return microseconds since 1970, or None if the text is not a timestamp."""
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    microsecond = int((found[7] or "")[:6].ljust(6, "0"))
    try:
        moment = datetime(year, month, day, hour, minute, second, microsecond, tzinfo=UTC)
        offset = _offset(found[9], int(found[10] or 0), int(found[11] or 0))
    except ValueError:
        return None
    return _within((moment - _EPOCH - offset) // _MICROSECOND)


def _offset(sign: str | None, hours: int, minutes: int) -> timedelta:
    if hours > 23 or minutes > 59:
        raise ValueError("no such offset")
    return timedelta(hours=hours, minutes=minutes) * (-1 if sign == "-" else 1)


def microseconds_of_milliseconds(milliseconds: int) -> int | None:
    return _within(milliseconds * 1000)


def _within(microseconds: int) -> int | None:
    inside = MICROSECONDS_MIN <= microseconds <= MICROSECONDS_MAX
    return microseconds if inside else None


def date_of_text(text: str) -> date | None:
    if not _DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
