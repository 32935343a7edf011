"""Converts decimal digits to the nearest double with the Eisel-Lemire algorithm.

It multiplies the digits by a power of five from a table with 128 bits per power, in one or two
products of 128 bits. If these do not determine the rounding, or the result is not a normal double
(subnormal or out of range), it returns NO_BITS, and the caller needs a full implementation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from neve.records.native import inlined

NO_BITS = -1
"""Stands for an undetermined result. As the bits of a double it would be a NaN."""

POWER_MIN, POWER_MAX = -342, 308
_MANTISSA_BITS = 52
_BIAS = 1023
_EXPONENT_END = 0x7FF
_SIGN = -(2**63)
_WIDE = ir.IntType(128)
_WORD = ir.IntType(64)


def _five_to(power: int) -> int:
    """Return the upper 128 bits of a power of five, scaled so that the highest bit is set.

    Powers below 1 are rounded up, others truncated, as in the paper: the error of a product is then
    less than one unit in its last place.
    """
    five: int = 5 ** abs(power)
    bits = five.bit_length()
    if power >= 0:
        return five << 128 - bits if bits <= 128 else five >> bits - 128
    # The least b with 2**b >= five. Below 5**-27 the quotient has more bits, and is truncated.
    least = (five - 1).bit_length()
    quotient: int = (1 << (least + 127 if power >= -27 else 2 * least + 128)) // five + 1
    return quotient >> max(0, quotient.bit_length() - 128)


_FIVES = np.array(
    [
        [part - 2**64 if part >= 2**63 else part for part in divmod(_five_to(power), 2**64)]
        for power in range(POWER_MIN, POWER_MAX + 1)
    ],
    np.int64,
)


@intrinsic  # type: ignore[untyped-decorator]
def _product_high(typing: Any, first: Any, second: Any) -> Any:  # noqa: ARG001 (numba's form)
    """Return the upper 64 bits of the product of two unsigned words."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        wide = [builder.zext(each, _WIDE) for each in arguments]
        return builder.trunc(builder.lshr(builder.mul(*wide), ir.Constant(_WIDE, 64)), _WORD)

    return types.int64(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _shifted_right(typing: Any, word: Any, bits: Any) -> Any:  # noqa: ARG001 (numba's form)
    """Shift an unsigned word right."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.lshr(*arguments)

    return types.int64(types.int64, types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def _leading_zeros(typing: Any, word: Any) -> Any:  # noqa: ARG001 (numba's form)
    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def double_of(typing: Any, bits: Any) -> Any:  # noqa: ARG001 (numba's form)
    """Return the double with these bits."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


@inlined
def nearest(digits: int, power: int) -> int:
    """Return the bits of the double nearest to `digits * 10**power`, or NO_BITS.

    `digits` must be positive.
    """
    if power < POWER_MIN or power > POWER_MAX:
        return NO_BITS
    zeros = _leading_zeros(digits)
    word = digits << zeros
    five = _FIVES[power - POWER_MIN, 0]
    upper = _product_high(word, five)
    lower = word * five
    if upper & 0x1FF == 0x1FF:
        more = _product_high(word, _FIVES[power - POWER_MIN, 1])
        lower += more
        if (lower ^ _SIGN) < (more ^ _SIGN):
            upper += 1
    if lower == -1 and (power < -27 or power > 55):
        return NO_BITS
    top = _shifted_right(upper, 63)
    cut = top + 64 - _MANTISSA_BITS - 3
    mantissa = _shifted_right(upper, cut)
    exponent = ((152170 + 65536) * power >> 16) + 63 + top - zeros + _BIAS
    if exponent <= 0:
        return NO_BITS
    # An exact tie between two doubles: round to even.
    if lower in (0, 1) and -4 <= power <= 23 and mantissa & 3 == 1 and mantissa << cut == upper:
        mantissa -= 1
    mantissa = (mantissa + (mantissa & 1)) >> 1
    if mantissa >> _MANTISSA_BITS + 1:
        mantissa = 1 << _MANTISSA_BITS
        exponent += 1
    if exponent >= _EXPONENT_END:
        return NO_BITS
    return int((exponent << _MANTISSA_BITS) | (mantissa & ((1 << _MANTISSA_BITS) - 1)))
