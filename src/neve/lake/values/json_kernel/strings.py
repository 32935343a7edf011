"""Finds the end of JSON strings, checks them, and copies their content without escapes.

Positions are addresses; no byte from `end` on is read. BAD stands for everything that the kernel
does not take.
"""

from __future__ import annotations

from neve.records.native import (
    inlined,
    load_byte,
    load_little_int64,
    store_byte,
    trailing_zeros,
)

BAD = -1

QUOTE, BACKSLASH, SLASH, LOWER_U = 0x22, 0x5C, 0x2F, 0x75
BLANKS_END = 0x20
ASCII_END = 0x80

# Each constant repeats one byte eight times. `x - _LOW` sets the high bit of each byte that is 0,
# and _HIGH selects the high bits.
_LOW = 0x0101010101010101
_HIGH = -0x7F7F7F7F7F7F7F80
_QUOTES = QUOTE * _LOW
_BACKSLASHES = BACKSLASH * _LOW
_BLANKS = BLANKS_END * _LOW


@inlined
def _doubts(word: int) -> int:
    """Return the high bit of each byte that needs a closer look; 0 if all eight are plain ASCII.

    These are quotes, backslashes, control characters and bytes that are not ASCII. Only the lowest
    bit is certain: a byte that borrows decrements the one above it, and can set its bit wrongly.
    """
    quotes = word ^ _QUOTES
    backslashes = word ^ _BACKSLASHES
    found = word | (quotes - _LOW) | (backslashes - _LOW) | (word - _BLANKS)
    return found & _HIGH


@inlined
def end_of_text(at: int, end: int) -> tuple[int, bool]:
    """Find the closing quote of a string whose content begins at `at`, and check the content.

    Returns the address of the quote, or BAD, and whether the string has escapes.
    """
    escaped = False
    while at < end:
        if at + 8 <= end:
            doubts = _doubts(load_little_int64(at))
            if doubts == 0:
                at += 8
                continue
            at += trailing_zeros(doubts) >> 3
        byte = load_byte(at)
        if byte == QUOTE:
            return at, escaped
        if byte == BACKSLASH:
            escaped = True
            at = _past_escape(at, end)
        elif byte < BLANKS_END:
            return BAD, False
        elif byte < ASCII_END:
            at += 1
        else:
            at = _past_character(at, end)
        if at == BAD:
            return BAD, False
    return BAD, False


@inlined
def _past_character(at: int, end: int) -> int:
    """Return the address after a UTF-8 character of two to four bytes, or BAD.

    Overlong forms and surrogates are BAD.
    """
    first = load_byte(at)
    if first < 0xC2 or first > 0xF4:
        return BAD
    more = 1 if first < 0xE0 else 2 if first < 0xF0 else 3
    if at + more >= end:
        return BAD
    second = load_byte(at + 1)
    least = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
    most = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
    if second < least or second > most:
        return BAD
    for place in range(2, more + 1):
        if load_byte(at + place) & 0xC0 != 0x80:
            return BAD
    return at + more + 1


@inlined
def _past_escape(at: int, end: int) -> int:
    """Return the address after an escape, or after a surrogate pair of escapes, or BAD."""
    if at + 2 > end:
        return BAD
    if load_byte(at + 1) != LOWER_U:
        return at + 2 if _short_escape(load_byte(at + 1)) != BAD else BAD
    code = _unit(at, end)
    if code < 0xD800 or code > 0xDFFF:
        return at + 6 if code != BAD else BAD
    low = _unit(at + 6, end)
    return at + 12 if code < 0xDC00 and 0xDC00 <= low <= 0xDFFF else BAD


@inlined
def _short_escape(byte: int) -> int:
    """Return the byte that a letter after a backslash stands for, or BAD."""
    if byte in (QUOTE, BACKSLASH, SLASH):
        return byte
    if byte == 0x6E:
        return 0x0A
    if byte == 0x74:
        return 0x09
    if byte == 0x72:
        return 0x0D
    if byte == 0x62:
        return 0x08
    return 0x0C if byte == 0x66 else BAD


@inlined
def _unit(at: int, end: int) -> int:
    r"""Return the UTF-16 code unit of `\uXXXX`, or BAD."""
    if at + 6 > end or load_byte(at) != BACKSLASH or load_byte(at + 1) != LOWER_U:
        return BAD
    code = 0
    for place in range(2, 6):
        byte = load_byte(at + place)
        lower = byte | 0x20
        if 0x30 <= byte <= 0x39:
            digit = byte - 0x30
        elif 0x61 <= lower <= 0x66:
            digit = lower - 0x57
        else:
            return BAD
        code = code << 4 | digit
    return code


@inlined
def copy_unescaped(source: int, size: int, target: int) -> int:
    """Copy the content of a string without escapes. Returns the bytes written, at most `size`.

    `end_of_text` must have accepted the string.
    """
    end = source + size
    start = target
    while source < end:
        byte = load_byte(source)
        if byte != BACKSLASH:
            store_byte(target, byte)
            source += 1
            target += 1
        elif load_byte(source + 1) != LOWER_U:
            store_byte(target, _short_escape(load_byte(source + 1)))
            source += 2
            target += 1
        else:
            code = _unit(source, end)
            source += 6
            if 0xD800 <= code <= 0xDFFF:
                code = 0x10000 + ((code - 0xD800) << 10) + (_unit(source, end) - 0xDC00)
                source += 6
            target = _put_character(code, target)
    return target - start


@inlined
def _put_character(code: int, target: int) -> int:
    """Write a character as UTF-8. Returns the address after it."""
    if code < 0x80:
        store_byte(target, code)
        return target + 1
    if code < 0x800:
        store_byte(target, 0xC0 | code >> 6)
        store_byte(target + 1, 0x80 | code & 0x3F)
        return target + 2
    if code < 0x10000:
        store_byte(target, 0xE0 | code >> 12)
        store_byte(target + 1, 0x80 | code >> 6 & 0x3F)
        store_byte(target + 2, 0x80 | code & 0x3F)
        return target + 3
    store_byte(target, 0xF0 | code >> 18)
    store_byte(target + 1, 0x80 | code >> 12 & 0x3F)
    store_byte(target + 2, 0x80 | code >> 6 & 0x3F)
    store_byte(target + 3, 0x80 | code & 0x3F)
    return target + 4
