"""Headers of record batches: parsed, checked, patched, walked."""

from __future__ import annotations

import itertools

import pytest

from neve.errors import DamagedError, InvalidError, NeveError, UnsupportedError
from neve.records import batch
from neve.records.crc import crc32c
from neve.records.reference import Record, build_batch, decode_batch

RECORDS = [Record(7, 1000, b"k", b"v"), Record(8, 1005, None, None, (("h", b"1"),))]
OUTSIDE_THE_CHECKSUM = (*range(8), *range(12, 16))


def made(**options: object) -> bytes:
    return build_batch(RECORDS, **options)


def test_the_checksum_takes_every_kind_of_view() -> None:
    data = bytearray(range(256))
    expected = crc32c(bytes(data[10:200]))
    assert crc32c(memoryview(data)[10:200]) == expected
    assert crc32c(memoryview(bytes(data))[10:200]) == expected
    assert crc32c(memoryview(data).toreadonly()[10:200]) == expected
    assert crc32c(data[100:200], crc32c(data[10:100])) == expected
    assert crc32c(b"123456789") == 0xE3069283


def test_a_header_has_its_61_bytes() -> None:
    data = made(
        codec=4,
        producer_id=5,
        producer_epoch=6,
        base_sequence=9,
        leader_epoch=3,
        transactional=True,
    )
    header = batch.check_batch(data)
    assert batch.HEADER_BYTES == 61
    assert header == batch.parse_header(b"xx" + data, 2)
    assert (header.base_offset, header.last_offset, header.next_offset) == (7, 8, 9)
    assert (header.size, header.record_count, header.leader_epoch) == (len(data), 2, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 9)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1005)
    assert (header.codec, header.timestamp_type) == (4, 0)
    assert header.is_transactional
    assert not header.is_control


def test_offset_and_epoch_are_patched_outside_the_checksum() -> None:
    data = bytearray(b"??" + made())
    batch.patch(data, 123_456_789_000, 42, 2)
    header = batch.check_batch(data, 2)
    assert (header.base_offset, header.leader_epoch) == (123_456_789_000, 42)
    assert [record.offset for record in decode_batch(data, 2)] == [123_456_789_000, 123_456_789_001]


def test_log_append_time_is_every_records_time() -> None:
    data = bytearray(made(codec=1))
    told = batch.patch_log_append_time(data, 5555)
    header = batch.check_batch(data)
    assert told == header
    assert (header.timestamp_type, header.max_timestamp) == (1, 5555)
    assert [record.timestamp for record in decode_batch(data)] == [5555, 5555]
    assert [record.value for record in decode_batch(data)] == [b"v", None]


@pytest.mark.parametrize("codec", range(5))
def test_every_flipped_byte_is_found(codec: int) -> None:
    data = made(codec=codec)
    for position in range(len(data)):
        if position in OUTSIDE_THE_CHECKSUM:
            continue
        for flip in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[position] ^= flip
            with pytest.raises(NeveError):
                decode_batch(damaged)


def test_every_cut_is_found() -> None:
    data = made()
    for size in range(len(data)):
        with pytest.raises(DamagedError) as error:
            batch.check_batch(data[:size], key="some/key")
        assert error.value.key == "some/key"


@pytest.mark.parametrize(
    ("magic", "kind"), [(0, UnsupportedError), (1, UnsupportedError), (3, DamagedError)]
)
def test_other_formats_are_named(magic: int, kind: type[NeveError]) -> None:
    data = bytearray(made())
    data[16] = magic
    with pytest.raises(kind, match=f"magic {magic}"):
        batch.check_batch(data)
    with pytest.raises(kind, match=f"magic {magic}"):
        batch.check_batch(data[:30])


def test_a_produced_batch_is_counted() -> None:
    batch.check_produced(made())
    with pytest.raises(InvalidError, match="2 records"):
        batch.check_produced(made(last_offset_delta=2))
    with pytest.raises(InvalidError, match="0 records"):
        batch.check_produced(build_batch([], base_offset=0))
    with pytest.raises(InvalidError, match="control"):
        batch.check_produced(made(control=True))
    with pytest.raises(DamagedError):
        batch.check_produced(made()[:-1] + b"?")


def test_an_unknown_codec_is_unsupported() -> None:
    data = bytearray(made())
    data[22] = 5
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    with pytest.raises(UnsupportedError, match="codec 5"):
        batch.check_produced(data)
    with pytest.raises(UnsupportedError, match="codec 5"):
        decode_batch(data)


def test_a_walk_stays_within_its_bounds() -> None:
    one, two = made(), made(codec=2)
    found = [(position, header.codec) for position, header in batch.walk(one + two)]
    assert found == [(0, 0), (len(one), 2)]
    with pytest.raises(DamagedError):
        list(batch.walk(one + two[:-1]))
    for length in (-(2**31), -1, 0, 48, 2**31 - 1):
        hostile = bytearray(one)
        hostile[8:12] = length.to_bytes(4, "big", signed=True)
        with pytest.raises(DamagedError):
            list(batch.walk(hostile))


SIZES = (10, batch.LARGE_BATCH_BYTES - 62, batch.LARGE_BATCH_BYTES, 3 * batch.LARGE_BATCH_BYTES)


@pytest.mark.parametrize("order", list(itertools.permutations(SIZES)))
def test_checksums_of_batches_are_put_together(order: tuple[int, ...]) -> None:
    data = b"".join(build_batch([Record(0, 0, None, bytes(size))]) for size in order)
    assert batch.batches_crc(data) == crc32c(data)
    assert batch.batches_crc(memoryview(data), crc32c(b"before")) == crc32c(b"before" + data)


def test_a_damaged_large_batch_does_not_match_what_is_put_together() -> None:
    data = bytearray(build_batch([Record(0, 0, None, bytes(2 * batch.LARGE_BATCH_BYTES))]))
    sound = batch.batches_crc(data)
    for position in (0, 12, batch.CRC_END, len(data) - 1):
        data[position] ^= 1
        assert crc32c(data) != sound
        assert batch.batches_crc(data) == sound or position < batch.CRC_END
        data[position] ^= 1


def test_what_only_looks_like_a_large_batch_is_read() -> None:
    data = bytearray(build_batch([Record(0, 0, None, bytes(2 * batch.LARGE_BATCH_BYTES))]))
    for cut in (len(data) - 1, batch.LARGE_BATCH_BYTES):
        assert batch.batches_crc(data[:cut]) == crc32c(data[:cut])
    data[16] = 1
    assert batch.batches_crc(data) == crc32c(data)
