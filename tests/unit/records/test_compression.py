"""Codecs: other libraries read ours, ours reads theirs, and no input allocates without bound."""

from __future__ import annotations

import gzip
import struct
import tracemalloc

import cramjam
import lz4.frame
import pyarrow as pa
import pytest
import zstandard
from aiokafka import codec as aiokafka_codec

from neve.errors import DamagedError, UnsupportedError
from neve.records import compression
from neve.records.compression import GZIP, LZ4, SNAPPY, ZSTD, compress, decompress

PLAIN = [b"", b"a", b"abc" * 50_000, bytes(range(256)) * 700, bytes(1 << 20)]
COMPRESSED = (GZIP, SNAPPY, LZ4, ZSTD)


@pytest.mark.parametrize("plain", PLAIN, ids=len)
@pytest.mark.parametrize("codec", compression.CODECS)
def test_what_goes_in_comes_out(codec: int, plain: bytes) -> None:
    assert bytes(decompress(codec, memoryview(bytes(compress(codec, memoryview(plain)))))) == plain


@pytest.mark.parametrize("plain", PLAIN[1:], ids=len)
def test_other_libraries_read_ours(plain: bytes) -> None:
    assert gzip.decompress(compress(GZIP, plain)) == plain
    assert aiokafka_codec.snappy_decode(compress(SNAPPY, plain)) == plain
    assert lz4.frame.decompress(compress(LZ4, plain)) == plain
    assert zstandard.ZstdDecompressor().decompress(compress(ZSTD, plain)) == plain


def test_lz4_blocks_are_independent_as_the_java_client_demands() -> None:
    info = lz4.frame.get_frame_info(bytes(compress(LZ4, PLAIN[2])))
    assert not info["block_linked"]


@pytest.mark.parametrize("plain", PLAIN, ids=len)
def test_theirs_are_read(plain: bytes) -> None:
    assert decompress(GZIP, gzip.compress(plain)) == plain
    assert decompress(SNAPPY, aiokafka_codec.snappy_encode(plain)) == plain
    assert decompress(LZ4, lz4.frame.compress(plain, store_size=True)) == plain
    assert decompress(LZ4, bytes(cramjam.lz4.compress(plain))) == plain
    assert decompress(ZSTD, zstandard.ZstdCompressor().compress(plain)) == plain
    streamed = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    assert decompress(ZSTD, streamed.compress(plain) + streamed.flush()) == plain


def test_bare_snappy_is_read() -> None:
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(PLAIN[2]))) == PLAIN[2]


def test_members_and_frames_follow_each_other() -> None:
    assert decompress(GZIP, gzip.compress(b"one") + gzip.compress(b"two")) == b"onetwo"
    frames = zstandard.ZstdCompressor().compress(b"one") + zstandard.ZstdCompressor().compress(
        b"two"
    )
    assert decompress(ZSTD, frames) == b"onetwo"


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_cut_never_gives_the_whole(codec: int) -> None:
    whole = bytes(compress(codec, PLAIN[2]))
    for size in range(0, len(whole), 7):
        try:
            assert len(decompress(codec, whole[:size])) < len(PLAIN[2])
        except DamagedError:
            continue


@pytest.mark.parametrize("codec", COMPRESSED)
def test_what_follows_the_end_is_damage(codec: int) -> None:
    with pytest.raises(DamagedError):
        decompress(codec, bytes(compress(codec, b"some data")) + b"\x01\x02\x03")


@pytest.mark.parametrize("codec", COMPRESSED)
def test_a_bomb_is_stopped_at_the_limit(codec: int) -> None:
    bomb = bytes(compress(codec, bytes(64 << 20)))
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        with pytest.raises(DamagedError, match="more than 1000000 bytes"):
            decompress(codec, bomb, 1_000_000, key="topic/segment")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000
    assert pa.total_allocated_bytes() - before < 4_000_000


def test_lengths_that_lie_do_not_allocate() -> None:
    claims_4_gib = b"\xff\xff\xff\xff\x0f" + b"abc"
    xerial = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for hostile in (
        claims_4_gib,
        b"\xff" * 8,
        xerial + struct.pack(">i", len(claims_4_gib)) + claims_4_gib,
        xerial + struct.pack(">i", 2**31 - 1) + b"abc",
        xerial + struct.pack(">i", -1) + b"abc",
        xerial + b"\x00\x00",
        xerial[:12],
    ):
        with pytest.raises(DamagedError):
            decompress(SNAPPY, hostile)
    # A zstd frame of one segment that says it holds 2**60 bytes.
    with pytest.raises(DamagedError):
        decompress(
            ZSTD, b"\x28\xb5\x2f\xfd\xe0" + (1 << 60).to_bytes(8, "little") + b"\x01\x00\x00"
        )


def test_an_unknown_codec_is_refused() -> None:
    for call in (compress, decompress):
        with pytest.raises(UnsupportedError, match="codec 6"):
            call(6, b"")
