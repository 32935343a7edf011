"""CRC-32C, the checksum of everything in the bucket."""

from __future__ import annotations

from awscrt import checksums


def crc32c(data: bytes | bytearray | memoryview, previous: int = 0) -> int:
    """The checksum of `data`, or of what `previous` covers followed by `data`."""
    value: int = checksums.crc32c(data, previous)
    return value


def combined(first: int, second: int, second_bytes: int) -> int:
    """The checksum of what `first` covers followed by the `second_bytes` that `second` covers."""
    value: int = checksums.combine_crc32c(first, second, second_bytes)
    return value
