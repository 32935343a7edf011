"""Every binary format comes back as it was written, and no bytes make a reader fail otherwise."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from neve.errors import DamagedError, UnsupportedError
from neve.log.segment import bundle, frame, kafscale, kfs, sections
from neve.log.segment.history import History
from neve.log.segment.rebuild import bundle_of, rebuild
from neve.log.segment.sections import Section, StateRow
from neve.log.wal import object as wal
from neve.records.batch import assemble, walk
from neve.records.crc import crc32c
from support import format_samples as samples

i16 = st.integers(-(2**15), 2**15 - 1)
i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
u32 = st.integers(0, 2**32 - 1)
u63 = st.integers(0, 2**63 - 1)
times = st.integers(-1, 2**50)


@st.composite
def batches(draw: st.DrawFn, size_max: int = 12) -> list[bytes]:
    """Ascending batches whose content is opaque; gaps as compaction leaves them."""
    made: list[bytes] = []
    offset = draw(st.integers(0, 2**60))
    for _ in range(draw(st.integers(1, size_max))):
        delta = draw(st.integers(0, 50))
        made.append(
            assemble(
                draw(st.binary(max_size=20)),
                record_count=draw(st.integers(0, delta + 1)),
                last_offset_delta=delta,
                base_offset=offset,
                base_timestamp=draw(times),
                max_timestamp=draw(times),
                leader_epoch=draw(st.integers(-1, 5)),
                producer_id=draw(st.integers(-1, 3)),
                producer_epoch=draw(st.integers(0, 1)),
                base_sequence=draw(st.integers(0, 2**31 - 1)),
                flags=draw(st.sampled_from([0, 0x10])),
            )
        )
        offset += delta + 1 + draw(st.integers(0, 3))
    return made


@st.composite
def slices(draw: st.DrawFn) -> list[tuple[wal.SliceMeta, list[bytes]]]:
    places = draw(
        st.lists(
            st.tuples(st.binary(min_size=16, max_size=16), st.integers(0, 2**31 - 1)),
            min_size=1,
            max_size=6,
            unique=True,
        )
    )
    made = []
    for topic_id, partition in places:
        parts = draw(batches(4))
        headers = [header for _, header in walk(b"".join(parts))]
        meta = wal.SliceMeta(
            topic_id,
            partition,
            draw(i32),
            headers[0].base_offset,
            headers[-1].last_offset,
            max(header.max_timestamp for header in headers),
        )
        made.append((meta, parts))
    return made


@given(slices(), st.booleans(), u63, u63, st.binary(min_size=16, max_size=16), i64)
def test_wal_objects_come_back(
    made: list[tuple[wal.SliceMeta, list[bytes]]],
    rollup: bool,
    incarnation: int,
    number: int,
    author: bytes,
    created_ms: int,
) -> None:
    kind = wal.Kind.ROLLUP if rollup else wal.Kind.DATA
    if rollup:
        made = sorted(made, key=lambda each: each[0][:2])
    place = {"incarnation": incarnation, "number": number}
    data = wal.encode(kind, made, **place, author=author, created_ms=created_ms).data
    found = wal.decode(data, "k", **place, rollup=rollup)
    assert found.header[:5] == (kind, incarnation, number, author, created_ms)
    assert [each[:6] for each in found.slices] == [tuple(meta) for meta, _ in made]
    for each, (_, parts) in zip(found.slices, made, strict=True):
        ranged = wal.slice_bytes(each, data[each.position : each.end], "k")
        assert ranged == b"".join(parts)
    prefix = data[: wal.directory_bytes(found.header)]
    assert wal.decode_directory(prefix, "k", **place, rollup=rollup) == found


@given(batches(), st.integers(1, 60), i64, st.integers(1, 5))
def test_segments_and_bundles_come_back(
    made: list[bytes], interval: int, created_ms: int, parts: int
) -> None:
    history = History("k")
    grouped = [b"".join(made[i : i + parts]) for i in range(0, len(made), parts)]
    base_offset = next(walk(made[0]))[1].base_offset
    built = kfs.build(base_offset, created_ms, grouped, observe=history.observe)
    data = b"".join(built.parts)
    assert len(data) == built.facts.segment_bytes
    assert kfs.check(data, "k").facts == built.facts
    index = bundle_of(built, history, interval)
    assert rebuild(data, "k", interval, producers=(), epochs=()).bundle == index

    found = bundle.decode_bundle(index, "k", len(data))
    found.check_all()
    assert (found.last_offset, found.segment_bytes) == (built.facts.last_offset, len(data))
    assert found.producers == history.producers.entries()
    assert found.epochs == history.epochs.starts
    every = found.stretches(0, kfs.OFFSET_MAX)
    assert found.verify_range(every, data[32:-16], "s") == b"".join(made)
    found.verify_header(data[:32], "s")
    found.verify_footer(data[-16:], "s")
    foreign = bundle.decode_foreign(bytes(found.section(Section.OFFSET) or b""), "k", len(data))
    for mine, theirs in zip(every, foreign.stretches(0, kfs.OFFSET_MAX), strict=True):
        assert theirs == mine._replace(crc=None)
        foreign.verify_stretch(theirs, data[theirs.start : theirs.end], "s")


@given(st.dictionaries(st.binary(max_size=9), st.tuples(st.binary(max_size=9), i64)), st.randoms())
def test_a_table_has_one_encoding_and_comes_back(
    table: dict[bytes, tuple[bytes, int]], order: Random
) -> None:
    rows = [StateRow(key, value, timestamp) for key, (value, timestamp) in table.items()]
    encoded = sections.encode_state(rows)
    order.shuffle(rows)
    assert sections.encode_state(rows) == encoded
    assert sections.decode_state(encoded, "k") == tuple(sorted(rows))


@given(batches(), st.integers(1, 60), times)
def test_a_time_is_found_in_the_stretch_where_a_scan_finds_it(
    made: list[bytes], interval: int, timestamp: int
) -> None:
    base_offset = next(walk(made[0]))[1].base_offset
    segment = kfs.build(base_offset, 0, made)
    data = bundle.build_bundle(segment, interval, producers=(), epochs=())
    found = bundle.decode_bundle(data, "k")
    headers = [header for _, header in walk(b"".join(made))]
    first = next((each for each in headers if each.max_timestamp >= timestamp), None)
    wanted = None if first is None else found.stretch_for(first.base_offset).base_offset
    assert found.offset_for_timestamp(timestamp) == wanted


ascending = st.lists(i64, min_size=1, max_size=20, unique=True).map(sorted)


@given(ascending, ascending)
def test_timestamps_come_back(timestamps: list[int], offsets: list[int]) -> None:
    count = min(len(timestamps), len(offsets))
    columns = (np.array(timestamps[:count], np.int64), np.array(offsets[:count], np.int64))
    payload = sections.encode_timestamps(sections.Timestamps(*columns))
    found = sections.decode_timestamps(payload, "k")
    assert [each.tolist() for each in found] == [each.tolist() for each in columns]


recent = st.builds(sections.RecentBatch, i32, i32, i64, i64, i64)
producer = st.builds(
    sections.ProducerEntry,
    i64, i16, i32, i64, i64, i32, i64,
    st.lists(recent, max_size=sections.RECENT_BATCHES_MAX).map(tuple),
)  # fmt: skip


@given(st.lists(producer, max_size=8, unique_by=lambda each: each.producer_id))
def test_producers_come_back_sorted(made: list[sections.ProducerEntry]) -> None:
    found = sections.decode_producers(sections.encode_producers(made), "k")
    assert found == tuple(sorted(made))


@given(st.lists(st.tuples(i64, i64, i64, i64), max_size=8, unique_by=lambda each: each[2]))
def test_transactions_come_back(rows: list[tuple[int, int, int, int]]) -> None:
    made = tuple(
        sections.AbortedTransaction(a, min(b, c), c, d)
        for a, b, c, d in sorted(rows, key=lambda each: each[2])
    )
    assert sections.decode_transactions(sections.encode_transactions(made), "k") == made


@given(st.dictionaries(i32, i64, max_size=8))
def test_epochs_come_back(starts: dict[int, int]) -> None:
    offsets = sorted(set(starts.values()))
    made = tuple(map(sections.EpochStart, sorted(starts), offsets))
    assert sections.decode_epochs(sections.encode_epochs(made), "k") == made


@given(st.integers(0, 2**64 - 1), i64, u32, u32, u32, st.lists(u32, max_size=20))
def test_checksums_come_back(
    segment_bytes: int, last_offset: int, head: int, foot: int, index: int, crcs: list[int]
) -> None:
    made = sections.Checksums(
        segment_bytes, last_offset, head, foot, index, np.array(crcs, np.int64)
    )
    found = sections.decode_checksums(sections.encode_checksums(made), "k")
    assert found[:-1] == made[:-1]
    assert found.stretch_crcs.tolist() == crcs


DECODERS: list[Callable[[bytes, str], object]] = [
    sections.decode_timestamps,
    sections.decode_transactions,
    sections.decode_producers,
    sections.decode_epochs,
    sections.decode_checksums,
    kafscale.decode_times,
    kfs.check,
    kfs.decode_header,
    kfs.decode_footer,
    bundle.decode_bundle,
    lambda data, key: bundle.decode_foreign(data, key, 1000),
    lambda data, key: wal.decode(data, key, incarnation=5, number=6),
]


@given(
    st.sampled_from(DECODERS), st.binary(max_size=200) | st.binary().map(lambda b: b"\0" * 3 + b)
)
def test_no_bytes_make_a_decoder_fail_in_another_way(
    decode: Callable[[bytes, str], object], data: bytes
) -> None:
    refuses(lambda: decode(data, "k"))


def refuses(read: Callable[[], object]) -> None:
    """Nothing but an answer or a refusal comes out."""
    with contextlib.suppress(DamagedError, UnsupportedError):
        read()


@st.composite
def changes(draw: st.DrawFn, size: int) -> tuple[int, bytes]:
    width = draw(st.sampled_from([1, 2, 4, 8]))
    value = draw(st.sampled_from([0, 1, 2 ** (8 * width) - 1, 2 ** (8 * width - 1)]) | st.none())
    some = draw(st.binary(min_size=width, max_size=width))
    return draw(st.integers(0, size - width)), some if value is None else value.to_bytes(width)


WAL = samples.wal_object()


@given(changes(64 + 3 * 64))
def test_a_wal_object_that_lies_under_right_checksums_is_answered_or_refused(
    change: tuple[int, bytes],
) -> None:
    data = bytearray(WAL)
    position, value = change
    data[position : position + len(value)] = value
    struct.pack_into(">I", data, 60, crc32c(data[:60]))
    struct.pack_into(">I", data, 64 + 3 * 64, crc32c(data[: 64 + 3 * 64]))
    for read in (samples.read_wal_whole, samples.read_wal_by_range):
        refuses(lambda read=read: read(bytes(data), rollup=False))  # type: ignore[misc]


SEGMENT, BUNDLE = samples.pair()
_FOUND = bundle.decode_bundle(BUNDLE, "k")
_PAYLOADS = {kind: bytes(_FOUND.section(kind) or b"") for kind in _FOUND.kinds}


@given(st.data(), st.sampled_from(list(_PAYLOADS)))
def test_a_bundle_that_lies_under_right_checksums_is_answered_or_refused(
    data: st.DataObject, kind: Section
) -> None:
    payloads = dict(_PAYLOADS)
    position, value = data.draw(changes(max(len(payloads[kind]), 8)))
    changed = bytearray(payloads[kind])
    changed[position : position + len(value)] = value
    payloads[kind] = bytes(changed)
    index = payloads.pop(Section.OFFSET)
    checks = bytearray(payloads[Section.CHECKSUM])
    if len(checks) >= 28:
        struct.pack_into(">I", checks, 24, crc32c(index))
    payloads[Section.CHECKSUM] = bytes(checks)
    lying = frame.encode_bundle(index, payloads)

    def read() -> None:
        found = bundle.decode_bundle(lying, "k")
        found.check_all()
        samples.read_segment_by_range(SEGMENT, found)
        found.offset_for_timestamp(1500)

    refuses(read)
