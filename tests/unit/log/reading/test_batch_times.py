"""Where in one batch a time is, also in one that was made to take up all memory."""

from __future__ import annotations

import tracemalloc

import pytest

from neve.errors import DamagedError
from neve.log.reading.leader.batch_times import DECOMPRESSED_BYTES_MAX, RECORDS_MAX, Timed
from neve.log.reading.leader.batch_times import first_from as first_from_header
from neve.log.reading.leader.batch_times import youngest as youngest_of_header
from neve.records.batch import assemble, parse_header
from neve.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from neve.records.reference import Record, build_batch

TIMES = (1_000, 3_000, 2_000, 3_000)


def first_from(batch: bytes, timestamp: int, start: int = 0) -> Timed | None:
    return first_from_header(parse_header(batch), memoryview(batch), timestamp, start, "test")


def youngest(batch: bytes, start: int = 0) -> Timed | None:
    return youngest_of_header(parse_header(batch), memoryview(batch), start, "test")


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4, ZSTD])
def test_a_record_is_found_by_its_time(codec: int) -> None:
    records = [Record(10 + at, time, None, b"v") for at, time in enumerate(TIMES)]
    batch = build_batch(records, codec=codec)
    assert first_from(batch, 1_500) == Timed(11, 3_000)
    assert first_from(batch, 0, start=12) == Timed(12, 2_000)
    assert first_from(batch, 3_001) is None
    assert youngest(batch) == Timed(11, 3_000)
    assert youngest(batch, start=12) == Timed(13, 3_000)


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
def test_a_batch_that_decompresses_to_very_much_is_answered_by_where_it_begins(codec: int) -> None:
    large = bytes(8 * DECOMPRESSED_BYTES_MAX)
    batch = build_batch([Record(10, 1_000, None, b""), Record(11, 5_000, None, large)], codec=codec)
    assert len(batch) < DECOMPRESSED_BYTES_MAX // 20
    tracemalloc.start()
    assert first_from(batch, 4_000) == Timed(10, 5_000)
    assert first_from(batch, 4_000, start=11) == Timed(11, 5_000)
    assert youngest(batch) == Timed(10, 5_000)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 3 * DECOMPRESSED_BYTES_MAX


def test_so_is_one_that_says_it_has_very_many_records() -> None:
    count = RECORDS_MAX + 1
    batch = assemble(
        b"", record_count=count, last_offset_delta=count - 1, base_offset=10, max_timestamp=5_000
    )
    assert first_from(batch, 1_000) == Timed(10, 5_000)
    assert youngest(batch) == Timed(10, 5_000)


def test_one_whose_bytes_cannot_hold_its_records_is_told() -> None:
    batch = assemble(b"\x00" * 6, record_count=1, last_offset_delta=0, max_timestamp=5_000)
    with pytest.raises(DamagedError, match="cannot hold"):
        first_from(batch, 1_000)
