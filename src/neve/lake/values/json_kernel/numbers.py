"""Parses JSON numbers: int64, and correctly rounded doubles whose digits fit an int64.

If the digits fit a double's 53 bits and the power of ten is an exact double, one multiplication or
division rounds correctly (Clinger's fast path). Other numbers go to `rounding`. It cannot settle a
few of them; values with such a number are not taken.
"""

from __future__ import annotations

import numpy as np

from neve.lake.values.json_kernel.rounding import NO_BITS, double_of, nearest
from neve.lake.values.json_kernel.strings import BAD
from neve.records.native import inlined, load_byte

ZERO, NINE, MINUS, PLUS, POINT, LOWER_E = 0x30, 0x39, 0x2D, 0x2B, 0x2E, 0x65

# The largest int64 is 10 * _TENTH_MAX + _LAST_DIGIT_MAX.
_TENTH_MAX, _LAST_DIGIT_MAX = divmod(2**63 - 1, 10)
_EXACT_MAX = 2**53
_POWER_MAX = 22
_POWERS = np.array([10.0**power for power in range(_POWER_MAX + 1)])
_EXPONENT_DIGITS_MAX = 3


@inlined
def _digits(at: int, end: int, value: int) -> tuple[int, int]:
    """Append the digits at this address, possibly none, to `value`.

    Returns the new value and the address after the digits, which is BAD if the value overflows.
    """
    while at < end:
        digit = load_byte(at) - ZERO
        if digit < 0 or digit > 9:
            return value, at
        if value >= _TENTH_MAX and (value > _TENTH_MAX or digit > _LAST_DIGIT_MAX):
            return 0, BAD
        value = value * 10 + digit
        at += 1
    return value, at


@inlined
def _whole(at: int, end: int) -> tuple[int, bool, int]:
    """Read the integer part of a number, before a point or an e.

    Returns its digits as a number, whether a minus precedes them, and the address after them. The
    address is BAD if there is no digit, a leading zero or an overflow.
    """
    negative = load_byte(at) == MINUS
    start = at + negative
    value, at = _digits(start, end, 0)
    if at in (BAD, start) or (load_byte(start) == ZERO and at > start + 1):
        return 0, False, BAD
    return value, negative, at


@inlined
def read_integer(at: int, end: int) -> tuple[int, int]:
    """Return an integer and the address after it, or BAD. The caller must check what follows."""
    value, negative, at = _whole(at, end)
    # The reference decoder decides whether -0 is an integer.
    if at == BAD or (negative and value == 0):
        return 0, BAD
    return (-value if negative else value), at


@inlined
def read_double(at: int, end: int) -> tuple[float, int]:
    """Return a number as a double and the address after it, or BAD."""
    digits, negative, at = _whole(at, end)
    if at == BAD:
        return 0.0, BAD
    power = 0
    whole = at
    if at < end and load_byte(at) == POINT:
        digits, at = _digits(whole + 1, end, digits)
        if at == BAD or at == whole + 1:
            return 0.0, BAD
        power = whole + 1 - at
    if at < end and (load_byte(at) | 0x20) == LOWER_E:
        exponent, at = _exponent(at + 1, end)
        if at == BAD:
            return 0.0, BAD
        power += exponent
    if digits == 0 and at == whole and negative:
        return 0.0, BAD
    value, found = _times_ten_to(digits, power)
    return (-value if negative else value), at if found else BAD


@inlined
def _times_ten_to(digits: int, power: int) -> tuple[float, bool]:
    """Return the nearest double and True, or any number and False if it cannot be determined."""
    if digits == 0:
        return 0.0, True
    if digits <= _EXACT_MAX and -_POWER_MAX <= power <= _POWER_MAX:
        value = float(digits)
        return (value * _POWERS[power] if power >= 0 else value / _POWERS[-power]), True
    bits = nearest(digits, power)
    return double_of(bits), bits != NO_BITS


@inlined
def _exponent(at: int, end: int) -> tuple[int, int]:
    """Return the exponent after the e and the address after it, or BAD."""
    if at == end:
        return 0, BAD
    sign = load_byte(at)
    start = at + 1 if sign in (MINUS, PLUS) else at
    value, at = _digits(start, end, 0)
    if at in (BAD, start) or at - start > _EXPONENT_DIGITS_MAX:
        return 0, BAD
    return (-value if sign == MINUS else value), at
