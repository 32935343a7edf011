"""From batches to records and Arrow: both decoders, every filter."""

from __future__ import annotations

import pyarrow as pa
import pytest

from neve.bucket.decode import COLUMNS, RecordDecoder, arrow_schema, decode_arrow
from neve.bucket.model import PartitionName, Record, Selection
from neve.errors import DamagedError, InvalidError
from neve.log.reading.record_chunk import RecordChunk
from neve.records import reference
from neve.records.reference import build_batch
from support.format_samples import marker

NAME = PartitionName("t", 7)


def batch(first: int, count: int, **options: object) -> bytes:
    rows = [
        reference.Record(
            first + i,
            1000 + first + i,
            None if i == 0 else b"k%d" % i,
            None if i == 1 else b"v%d" % (first + i),
            (("h", b"x"), ("h", None)) if i == 2 else (),
        )
        for i in range(count)
    ]
    return build_batch(rows, **options)  # type: ignore[arg-type]


DATA = batch(10, 5) + batch(15, 5, codec=4) + marker(20, 1, abort=True) + batch(21, 4, codec=1)


def chunk(first: int = 0, end: int = 1000, data: bytes = DATA) -> RecordChunk:
    return RecordChunk([memoryview(data)], len(data), first, end, "key")


def decode(selection: Selection, *pieces: RecordChunk, plain: bool) -> list[Record]:
    decoder = RecordDecoder(plain_bytes_max=10**9 if plain else 0)
    return [row for rows in decoder.decode(NAME, pieces, selection) for row in rows]


@pytest.mark.parametrize("plain", [True, False])
def test_records_are_whole(plain: bool) -> None:
    rows = decode(Selection(), chunk(), plain=plain)
    assert [row.offset for row in rows] == [*range(10, 20), *range(21, 25)]
    assert rows[0] == Record("t", 7, 10, 1010, 0, None, b"v10")
    assert rows[1] == Record("t", 7, 11, 1011, 0, b"k1", None)
    assert rows[2].headers == (("h", b"x"), ("h", None))


@pytest.mark.parametrize(
    ("first", "end", "selection"),
    [
        (0, 1000, Selection()),
        (12, 23, Selection()),
        (17, 17, Selection()),
        (0, 1000, Selection(from_timestamp=1013)),
        (0, 1000, Selection(to_timestamp=1018)),
        (11, 24, Selection(from_timestamp=1012, to_timestamp=1022)),
        (0, 1000, Selection(from_timestamp=5000)),
    ],
)
def test_both_decoders_and_arrow_agree(first: int, end: int, selection: Selection) -> None:
    piece = chunk(first, end)
    plain, compiled = (decode(selection, piece, plain=plain) for plain in (True, False))
    assert plain == compiled
    wanted = [
        offset
        for offset in [*range(10, 20), *range(21, 25)]
        if first <= offset < end and selection.includes(1000 + offset)
    ]
    assert [row.offset for row in plain] == wanted
    rows = [
        row for each in decode_arrow(NAME, [piece], selection, COLUMNS) for row in each.to_pylist()
    ]
    assert [row["offset"] for row in rows] == wanted
    assert [row["value"] for row in rows] == [row.value for row in plain]


@pytest.mark.parametrize("plain", [True, False])
def test_a_header_key_that_is_not_text_stays_bytes(plain: bool) -> None:
    rows = [
        reference.Record(0, 1, b"k", b"v", ((b"\xff\xfe", b"1"), ("\ufffd", b"2"))),
        reference.Record(1, 2, b"k", b"v", ()),
    ]
    found = decode(Selection(), chunk(data=build_batch(rows)), plain=plain)
    assert found[0].headers == ((b"\xff\xfe", b"1"), ("\ufffd", b"2"))
    assert len(found) == 2
    around = [chunk(0, 2, build_batch(rows)), chunk(2, 5, batch(2, 3)), chunk(5, 6, batch(5, 3))]
    found = decode(Selection(), *around, plain=plain)
    assert [row.offset for row in found] == [0, 1, 2, 3, 4, 5]
    assert found[0].headers == ((b"\xff\xfe", b"1"), ("\ufffd", b"2"))


@pytest.mark.parametrize("plain", [True, False])
def test_damage_far_behind_such_a_header_hides_nothing(plain: bool) -> None:
    odd = build_batch([reference.Record(0, 1, b"k", b"v", ((b"\xff", b"1"),))])
    between = b"".join(batch(at, 1) for at in range(1, 4))
    data = odd + between + batch(4, 1)[:-1]
    decoder = RecordDecoder(plain_bytes_max=10**9 if plain else 0)
    found: list[Record] = []
    with pytest.raises(DamagedError):
        found.extend(
            row for rows in decoder.decode(NAME, [chunk(data=data)], Selection()) for row in rows
        )
    assert [row.offset for row in found] == [0, 1, 2, 3]


