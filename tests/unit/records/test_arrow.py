"""Record batches to Arrow and back: types, nulls, bounds, and damage."""

from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from neve.errors import DamagedError, InvalidError, NeveError
from neve.records import kernel
from neve.records.arrow import (
    Part,
    from_arrow,
    parts_to_arrow_batches,
    schema,
    to_arrow,
    to_arrow_batches,
)
from neve.records.batch import assemble, parse_header, patch_log_append_time, walk
from neve.records.reference import Record, build_batch, decode_batch, encode_record
from support.record_peers import DECODERS, decode

CODECS = range(5)
RECORDS = [
    Record(10, 1_700_000_000_000, b"k", b"v", (("a", b"1"), ("b", None), ("a", b""))),
    Record(11, 1_700_000_000_005, None, b""),
    Record(12, 1_600_000_000_000, b"", None, (("ü", b"\xff"),)),
]


def test_columns_have_the_types_that_spark_expects() -> None:
    batch = to_arrow(build_batch(RECORDS), headers=True)
    assert batch.schema.names == [
        "offset",
        "timestamp",
        "timestamp_type",
        "key",
        "value",
        "headers",
    ]
    assert batch.schema.types == [
        pa.int64(),
        pa.timestamp("us", tz="UTC"),
        pa.int32(),
        pa.binary(),
        pa.binary(),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    ]
    assert all(field.nullable for field in batch.schema)


@pytest.mark.parametrize("codec", CODECS)
def test_every_field_arrives(codec: int) -> None:
    batch = to_arrow(build_batch(RECORDS, codec=codec), headers=True)
    batch.validate(full=True)
    assert batch.column("offset").to_pylist() == [10, 11, 12]
    assert batch.column("key").to_pylist() == [b"k", None, b""]
    assert batch.column("value").to_pylist() == [b"v", b"", None]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [
        record.timestamp * 1000 for record in RECORDS
    ]
    assert batch.column("timestamp").to_pylist()[0] == datetime.datetime(
        2023, 11, 14, 22, 13, 20, tzinfo=datetime.UTC
    )
    assert batch.column("headers").to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "b", "value": None}, {"key": "a", "value": b""}],
        None,
        [{"key": "ü", "value": b"\xff"}],
    ]


@pytest.mark.parametrize("records", [RECORDS, RECORDS[:1], RECORDS[1:]])
def test_the_order_of_columns_does_not_change_them(records: list[Record]) -> None:
    names = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
    expected = to_arrow(build_batch(records), columns=names)
    backwards = to_arrow(build_batch(records), columns=names[::-1])
    assert backwards.select(names).equals(expected)


def test_only_the_columns_asked_for_are_made() -> None:
    batch = to_arrow(build_batch(RECORDS), columns=("value", "offset"))
    assert batch.schema.names == ["value", "offset"]
    assert batch.to_pydict() == {"value": [b"v", b"", None], "offset": [10, 11, 12]}
    with pytest.raises(InvalidError, match="colour"):
        to_arrow(build_batch(RECORDS), columns=("colour",))
    with pytest.raises(InvalidError, match="'s'"):
        schema(unit="s")


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_reaches_every_reader(codec: int) -> None:
    data = build_batch(RECORDS, codec=codec, log_append_time=77)
    batch = to_arrow(data, unit="ms")
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [77, 77, 77]
    assert batch.column("timestamp_type").to_pylist() == [1, 1, 1]
    for name, decoder in DECODERS.items():
        assert [record.timestamp for record in decode(decoder, data)] == [77, 77, 77], name
    patched = bytearray(build_batch(RECORDS, codec=codec))
    patch_log_append_time(patched, 77)
    assert to_arrow(patched, unit="ms").equals(batch)


def test_a_time_that_does_not_fit_is_null() -> None:
    nanoseconds_by_mistake = 1_700_000_000_000_000_000
    data = build_batch([Record(0, nanoseconds_by_mistake, b"", b""), Record(1, -1, b"", b"")])
    assert to_arrow(data).column("timestamp").null_count == 1
    assert to_arrow(data).column("timestamp").cast(pa.int64()).to_pylist() == [None, -1000]
    exact = to_arrow(data, unit="ms").column("timestamp").cast(pa.int64())
    assert exact.to_pylist() == [nanoseconds_by_mistake, -1]


