"""Decodes checked batches into records or Arrow columns.

Both yield exactly the records within the chunk's offsets and the selection's times, and skip
control batches. A small number of records is decoded in plain Python, which takes less time than
loading the compiled kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from neve.bucket.model import PartitionName, Record, Selection
from neve.errors import InvalidError
from neve.log.reading.record_chunk import RecordChunk
from neve.records.batch import BatchHeader, walk
from neve.records.reference import decode_batch

if TYPE_CHECKING:
    import pyarrow as pa

    from neve.records.arrow import Part

COLUMNS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
)
"""The default columns of Arrow batches, in this order."""

PLAIN_BYTES_MAX = 256 * 1024
"""Bytes of batches that one decoder decodes in plain Python before it loads the kernel."""
RECORDS_AT_ONCE = 16 * 1024
ARROW_BYTES_MAX = 8 * 1024 * 1024
"""Decompressed bytes of one Arrow batch: large enough to make the cost per batch negligible, here
and in consumers, and small enough for CPU caches."""
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_REPLACEMENT = "\ufffd"


class RecordDecoder:
    """Decodes chunks into lists of records. Counts bytes to decide when to load the kernel."""

    def __init__(self, plain_bytes_max: int = PLAIN_BYTES_MAX) -> None:
        self._plain_bytes_left = plain_bytes_max

    def decode(
        self, name: PartitionName, chunks: Sequence[RecordChunk], selection: Selection
    ) -> Iterator[list[Record]]:
        self._plain_bytes_left -= sum(chunk.size for chunk in chunks)
        if self._plain_bytes_left < 0:
            yield from _compiled(name, chunks, selection)
            return
        for chunk in chunks:
            yield from _plain(name, chunk, selection)


def _plain(name: PartitionName, chunk: RecordChunk, selection: Selection) -> Iterator[list[Record]]:
    for position, header, data in _batches(chunk):
        if header.base_offset >= chunk.next_offset:
            return  # later batches are not selected, and need not be checked
        if header.is_control or not _overlaps(header, chunk) or _too_old(header, selection):
            continue
        found = [
            Record(
                *name,
                record.offset,
                record.timestamp,
                header.timestamp_type,
                record.key,
                record.value,
                tuple(record.headers),
            )
            for record in decode_batch(data, position, key=chunk.key)
            if chunk.first_offset <= record.offset < chunk.next_offset
            and selection.includes(record.timestamp)
        ]
        if found:
            yield found


def _batches(chunk: RecordChunk) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    for part in chunk.parts:
        for position, header in walk(part, key=chunk.key):
            yield position, header, part


def _overlaps(header: BatchHeader, chunk: RecordChunk) -> bool:
    return header.last_offset >= chunk.first_offset and header.base_offset < chunk.next_offset


def _too_old(header: BatchHeader, selection: Selection) -> bool:
    return selection.from_timestamp is not None and header.max_timestamp < selection.from_timestamp


def _keep(selection: Selection) -> Callable[[BatchHeader], bool] | None:
    """Return the predicate that selects batches by their headers; None if all are selected."""
    if selection.from_timestamp is None:
        return None
    return lambda header: not _too_old(header, selection)


def _compiled(
    name: PartitionName, chunks: Sequence[RecordChunk], selection: Selection
) -> Iterator[list[Record]]:
    from neve.records.arrow import parts_to_arrow_batches

    batches = parts_to_arrow_batches(
        _parts(chunks),
        headers=True,
        unit="ms",
        keep=_keep(selection),
        rows_max=RECORDS_AT_ONCE,
    )
    for batch in batches:
        rows = _rows(name, batch)
        if any(_has_odd_key(row) for row in rows):
            # Arrow strings are UTF-8: only the plain decoder keeps the raw bytes of such a key.
            for chunk in _between(chunks, rows[0].offset, rows[-1].offset + 1):
                yield from _plain(name, chunk, selection)
            continue
        found = [row for row in rows if selection.includes(row.timestamp)]
        if found:
            yield found


def _parts(chunks: Sequence[RecordChunk]) -> list[Part]:
    from neve.records.arrow import Part

    return [
        Part(part, chunk.first_offset, chunk.next_offset, chunk.key)
        for chunk in chunks
        for part in chunk.parts
    ]


def _between(chunks: Sequence[RecordChunk], first: int, end: int) -> Iterator[RecordChunk]:
    for chunk in chunks:
        if chunk.first_offset < end and first < chunk.next_offset:
            yield chunk._replace(
                first_offset=max(first, chunk.first_offset),
                next_offset=min(end, chunk.next_offset),
            )


def _rows(name: PartitionName, batch: pa.RecordBatch) -> list[Record]:
    import pyarrow as pa

    columns: dict[str, list[Any]] = {
        field: batch.column(field).to_pylist()
        for field in ("offset", "timestamp_type", "key", "value", "headers")
    }
    times = batch.column("timestamp").cast(pa.int64()).to_pylist()
    headers = [
        tuple((pair["key"], pair["value"]) for pair in pairs) if pairs else ()
        for pairs in columns["headers"]
    ]
    rows = zip(
        columns["offset"],
        times,
        columns["timestamp_type"],
        columns["key"],
        columns["value"],
        headers,
        strict=True,
    )
    return [Record(*name, *row) for row in rows]


def _has_odd_key(row: Record) -> bool:
    return any(_REPLACEMENT in key for key, _ in row.headers if isinstance(key, str))


def arrow_schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """Return the schema of Arrow batches with these columns, in this order.

    Raises InvalidError if a column does not exist.
    """
    import pyarrow as pa

    from neve.records import arrow

    own = {"topic": pa.string(), "partition": pa.int32()}
    if unknown := [name for name in columns if name not in COLUMNS]:
        raise InvalidError(f"there is no column {unknown[0]!r}: use some of {', '.join(COLUMNS)}")
    decoded = arrow.schema([name for name in COLUMNS if name not in own])
    return pa.schema(
        [pa.field(name, own.get(name) or decoded.field(name).type) for name in columns]
    )


def decode_arrow(
    name: PartitionName, chunks: Sequence[RecordChunk], selection: Selection, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the selected records of chunks as Arrow batches that are never empty."""
    import pyarrow as pa

    from neve.records.arrow import parts_to_arrow_batches

    schema = arrow_schema(columns)
    decoded = [column for column in columns if column not in ("topic", "partition")]
    needed = [*decoded, "timestamp"] if selection.by_time else decoded
    # A batch without columns has no length: offsets are the cheapest column to count rows by.
    needed = list(dict.fromkeys(needed or ["offset"]))
    for found in parts_to_arrow_batches(
        _parts(chunks),
        columns=needed,
        # Milliseconds hold every timestamp: a bound must not drop what does not fit microseconds.
        unit="ms" if selection.by_time else "us",
        keep=_keep(selection),
        bytes_max=ARROW_BYTES_MAX,
    ):
        batch = _in_time(found, selection) if selection.by_time else found
        if batch.num_rows == 0:
            continue
        rows = batch.num_rows
        arrays = [
            pa.repeat(pa.scalar(name.topic, pa.string()), rows)
            if column == "topic"
            else pa.repeat(pa.scalar(name.partition, pa.int32()), rows)
            if column == "partition"
            else batch.column(column)
            if column != "timestamp"
            else _in_micros(batch.column(column))
            for column in columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _in_time(batch: pa.RecordBatch, selection: Selection) -> pa.RecordBatch:
    """Return the selected rows of a batch with timestamps in milliseconds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    millis = batch.column("timestamp").cast(pa.int64())
    selected = pa.repeat(pa.scalar(True), batch.num_rows)
    first, end = selection.from_timestamp, selection.to_timestamp
    # Bounds may be below or above all timestamps, and then do not fit their type.
    if first is not None and first > INT64_MIN:
        below = pa.scalar(min(first - 1, INT64_MAX), pa.int64())
        selected = pc.and_(selected, pc.greater(millis, below))
    if end is not None and end <= INT64_MAX:
        selected = pc.and_(selected, pc.less(millis, pa.scalar(max(end, INT64_MIN), pa.int64())))
    return batch.filter(selected)


def _in_micros(times: pa.Array) -> pa.Array:
    """Return timestamps in microseconds; null where they do not fit, as without time bounds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    micros = pa.timestamp("us", "UTC")
    if times.type == micros:
        return times
    most = INT64_MAX // 1000
    millis = times.cast(pa.int64())
    fits = pc.and_(pc.greater_equal(millis, -most), pc.less_equal(millis, most))
    return pc.if_else(fits, times, None).cast(micros)
