"""What soak tests write: records that say who wrote them, when in turn, and whether they are whole.

A value is producer, sequence within (producer, partition), then bytes of the producer's choice, and
a checksum over all of it.
"""

from __future__ import annotations

import random
import struct
import zlib
from typing import NamedTuple

_HEAD = struct.Struct(">HIQ")
_CHECKSUM = struct.Struct(">I")
_MAGIC = 0x5EED


class Mark(NamedTuple):
    """What tells one record from all others of its partition."""

    producer: int
    sequence: int


class BrokenValueError(ValueError):
    """A value is not one that was ever written."""


def make_value(mark: Mark, chance: random.Random, bytes_max: int) -> bytes:
    body = _HEAD.pack(_MAGIC, mark.producer, mark.sequence) + chance.randbytes(
        chance.randrange(bytes_max)
    )
    return body + _CHECKSUM.pack(zlib.crc32(body))


def read_value(value: bytes | None) -> tuple[Mark, int]:
    """Whose record this is, and its checksum; BrokenValueError where it is not whole."""
    if value is None or len(value) < _HEAD.size + _CHECKSUM.size:
        raise BrokenValueError(f"a record has the value {value!r}")
    (checksum,) = _CHECKSUM.unpack_from(value, len(value) - _CHECKSUM.size)
    magic, producer, sequence = _HEAD.unpack_from(value)
    if magic != _MAGIC or zlib.crc32(value[: -_CHECKSUM.size]) != checksum:
        raise BrokenValueError(f"a record does not match its checksum: {value[:40]!r}…")
    return Mark(producer, sequence), checksum
