"""Parses common forms of dates and timestamps: `2026-03-01T12:30:00.5Z`, and milliseconds.

Of the forms that `times` accepts, these are a date alone, and a date with hours, minutes and
seconds, an optional fraction and an optional `Z` or offset. `at` and `end` are the addresses of a
string's content; `end` is exclusive.
"""

from __future__ import annotations

from neve.lake.values.json_kernel.numbers import MINUS, NINE, PLUS, POINT, ZERO
from neve.lake.values.json_kernel.strings import BAD
from neve.lake.values.times import MICROSECONDS_MAX, MICROSECONDS_MIN
from neve.records.native import inlined, load_byte, load_little_int64

NO_MOMENT = -(2**63)
"""Stands for everything that is not taken. As microseconds it is outside the years 1 to 9999."""

_DATE_BYTES = 10
_TIME_BYTES = 19
_FRACTION_DIGITS_MAX = 18
_COLON, _LETTER_T, _LETTER_Z, _SPACE = 0x3A, 0x54, 0x5A, 0x20
_DATE, _TIME = b"0000-00-", b"00:00:00"
# Text XOR marks has a digit's value in each digit's byte and 0 in each separator's. Adding the room
# then sets the high bit of every byte that is above 9 for a digit, or above 0 for a separator.
_DATE_MARKS, _TIME_MARKS = (int.from_bytes(form, "little") for form in (_DATE, _TIME))
_DATE_ROOM, _TIME_ROOM = (
    int.from_bytes(bytes(0x7F - 9 * (mark == ZERO) for mark in form), "little")
    for form in (_DATE, _TIME)
)
_HIGH = -0x7F7F7F7F7F7F7F80
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_MILLIS_MIN, _MILLIS_MAX = MICROSECONDS_MIN // 1000, MICROSECONDS_MAX // 1000


@inlined
def _two(at: int) -> int:
    """Return two digits as a number; if they are not digits, 1000, which is above every limit."""
    tens = load_byte(at) - ZERO
    ones = load_byte(at + 1) - ZERO
    if tens < 0 or tens > 9 or ones < 0 or ones > 9:
        return 1000
    return int(tens * 10 + ones)


@inlined
def _month_days(year: int, month: int) -> int:
    if month == 2:
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        return 29 if leap else 28
    return 30 if month in (4, 6, 9, 11) else 31


@inlined
def _digits_of(at: int, marks: int, room: int) -> int:
    """Return a word with the value of a digit per byte, and 0 for each separator.

    Returns BAD if the eight bytes at this address do not have the form of `marks`.
    """
    digits = load_little_int64(at) ^ marks
    return digits if ((digits | digits + room) & _HIGH) == 0 else BAD


@inlined
def _pair(digits: int, place: int) -> int:
    """Return the number of two digits, the first of them in the byte `place`."""
    two = digits >> 8 * place
    return (two & 0xFF) * 10 + (two >> 8 & 0xFF)


@inlined
def _days(at: int) -> int:
    """Return days since 1970 for the ten bytes of a date, or NO_MOMENT."""
    digits = _digits_of(at, _DATE_MARKS, _DATE_ROOM)
    day = _two(at + 8)
    if digits == BAD:
        return NO_MOMENT
    year = _pair(digits, 0) * 100 + _pair(digits, 2)
    month = _pair(digits, 5)
    if year < 1 or month < 1 or month > 12 or day < 1 or day > _month_days(year, month):
        return NO_MOMENT
    # Years are counted from March, so that a leap day comes last; 400 years have 146,097 days.
    shifted = year - 1 if month <= 2 else year
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


@inlined
def date_of(at: int, end: int) -> int:
    """Return days since 1970, or NO_MOMENT."""
    return _days(at) if end - at == _DATE_BYTES else NO_MOMENT


@inlined
def _seconds(at: int) -> int:
    """Return seconds since midnight for the eight bytes of a time, or NO_MOMENT."""
    digits = _digits_of(at, _TIME_MARKS, _TIME_ROOM)
    hour = _pair(digits, 0)
    minute = _pair(digits, 3)
    second = _pair(digits, 6)
    if digits == BAD or hour > 23 or minute > 59 or second > 59:
        return NO_MOMENT
    return hour * 3600 + minute * 60 + second


@inlined
def _fraction(at: int, end: int) -> tuple[int, int]:
    """Read the digits after the point.

    Returns them in microseconds, or NO_MOMENT, and the address after them.
    """
    start = at
    value = 0
    scale = _SECOND
    while at < end and ZERO <= load_byte(at) <= NINE:
        if scale > 1:
            scale //= 10
            value += (load_byte(at) - ZERO) * scale
        at += 1
    if at == start or at - start > _FRACTION_DIGITS_MAX:
        return NO_MOMENT, at
    return value, at


@inlined
def _zone(at: int, end: int) -> int:
    """Return the microseconds to subtract for what follows a time, or NO_MOMENT.

    `Z` or nothing is 0; an offset has the form +02:00.
    """
    if at == end or (end - at == 1 and load_byte(at) == _LETTER_Z):
        return 0
    sign = load_byte(at)
    if end - at != 6 or sign not in (PLUS, MINUS) or load_byte(at + 3) != _COLON:
        return NO_MOMENT
    hours = _two(at + 1)
    minutes = _two(at + 4)
    if hours > 23 or minutes > 59:
        return NO_MOMENT
    offset = (hours * 60 + minutes) * 60 * _SECOND
    return -offset if sign == MINUS else offset


@inlined
def moment_of(at: int, end: int) -> int:
    """Return microseconds since 1970, or NO_MOMENT."""
    if end - at < _DATE_BYTES:
        return NO_MOMENT
    days = _days(at)
    if days == NO_MOMENT or end - at == _DATE_BYTES:
        return days * _DAY if days != NO_MOMENT else NO_MOMENT
    between = load_byte(at + _DATE_BYTES)
    if end - at < _TIME_BYTES or between not in (_LETTER_T, _SPACE):
        return NO_MOMENT
    seconds = _seconds(at + _DATE_BYTES + 1)
    micros = 0
    at += _TIME_BYTES
    if at < end and load_byte(at) == POINT:
        micros, at = _fraction(at + 1, end)
    zone = _zone(at, end)
    if NO_MOMENT in (seconds, micros, zone):
        return NO_MOMENT
    moment = days * _DAY + seconds * _SECOND + micros - zone
    return moment if MICROSECONDS_MIN <= moment <= MICROSECONDS_MAX else NO_MOMENT


@inlined
def moment_of_millis(millis: int) -> int:
    """Return microseconds since 1970 for milliseconds, or NO_MOMENT."""
    return millis * 1000 if _MILLIS_MIN <= millis <= _MILLIS_MAX else NO_MOMENT
