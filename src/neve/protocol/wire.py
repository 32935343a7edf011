"""Functions that generated codecs call in rare cases: long varints, errors, split records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from neve.protocol.errors import MalformedError

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes that are passed on without a copy."""

Records: TypeAlias = Buffer | Sequence[Buffer]
"""Records of one partition, in one buffer or in several."""

REQUEST_ITEMS_MAX = 50_000
"""The most array elements and tagged fields of one request. Real clients send fewer."""

_VARINT_BYTES_MAX = 5
"""Lengths, counts and tags are 32 bits wide; seven bits a byte."""


def read_uvarint(data: memoryview, position: int) -> tuple[int, int]:
    """Return an unsigned varint and the position after it. Raises MalformedError."""
    value = 0
    for index in range(_VARINT_BYTES_MAX):
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value >> 32:
                break
            return value, position + index + 1
    raise MalformedError(f"the varint at byte {position} is wider than 32 bits")


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint."""
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def cut_short(name: str, position: int, wanted: int, end: int) -> MalformedError:
    """Return the error for a length or count that exceeds the bytes that are left."""
    left = end - position
    return MalformedError(f"{name} at byte {position} needs {wanted} bytes, {left} are left")


def null_refused(name: str, position: int) -> MalformedError:
    return MalformedError(f"{name} at byte {position} is null, which this version does not allow")


def bad_length(name: str, position: int, length: int) -> MalformedError:
    return MalformedError(f"{name} at byte {position} has length {length}")


def too_many(name: str, position: int) -> MalformedError:
    return MalformedError(
        f"with {name} at byte {position}, the request has more than {REQUEST_ITEMS_MAX} elements"
    )


def bad_tag(tag: int, position: int, stop: int) -> MalformedError:
    return MalformedError(f"tagged field {tag} ends at byte {position}, its size says {stop}")


def records_bytes(records: Records) -> int:
    """Return the size of records, in one buffer or in several."""
    if type(records) is list or type(records) is tuple:
        return sum(map(len, records))
    return len(records)


def add_records(parts: list[Buffer], records: Records) -> None:
    """Add records to the parts of a message without a copy."""
    if type(records) is list or type(records) is tuple:
        parts.extend(records)
    else:
        parts.append(records)  # type: ignore[arg-type]


def skip_tags(data: memoryview, position: int, items: int) -> tuple[int, int]:
    """Skip a section of unknown tagged fields.

    Returns the position after it, and how many of `items` are left. Raises MalformedError if it has
    more fields than `items`: a field has as few as two bytes, and takes much longer to decode than
    to receive.
    """
    count, position = read_uvarint(data, position)
    if count > items:
        raise too_many("tagged fields", position)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        if size > len(data) - position:
            raise cut_short("a tagged field", position, size, len(data))
        position += size
    return position, items - count