def test_every_time_fits_milliseconds() -> None:
    times = [-(2**63), -1, 2**63 - 1]
    data = b"".join(build_batch([Record(n, time, b"", b"")]) for n, time in enumerate(times))
    assert to_arrow(data, unit="ms").column("timestamp").cast(pa.int64()).to_pylist() == times
    assert to_arrow(data, unit="us").column("timestamp").null_count == 2


@pytest.mark.parametrize("codec", CODECS)
def test_empty_batches_are_empty_for_all(codec: int) -> None:
    """Compaction leaves a header whose offsets are taken and whose records are gone."""
    header = parse_header(build_batch([], base_offset=5, last_offset_delta=9))
    assert (header.record_count, header.next_offset) == (0, 15)
    data = bytearray(build_batch([], base_offset=5, last_offset_delta=9))
    assert decode_batch(data) == []
    assert to_arrow(data).num_rows == 0
    for name, decoder in DECODERS.items():
        assert decode(decoder, bytes(data)) == [], name
    around = build_batch(RECORDS[:1], base_offset=4, codec=codec)
    behind = build_batch([RECORDS[0]._replace(offset=20)], codec=codec)
    assert to_arrow(bytes(data) + behind).column("offset").to_pylist() == [20]
    with pytest.raises(DamagedError, match="follows"):
        to_arrow(around + bytes(data))


