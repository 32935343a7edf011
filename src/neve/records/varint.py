"""Kafka's zigzag varints, for the kernels. A read never passes its end."""

from __future__ import annotations

from neve.records.native import inlined, load_byte, store_byte

BAD = 2**63 - 1
"""The position that a failed read returns. It is beyond every end, so further reads fail too."""

_POSITIVE = 0x7FFFFFFFFFFFFFFF


@inlined
def read_varint(position: int, end: int) -> tuple[int, int]:
    """Return a 32-bit varint and the position after it; BAD if it exceeds `end` or 32 bits."""
    value = 0
    shift = 0
    while position < end and shift < 35:
        byte = load_byte(position)
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 32:
                return 0, BAD
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    return 0, BAD


@inlined
def read_varlong(position: int, end: int) -> tuple[int, int]:
    """Return a 64-bit varint and the position after it; BAD if it exceeds `end` or 64 bits."""
    value = 0
    shift = 0
    while position < end and shift < 70:
        byte = load_byte(position)
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift == 63 and byte > 1:
                return 0, BAD
            # Numba's right shift is arithmetic, but zigzag needs a logical one.
            return ((value >> 1) & _POSITIVE) ^ -(value & 1), position
        shift += 7
    return 0, BAD


@inlined
def write_varint(position: int, value: int) -> int:
    """Write a varint of up to 64 bits. Returns the position after it."""
    rest = (value << 1) ^ (value >> 63)
    while rest & ~0x7F:
        store_byte(position, (rest & 0x7F) | 0x80)
        rest = (rest >> 7) & (_POSITIVE >> 6)
        position += 1
    store_byte(position, rest)
    return position + 1


@inlined
def varint_bytes(value: int) -> int:
    """Return the number of bytes that `write_varint` writes."""
    rest = (value << 1) ^ (value >> 63)
    size = 1
    while rest & ~0x7F:
        rest = (rest >> 7) & (_POSITIVE >> 6)
        size += 1
    return size
