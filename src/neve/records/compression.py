"""The codecs of record batches: gzip, snappy, lz4 and zstd, as Kafka's clients write and read them.

Decompression never returns more than `limit` bytes, raises DamagedError beyond it, and does not
allocate memory for a length that the data merely claims. A codec also uses working memory, at most
128 MiB (zstd's largest window).

gzip uses zlib, the others Arrow's bundled libraries, so no further package is needed. Arrow writes
lz4 frames with linked blocks, which Kafka's Java client rejects; this module writes the frame.
"""

from __future__ import annotations

import struct
import zlib
from typing import TypeAlias

import pyarrow as pa

from neve.errors import DamagedError, UnsupportedError

Buffer: TypeAlias = bytes | bytearray | memoryview

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODECS = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
"""Maximum size of a decompressed batch. Producers send about 1 MiB; Kafka's maximum is 2 GiB."""

_ZSTD_LEVEL = 3
_GZIP_LEVEL = 6
_GZIP_WINDOW_BITS = 31
"""zlib's value for a gzip header and trailer and a window of 32 KiB."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_SNAPPY_EXPANSION_MAX = 22
"""A snappy copy element of 3 bytes yields at most 64."""

_LZ4_HEADER = bytes.fromhex("04224d18604082")
"""Frame magic, version 1 with independent blocks, blocks up to 64 KiB, checksum of these two."""
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 0x80000000

_FIRST_READ_BYTES = 64 * 1024
_BLOCK_LENGTH = struct.Struct(">i")
_LZ4_LENGTH = struct.Struct("<I")


class OversizeError(DamagedError):
    """A batch decompresses to more bytes than the caller allows."""


def compress(codec: int, data: Buffer) -> Buffer:
    """Compress the records of a batch."""
    if codec == NONE:
        return data
    if codec == GZIP:
        return zlib.compress(data, _GZIP_LEVEL, _GZIP_WINDOW_BITS)
    if codec == SNAPPY:
        return _xerial(memoryview(data))
    if codec == LZ4:
        return _lz4_frame(memoryview(data))
    if codec == ZSTD:
        compressed: bytes = pa.Codec("zstd", compression_level=_ZSTD_LEVEL).compress(
            data, asbytes=True
        )
        return compressed
    raise _unknown(codec)


def decompress(
    codec: int, data: Buffer, limit: int = DECOMPRESSED_BYTES_MAX, *, key: str = ""
) -> Buffer:
    """Decompress the records of a batch, at most `limit` bytes. Raises DamagedError."""
    if codec == NONE:
        return _within(data, limit, key)
    try:
        if codec == GZIP:
            return _gunzip(data, limit, key)
        if codec == SNAPPY:
            return _unsnappy(memoryview(data), limit, key)
        if codec == LZ4:
            return _stream("lz4", data, limit, key)
        if codec == ZSTD:
            return _stream("zstd", data, limit, key)
    except (zlib.error, OSError, ValueError) as error:
        raise DamagedError(key, f"{CODECS[codec]} data cannot be decompressed: {error}") from error
    raise _unknown(codec)


def _unknown(codec: int) -> UnsupportedError:
    return UnsupportedError(f"compression codec {codec} is unknown: a newer Neve may support it")


def _within(data: Buffer, limit: int, key: str) -> Buffer:
    if len(data) > limit:
        raise _too_much(limit, key)
    return data


def _too_much(limit: int, key: str) -> OversizeError:
    return OversizeError(key, f"a batch decompresses to more than {limit} bytes")


def _gunzip(data: Buffer, limit: int, key: str) -> bytes:
    parts: list[bytes] = []
    size = 0
    rest: Buffer = data
    while True:
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        parts.append(member.decompress(rest, limit - size + 1))
        size += len(parts[-1])
        if size > limit:
            raise _too_much(limit, key)
        if not member.eof:
            raise DamagedError(key, "gzip data ends before its trailer")
        if not member.unused_data:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        rest = member.unused_data


def _stream(codec: str, data: Buffer, limit: int, key: str) -> Buffer:
    """Read in growing chunks: the output, not the frame's header, determines the memory."""
    if len(data) == 0:
        raise DamagedError(key, f"{codec} data is empty")
    source = pa.CompressedInputStream(pa.BufferReader(data), codec)
    parts: list[memoryview] = []
    size = 0
    wanted = min(max(_FIRST_READ_BYTES, 4 * len(data)), limit + 1)
    while piece := memoryview(source.read_buffer(wanted)):
        parts.append(piece)
        size += len(piece)
        if size > limit:
            raise _too_much(limit, key)
        wanted = min(2 * size, limit + 1 - size)
    if not parts:
        return b""
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _xerial(data: memoryview) -> bytes:
    codec = pa.Codec("snappy")
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = codec.compress(data[start : start + _XERIAL_BLOCK_BYTES], asbytes=True)
        parts += (_BLOCK_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _unsnappy(data: memoryview, limit: int, key: str) -> bytes:
    """Decompress Xerial's framed blocks (Java client), or one bare block (other clients).

    The version fields after Xerial's magic are ignored: some producers swap their bytes.
    """
    codec = pa.Codec("snappy")
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _snappy_block(codec, data, 0, limit, key)
    parts: list[bytes] = []
    size = 0
    position = len(_XERIAL_HEADER)
    if len(data) < position:
        raise DamagedError(key, "snappy data ends within its header")
    while position < len(data):
        if len(data) - position < _BLOCK_LENGTH.size:
            raise DamagedError(key, "snappy data ends within a block's length")
        (length,) = _BLOCK_LENGTH.unpack_from(data, position)
        position += _BLOCK_LENGTH.size
        if not 0 < length <= len(data) - position:
            raise DamagedError(key, f"a snappy block of {length} bytes passes its data")
        parts.append(_snappy_block(codec, data[position : position + length], size, limit, key))
        size += len(parts[-1])
        position += length
    return b"".join(parts)


def _snappy_block(codec: pa.Codec, block: memoryview, before: int, limit: int, key: str) -> bytes:
    size = _snappy_size(block)
    if size is None or size > _SNAPPY_EXPANSION_MAX * len(block):
        raise DamagedError(key, "a snappy block claims more data than its bytes can contain")
    if before + size > limit:
        raise _too_much(limit, key)
    if size == 0:
        if len(block) != 1:
            raise DamagedError(key, "a snappy block claims to be empty and is not")
        return b""
    plain: bytes = codec.decompress(block, size, asbytes=True)
    return plain


def _snappy_size(block: memoryview) -> int | None:
    """Return the varint before a block; None if it does not end within 32 bits."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return size if size < 1 << 32 else None
    return None


def _lz4_frame(data: memoryview) -> bytes:
    codec = pa.Codec("lz4_raw")
    parts = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = data[start : start + _LZ4_BLOCK_BYTES]
        block = codec.compress(plain, asbytes=True)
        if len(block) < len(plain):
            parts += (_LZ4_LENGTH.pack(len(block)), block)
        else:
            parts += (_LZ4_LENGTH.pack(len(plain) | _LZ4_STORED), bytes(plain))
    parts.append(_LZ4_LENGTH.pack(0))
    return b"".join(parts)