@pytest.mark.parametrize("plain", [True, False])
def test_chunks_that_are_decoded_together_give_each_its_own_offsets(plain: bool) -> None:
    pieces = [chunk(10, 13), chunk(13, 17), chunk(21, 23)]  # each holds more than is wanted of it
    rows = decode(Selection(), *pieces, plain=plain)
    assert [row.offset for row in rows] == [*range(10, 17), 21, 22]
    arrow = list(decode_arrow(NAME, pieces, Selection(), ("offset", "value")))
    assert len(arrow) == 1
    assert [row["offset"] for row in arrow[0].to_pylist()] == [row.offset for row in rows]
    assert [row["value"] for row in arrow[0].to_pylist()] == [row.value for row in rows]


def test_log_append_time_is_told() -> None:
    data = batch(0, 2, log_append_time=99)
    rows = decode(Selection(), chunk(data=data), plain=True)
    assert [(row.timestamp, row.timestamp_type) for row in rows] == [(99, 1), (99, 1)]


def test_arrow_columns_are_as_asked() -> None:
    found = list(
        decode_arrow(NAME, [chunk()], Selection(from_timestamp=1012), ("partition", "value"))
    )
    assert all(each.schema == arrow_schema(("partition", "value")) for each in found)
    assert sum(each.num_rows for each in found) == 12
    (topics,) = decode_arrow(NAME, [chunk(10, 12)], Selection(), ("topic",))
    assert topics.to_pylist() == [{"topic": "t"}, {"topic": "t"}]
    with pytest.raises(InvalidError, match="no column 'colour'"):
        arrow_schema(("colour",))


@pytest.mark.parametrize("plain", [True, False])
def test_a_damaged_batch_gives_no_record(plain: bool) -> None:
    data = bytearray(DATA)
    data[70] ^= 1
    with pytest.raises(DamagedError, match="key is damaged"):
        decode(Selection(), chunk(data=bytes(data)), plain=plain)


@pytest.mark.parametrize("plain", [True, False])
def test_what_lies_before_damage_is_given_and_the_damaged_object_named(plain: bool) -> None:
    damaged = bytearray(DATA)
    damaged[-1] ^= 1
    pieces = [
        chunk(10, 15)._replace(key="one"),
        chunk(15, 1000, bytes(damaged))._replace(key="two"),
        chunk(1000, 1005, batch(1000, 5))._replace(key="three"),
    ]
    decoder = RecordDecoder(plain_bytes_max=10**9 if plain else 0)
    source = decoder.decode(NAME, pieces, Selection())
    found: list[Record] = []
    with pytest.raises(DamagedError, match="two is damaged"):
        found.extend(row for rows in source for row in rows)
    assert [row.offset for row in found] == list(range(10, 20))


MOST_MICROS = 2**63 // 1000
"""The latest timestamp in milliseconds that fits microseconds."""
ODD_TIMES = [-(2**63), -MOST_MICROS - 1, -MOST_MICROS, -1, 0, 1000, MOST_MICROS]
ODD_TIMES += [MOST_MICROS + 1, 1_790_000_000_000_000_000, 2**63 - 1]
ODD_BOUNDS = [None, -(2**70), *ODD_TIMES, 10**16, 2**63, 2**70]


@pytest.mark.parametrize("first", ODD_BOUNDS)
@pytest.mark.parametrize("end", ODD_BOUNDS)
def test_any_time_and_any_bound_of_time(first: int | None, end: int | None) -> None:
    """Some times do not fit microseconds, and some bounds are beyond all times."""
    data = b"".join(
        build_batch([reference.Record(offset, time, None, b"v")])
        for offset, time in enumerate(ODD_TIMES)
    )
    selection = Selection(from_timestamp=first, to_timestamp=end)
    wanted = [(offset, time) for offset, time in enumerate(ODD_TIMES) if selection.includes(time)]
    for plain in (True, False):
        rows = decode(selection, chunk(data=data), plain=plain)
        assert [(row.offset, row.timestamp) for row in rows] == wanted
    micros: list[tuple[int, int | None]] = []
    for each in decode_arrow(NAME, [chunk(data=data)], selection, ("offset", "timestamp")):
        times = each.column("timestamp").cast(pa.int64())
        micros += zip(each.column("offset").to_pylist(), times.to_pylist(), strict=True)
    assert micros == [
        (offset, 1000 * time if -MOST_MICROS <= time <= MOST_MICROS else None)
        for offset, time in wanted
    ]