@pytest.mark.parametrize("codec", CODECS)
def test_control_batches_are_left_out(codec: int) -> None:
    commit = Record(13, 5, b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00")
    marker = build_batch([commit], control=True, transactional=True, codec=codec)
    data = build_batch(RECORDS, codec=codec, transactional=True) + marker
    assert to_arrow(data).column("offset").to_pylist() == [10, 11, 12]
    assert decode_batch(marker) == [commit]
    for name, decoder in DECODERS.items():
        assert decoder(marker).is_control_batch
        assert decode(decoder, marker) == [commit], name


def test_batches_may_be_left_out_by_their_header() -> None:
    data = build_batch(RECORDS[:1], producer_id=1) + build_batch(RECORDS[1:], producer_id=2)
    kept = to_arrow(data, keep=lambda header: header.producer_id == 2)
    assert kept.column("offset").to_pylist() == [11, 12]


def test_offsets_from_inclusive_to_exclusive() -> None:
    data = build_batch(RECORDS[:2]) + build_batch(RECORDS[2:])
    assert to_arrow(data, from_offset=11, to_offset=12).column("offset").to_pylist() == [11]
    assert to_arrow(data, from_offset=13).num_rows == 0
    assert to_arrow(data, to_offset=10).num_rows == 0
    assert to_arrow(b"").schema == schema()


def test_pieces_have_bounds() -> None:
    records = [Record(offset, 0, None, b"x" * 100) for offset in range(60)]
    data = b"".join(build_batch(records[start : start + 20]) for start in (0, 20, 40))
    assert [piece.num_rows for piece in to_arrow_batches(data)] == [60]
    assert [piece.num_rows for piece in to_arrow_batches(data, rows_max=40)] == [40, 20]
    assert [piece.num_rows for piece in to_arrow_batches(data, rows_max=15)] == [15, 5] * 3
    assert [piece.num_rows for piece in to_arrow_batches(data, bytes_max=1)] == [20, 20, 20]


def test_header_keys_that_are_not_utf8_get_replacement_characters() -> None:
    data = build_batch([Record(0, 0, None, None, ((b"a\xffb", b"1"), ("ok", b"2")))])
    batch = to_arrow(data, headers=True)
    batch.validate(full=True)
    assert [header["key"] for header in batch.column("headers")[0].as_py()] == ["a\ufffdb", "ok"]
    assert decode_batch(data)[0].headers[0][0] == b"a\xffb"


@pytest.mark.parametrize("codec", CODECS)
def test_a_count_that_contradicts_the_content_is_damage(codec: int) -> None:
    section = b"".join(encode_record(record, 10, 0) for record in RECORDS)
    for count in (0, 1, 2, 4, 1000, 2**31 - 1):
        data = assemble(
            section, record_count=count, last_offset_delta=2**31 - 1, base_offset=10, codec=codec
        )
        for read in (decode_batch, to_arrow):
            with pytest.raises(DamagedError):
                read(data)


@pytest.mark.parametrize("codec", CODECS)
def test_records_before_one_that_contradicts_itself_are_given(codec: int) -> None:
    section = b"".join(encode_record(record, 10, 0) for record in RECORDS)
    wrong = assemble(section, record_count=4, last_offset_delta=9, base_offset=10, codec=codec)
    before = [Record(offset, 0, None, b"v") for offset in range(10)]
    parts = [
        Part(build_batch(before[:5], codec=codec), 0, 5, "one"),
        Part(build_batch(before[5:], codec=codec) + wrong, 5, 20, "two"),
        Part(build_batch([Record(20, 0, None, b"v")]), 20, 21, "three"),
    ]
    batches = parts_to_arrow_batches(parts, columns=("offset",))
    found: list[pa.RecordBatch] = []
    with pytest.raises(DamagedError, match=r"two is damaged.*the batch at offset 10"):
        found.extend(batches)
    assert pa.Table.from_batches(found).column("offset").to_pylist() == list(range(10))


def test_damage_is_named_with_its_object() -> None:
    data = bytearray(build_batch(RECORDS))
    data[-1] ^= 1
    with pytest.raises(DamagedError, match=r"a/b\.kfs is damaged: the batch at 0 has checksum"):
        to_arrow(data, key="a/b.kfs")


@pytest.mark.parametrize("codec", CODECS)
def test_every_flip_and_cut_of_two_batches_is_found(codec: int) -> None:
    first, second = build_batch(RECORDS[:2], codec=codec), build_batch(RECORDS[2:], codec=codec)
    data = first + second
    for position in range(len(data)):
        within = position if position < len(first) else position - len(first)
        if within < 8 or 12 <= within < 16:
            continue
        damaged = bytearray(data)
        damaged[position] ^= 0x55
        with pytest.raises(NeveError):
            to_arrow(damaged)
    for size in set(range(1, len(data))) - {len(first)}:
        with pytest.raises(DamagedError):
            to_arrow(data[:size])


def test_writers_choose_batches_and_sequences() -> None:
    rows = to_arrow(build_batch([Record(i, i, None, b"x" * 50) for i in range(10)]))
    data = b"".join(
        from_arrow(
            rows,
            base_offset=100,
            producer_id=7,
            producer_epoch=1,
            base_sequence=2**31 - 4,
            leader_epoch=3,
            transactional=True,
            batch_bytes_max=130,
        )
    )
    headers = [header for _, header in walk(data)]
    assert [header.base_offset for header in headers] == [100, 102, 104, 106, 108]
    assert [header.base_sequence for header in headers] == [2**31 - 4, 2**31 - 2, 0, 2, 4]
    assert all(header.is_transactional and header.leader_epoch == 3 for header in headers)
    assert [header.max_timestamp for header in headers] == [1, 3, 5, 7, 9]


def test_writers_take_text_and_refuse_what_is_no_record() -> None:
    rows = pa.record_batch({"key": ["ä", None], "value": pa.array([b"1", b"2"], pa.large_binary())})
    (data,) = from_arrow(rows)
    assert [(record.key, record.value) for record in decode_batch(data)] == [
        ("ä".encode(), b"1"),
        (None, b"2"),
    ]
    assert [record.timestamp for record in decode_batch(data)] == [-1, -1]
    for bad, name in (
        (pa.record_batch({"value": [1]}), "value"),
        (pa.record_batch({"topic": ["t"]}), "topic"),
        (pa.record_batch({"timestamp": ["now"]}), "timestamp"),
        (pa.record_batch({"headers": [["a"]]}), "headers"),
    ):
        with pytest.raises(InvalidError, match=name):
            list(from_arrow(bad))
    with pytest.raises(InvalidError, match="must be increasing"):
        list(from_arrow(pa.record_batch({"offset": [2, 1], "key": [b"", b""]}), base_offset=None))


def test_nothing_is_compiled_after_the_import() -> None:
    kernel.warm_up()
    for function in (kernel.scan, kernel.copy, kernel.walk, kernel.fill_headers):
        assert len(function.signatures) == 1
        assert not function._can_compile
