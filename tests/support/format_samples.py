"""Small objects of every binary format, and readers that take bytes as a store returns them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from neve.log.segment import bundle, kfs
from neve.log.segment.history import History
from neve.log.segment.rebuild import bundle_of
from neve.log.segment.sections import StateRow
from neve.log.wal import object as wal
from neve.records.batch import check_batch
from neve.records.reference import Record, build_batch

AUTHOR = bytes(range(16))
TOPIC_A, TOPIC_B = b"A" * 16, b"B" * 16
INTERVAL = 3


def batch(base_offset: int, count: int = 2, *, timestamp: int = 1000, **options: object) -> bytes:
    """A batch of `count` records, one millisecond apart."""
    options.setdefault("leader_epoch", 4)
    records = [
        Record(base_offset + i, timestamp + i, b"k%d" % i, b"v%d" % (base_offset + i))
        for i in range(count)
    ]
    return build_batch(records, **options)  # type: ignore[arg-type]


def marker(offset: int, producer_id: int, *, abort: bool, epoch: int = 0) -> bytes:
    """A control batch that ends a transaction."""
    key = struct.pack(">hh", 0, 0 if abort else 1)
    value = struct.pack(">hi", 0, 9)
    return build_batch(
        [Record(offset, 5000 + offset, key, value)],
        producer_id=producer_id,
        producer_epoch=epoch,
        transactional=True,
        control=True,
        leader_epoch=4,
    )


def segment_batches() -> list[bytes]:
    """Batches with plain, idempotent and transactional producers, two epochs, and an abort."""
    return [
        batch(100, 2, timestamp=1000, leader_epoch=3),
        batch(102, 2, timestamp=900, producer_id=7, producer_epoch=0, base_sequence=0),
        batch(
            104,
            1,
            timestamp=2000,
            producer_id=8,
            producer_epoch=1,
            base_sequence=5,
            transactional=True,
        ),
        marker(105, 8, abort=True, epoch=1),
        batch(106, 3, timestamp=1500, producer_id=7, producer_epoch=0, base_sequence=2),
    ]


STATE_BEFORE = (StateRow(b"state", b"kept", 5), StateRow(b"k0", b"replaced", 6))


def pair(state: Sequence[StateRow] | None = STATE_BEFORE) -> tuple[bytes, bytes]:
    """A segment and its bundle; `state` is the table before it."""
    history = History("k", state=state)
    segment = kfs.build(100, 77, segment_batches(), observe=history.observe)
    return b"".join(segment.parts), bundle_of(segment, history, INTERVAL)


def foreign_index(segment: bytes) -> bytes:
    """The same index as KafScale would have written it: without anything behind the entries."""
    full = bundle.decode_bundle(pair()[1], "k", len(segment))
    return bytes(full.section(bundle.Section.OFFSET) or b"")


def slice_of(topic_id: bytes, partition: int, *batches: bytes) -> tuple[wal.SliceMeta, list[bytes]]:
    headers = [check_batch(each) for each in batches]
    meta = wal.SliceMeta(
        topic_id,
        partition,
        headers[0].leader_epoch,
        headers[0].base_offset,
        headers[-1].last_offset,
        max(header.max_timestamp for header in headers),
    )
    return meta, list(batches)


def wal_slices() -> list[tuple[wal.SliceMeta, list[bytes]]]:
    return [
        slice_of(TOPIC_A, 0, batch(10), batch(12, 1)),
        slice_of(TOPIC_A, 1, batch(0, timestamp=7)),
        slice_of(TOPIC_B, 0, batch(2**40, 1)),
    ]


def wal_object(kind: wal.Kind = wal.Kind.DATA, number: int = 6) -> bytes:
    slices = [] if kind is wal.Kind.SEAL else wal_slices()
    encoded = wal.encode(kind, slices, incarnation=5, number=number, author=AUTHOR, created_ms=1234)
    return bytes(encoded.data)


def read_wal_whole(data: bytes, *, rollup: bool) -> object:
    found = wal.decode(data, "k", incarnation=5, number=6, rollup=rollup)
    bodies = [data[each.position : each.end] for each in found.slices]
    for each, body in zip(found.slices, bodies, strict=True):
        wal.check_slice(each, body, "k")
    return found, bodies


def read_wal_by_range(data: bytes, *, rollup: bool) -> object:
    place = {"incarnation": 5, "number": 6, "rollup": rollup}
    header = wal.decode_header(data[: wal.HEADER_BYTES], "k", **place)
    found = wal.decode_directory(data[: wal.directory_bytes(header)], "k", **place)
    bodies = [
        bytes(wal.slice_bytes(each, data[each.position : each.end], "k")) for each in found.slices
    ]
    return found, bodies


def read_segment_by_range(data: bytes, found: bundle.Bundle) -> object:
    """Header, footer and every stretch by itself, as cold reads ask for them."""
    end = found.segment_bytes
    return (
        found.verify_header(data[: kfs.HEADER_BYTES], "s"),
        [
            bytes(found.verify_stretch(each, data[each.start : each.end], "s"))
            for each in found.stretches(0, kfs.OFFSET_MAX)
        ],
        found.verify_footer(data[end - kfs.FOOTER_BYTES : end], "s"),
    )


def read_everything_of(found: bundle.Bundle) -> object:
    found.check_all()
    return (
        found.offsets.tolist(),
        found.positions.tolist(),
        found.segment_bytes,
        found.last_offset,
        [column.tolist() for column in found.timestamps or ()],
        found.transactions,
        found.producers,
        found.epochs,
        found.state,
    )
