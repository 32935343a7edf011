"""CRC-32C, the checksum of everything in the bucket."""

from __future__ import annotations

from typing import Protocol

from awscrt import checksums


class _Checksum(Protocol):
    def __call__(self, data: bytes | bytearray | memoryview, previous: int = 0, /) -> int: ...


crc32c: _Checksum = checksums.crc32c
"""Return the checksum of `data`, or of what `previous` covers followed by `data`.

This is the library's function without a wrapper, because it runs for every batch.
"""


def combined(first: int, second: int, second_bytes: int) -> int:
    """Combine two checksums: of what `first` covers, then the `second_bytes` of `second`."""
    value: int = checksums.combine_crc32c(first, second, second_bytes)
    return value
