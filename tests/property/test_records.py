"""Records survive every codec and every decoder, and hostile ones are refused by all of ours."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from neve.errors import DamagedError, NeveError
from neve.records import compression
from neve.records.arrow import from_arrow, to_arrow, to_arrow_batches
from neve.records.batch import CRC_END, HEADER_BYTES, assemble, parse_header
from neve.records.reference import Record, build_batch, decode_batch, varint
from support.record_peers import BUILDERS, DECODERS, decode

quick = settings(max_examples=60, deadline=None)
thorough = settings(max_examples=150, deadline=None)

INT64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(-1, 2**42)
BYTES = st.one_of(st.none(), st.binary(max_size=300))
HEADERS = st.lists(st.tuples(st.text(max_size=8), BYTES), max_size=4).map(tuple)
CODECS = st.sampled_from(sorted(compression.CODECS))


@st.composite
def record_lists(draw: st.DrawFn, *, least: int = 1, gaps: bool = False) -> list[Record]:
    contents = draw(st.lists(st.tuples(TIMES, BYTES, BYTES, HEADERS), min_size=least, max_size=7))
    offset = draw(st.integers(0, 2**40))
    records = []
    for content in contents:
        records.append(Record(offset, *content))
        offset += draw(st.integers(1, 1000)) if gaps else 1
    return records


def rows(data: bytes, **options: object) -> list[Record]:
    """What the kernel gives, as records."""
    batch = to_arrow(data, headers=True, unit="ms", **options)
    batch.validate(full=True)
    columns = batch.set_column(1, "timestamp", batch.column("timestamp").cast("int64")).to_pylist()
    return [
        Record(
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or []),
        )
        for row in columns
    ]


@quick
@given(record_lists(), CODECS)
def test_a_batch_comes_back_from_every_decoder(records: list[Record], codec: int) -> None:
    data = build_batch(records, codec=codec)
    assert decode_batch(data) == records
    assert rows(data) == records
    for name, decoder in DECODERS.items():
        assert decode(decoder, data) == records, name


@quick
@given(record_lists(), CODECS)
def test_batches_of_other_clients_are_read(records: list[Record], codec: int) -> None:
    # aiokafka's C builder takes a first timestamp of -1 for none yet, and so writes another.
    numbered = [
        record._replace(offset=index, timestamp=max(record.timestamp, 0))
        for index, record in enumerate(records)
    ]
    for name, build in BUILDERS.items():
        data = build(numbered, codec)
        assert decode(DECODERS[name], data) == numbered, name
        assert decode_batch(data) == numbered, name
        assert rows(data) == numbered, name


@quick
@given(record_lists(gaps=True), CODECS, st.integers(1, 2000), st.data())
def test_arrow_becomes_the_same_records_again(
    records: list[Record], codec: int, batch_bytes_max: int, data: st.DataObject
) -> None:
    given = to_arrow(build_batch(records), headers=True, unit="ms")
    start = data.draw(st.integers(0, len(records) - 1))
    written = b"".join(
        from_arrow(
            given.slice(start), codec=codec, base_offset=None, batch_bytes_max=batch_bytes_max
        )
    )
    assert rows(written) == records[start:]


@quick
@given(record_lists())
def test_the_compiled_encoder_writes_what_the_reference_writes(records: list[Record]) -> None:
    given = to_arrow(build_batch(records), headers=True, unit="ms")
    assert list(from_arrow(given, base_offset=records[0].offset)) == [build_batch(records)]


@quick
@given(record_lists(gaps=True), CODECS, st.data())
def test_offsets_are_filtered(records: list[Record], codec: int, data: st.DataObject) -> None:
    batches = b"".join(
        build_batch(records[start : start + 3], codec=codec) for start in range(0, len(records), 3)
    )
    bounds = st.one_of(st.none(), st.integers(records[0].offset - 2, records[-1].offset + 2))
    low, high = data.draw(bounds), data.draw(bounds)
    wanted = [
        record
        for record in records
        if (low is None or record.offset >= low) and (high is None or record.offset < high)
    ]
    assert rows(batches, from_offset=low, to_offset=high) == wanted


@quick
@given(record_lists(), CODECS, st.integers(1, 5), st.integers(1, 500))
def test_pieces_are_the_whole(
    records: list[Record], codec: int, rows_max: int, bytes_max: int
) -> None:
    batches = b"".join(
        build_batch(records[start : start + 2], codec=codec) for start in range(0, len(records), 2)
    )
    pieces = list(to_arrow_batches(batches, rows_max=rows_max, bytes_max=bytes_max))
    assert all(0 < piece.num_rows <= rows_max for piece in pieces)
    whole = to_arrow(batches)
    assert [row for piece in pieces for row in piece.to_pylist()] == whole.to_pylist()


def agree(data: bytes) -> None:
    """The kernel and the reference give the same records, or both refuse."""
    try:
        expected = [
            record._replace(
                headers=tuple(
                    (name if isinstance(name, str) else name.decode(errors="replace"), value)
                    for name, value in record.headers
                )
            )
            for record in decode_batch(data)
        ]
    except DamagedError:
        with pytest.raises(DamagedError):
            to_arrow(data, headers=True)
        return
    assert rows(data) == expected


@thorough
@given(record_lists(gaps=True), st.data())
def test_damage_behind_a_right_checksum_is_judged_alike(
    records: list[Record], data: st.DataObject
) -> None:
    plain = build_batch(records)
    section = bytearray(plain[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(section) - 1))
        section[position] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([0, 0, 0, 1, 2, 5]))
    header = parse_header(plain)
    agree(
        assemble(
            section[: len(section) - cut],
            record_count=header.record_count + data.draw(st.sampled_from([0, 0, 0, 0, -1, 1])),
            last_offset_delta=header.last_offset_delta,
            base_offset=header.base_offset,
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
        )
    )


HOSTILE = st.one_of(
    INT64.map(varint),
    st.sampled_from([b"\x80" * 4 + b"\x10", b"\xff" * 9 + b"\x02", b"\x80\x00", b"\xff" * 11]),
    st.binary(max_size=6),
)


@thorough
@given(st.lists(HOSTILE, max_size=12), st.integers(0, 3), st.booleans())
@example([varint(2**31 - 1)], 1, False)
@example([varint(-1)], 1, True)
def test_hostile_varints_are_judged_alike(parts: list[bytes], count: int, framed: bool) -> None:
    body = b"\x00" + b"".join(parts)
    section = varint(len(body)) + body if framed else b"".join(parts)
    agree(assemble(section, record_count=count, last_offset_delta=10, base_offset=5))


@quick
@given(st.binary(max_size=200), CODECS)
def test_what_was_never_compressed_is_refused_or_bounded(data: bytes, codec: int) -> None:
    try:
        plain = compression.decompress(codec, data, 1000)
    except DamagedError:
        return
    assert len(plain) <= 1000


@quick
@given(st.binary(max_size=5000), CODECS, st.integers(0, 5000))
def test_the_limit_is_exact(data: bytes, codec: int, limit: int) -> None:
    compressed = compression.compress(codec, data)
    if len(data) <= limit:
        assert bytes(compression.decompress(codec, compressed, limit)) == data
    else:
        with pytest.raises(DamagedError):
            compression.decompress(codec, compressed, limit)


@quick
@given(record_lists(), CODECS, st.data())
def test_a_flipped_bit_is_found(records: list[Record], codec: int, data: st.DataObject) -> None:
    damaged = bytearray(build_batch(records, codec=codec))
    position = data.draw(st.integers(CRC_END - 4, len(damaged) - 1))
    damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    for read in (decode_batch, to_arrow):
        with pytest.raises(NeveError):
            read(bytes(damaged))
