"""Record batches as Arrow columns.

`to_arrow` and `to_arrow_batches` take any number of batches of one partition, back to back. Every
batch they pass is checked against its checksum, its records against their count; control batches
are left out. They raise DamagedError rather than give a wrong record, and give the records of a
batch either all (within the offsets asked for) or not at all.

The types are those of Spark's Kafka source: no large_ types, so a column stays below 2 GiB.

* A timestamp that its unit cannot hold is null. Kafka's "no timestamp" stays -1 ms.
* `headers` is null for a record without headers, as in Spark.
* Arrow's text must be UTF-8: what is not in a header's key becomes U+FFFD.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from neve.errors import DamagedError, InvalidError
from neve.records import compression, kernel
from neve.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_END,
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    check_batch,
    parse_header,
)
from neve.records.crc import crc32c
from neve.records.reference import open_section
from neve.records.writer import from_arrow

__all__ = ["COLUMNS", "from_arrow", "schema", "to_arrow", "to_arrow_batches"]

COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value")
"""What is decoded unless asked otherwise; `headers` besides on request."""

BATCH_BYTES_MAX = 4 * 1024 * 1024
"""Decompressed records in one RecordBatch of `to_arrow_batches`; one Kafka batch may have more.

A consumer that drops one before it takes the next then works in memory that is reused: fresh pages
cost more than the decoding.
"""
BATCH_ROWS_MAX = 1024 * 1024

INT32_MAX = 2**31 - 1
WALK_ROWS = 256
"""Headers that one call of the kernel looks ahead."""
HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

_SCALES = {"ms": 1, "us": 1_000, "ns": 1_000_000}

_BITS = 0
_FIELDS = {
    "offset": ((kernel.OFFSETS, 8),),
    "timestamp": ((kernel.TIMES, 8), (kernel.TIMES_VALID, _BITS)),
    "timestamp_type": ((kernel.TIME_TYPES, 4),),
    "key": ((kernel.KEY_ENDS, 4), (kernel.KEY_SOURCES, 8), (kernel.KEYS_VALID, _BITS)),
    "value": ((kernel.VALUE_ENDS, 4), (kernel.VALUE_SOURCES, 8), (kernel.VALUES_VALID, _BITS)),
    "headers": (
        (kernel.HEADER_ENDS, 4),
        (kernel.HEADER_SOURCES, 16),
        (kernel.HEADERS_VALID, _BITS),
    ),
}
"""The kernel's buffers for each column, with the bytes that a row takes in them."""

Keep = Callable[[BatchHeader], bool]


class Wanted(NamedTuple):
    """What a caller asked for."""

    from_offset: int
    to_offset: int
    schema: pa.Schema
    unit: str


class Section(NamedTuple):
    """The records of one batch, decompressed, as the kernel's `sections` describe them.

    `owner` keeps them where the address points.
    """

    owner: pa.Buffer
    row: list[int]


def schema(
    columns: Sequence[str] = COLUMNS, *, headers: bool = False, unit: str = "us"
) -> pa.Schema:
    """The schema that these columns have, in this order."""
    if unit not in _SCALES:
        raise InvalidError(f"there is no unit {unit!r}: use one of {', '.join(_SCALES)}")
    types = {
        "offset": pa.int64(),
        "timestamp": pa.timestamp(unit, tz="UTC"),
        "timestamp_type": pa.int32(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": HEADERS_TYPE,
    }
    names = (*columns, "headers") if headers and "headers" not in columns else tuple(columns)
    if unknown := [name for name in names if name not in types]:
        raise InvalidError(f"there is no column {unknown[0]!r}: use some of {', '.join(types)}")
    return pa.schema([pa.field(name, types[name]) for name in names])


def to_arrow(
    data: Buffer,
    *,
    from_offset: int | None = None,
    to_offset: int | None = None,
    columns: Sequence[str] = COLUMNS,
    headers: bool = False,
    unit: str = "us",
    key: str = "",
    keep: Keep | None = None,
    limit: int = compression.DECOMPRESSED_BYTES_MAX,
) -> pa.RecordBatch:
    """All records with from_offset <= offset < to_offset as one RecordBatch.

    InvalidError where they have 2 GiB or more: that is what `to_arrow_batches` is for.
    """
    found = list(
        to_arrow_batches(
            data,
            from_offset=from_offset,
            to_offset=to_offset,
            columns=columns,
            headers=headers,
            unit=unit,
            key=key,
            keep=keep,
            limit=limit,
            rows_max=INT32_MAX,
            bytes_max=INT32_MAX,
        )
    )
    if len(found) > 1:
        raise InvalidError(
            f"{key or 'data'}: 2 GiB of records and more do not fit one RecordBatch: "
            "use to_arrow_batches"
        )
    return (
        found[0]
        if found
        else schema(columns, headers=headers, unit=unit).empty_table().to_batches()[0]
    )


def to_arrow_batches(
    data: Buffer,
    *,
    from_offset: int | None = None,
    to_offset: int | None = None,
    columns: Sequence[str] = COLUMNS,
    headers: bool = False,
    unit: str = "us",
    key: str = "",
    keep: Keep | None = None,
    limit: int = compression.DECOMPRESSED_BYTES_MAX,
    rows_max: int = BATCH_ROWS_MAX,
    bytes_max: int = BATCH_BYTES_MAX,
) -> Iterator[pa.RecordBatch]:
    """The records in RecordBatches of at most `rows_max` rows, never an empty one.

    Each is made of whole Kafka batches with together at most `bytes_max` bytes of decompressed
    records, or of one batch that has more. `keep` may leave out batches by their header.
    """
    wanted = Wanted(
        -1 if from_offset is None else from_offset,
        kernel.INT64_MAX if to_offset is None else to_offset,
        schema(columns, headers=headers, unit=unit),
        unit,
    )
    bytes_max = min(bytes_max, INT32_MAX)
    group: list[Section] = []
    rows = size = 0
    for section in _sections(data, wanted, keep, min(limit, INT32_MAX), key):
        count, more = section.row[kernel.COUNT], section.row[kernel.BYTES]
        if group and (rows + count > rows_max or size + more > bytes_max):
            yield from _decode(group, wanted, rows_max, key)
            group, rows, size = [], 0, 0
        group.append(section)
        rows += count
        size += more
    if group:
        yield from _decode(group, wanted, rows_max, key)


def _checked(view: memoryview, address: int, key: str) -> Iterator[list[int]]:
    """Every batch as `kernel.walk` describes it, checked against its checksum."""
    table = np.empty((WALK_ROWS, kernel.WALK_FIELDS), np.int64)
    position = next_offset = 0
    while position < len(view):
        rows, reached = kernel.walk(address, len(view), position, table)
        for row in table[:rows].tolist():
            position, size, base_offset, last_delta = row[:4]
            if crc32c(view[position + CRC_END : position + size]) != row[kernel.CRC]:
                check_batch(view, position, key=key)
            if base_offset < next_offset:
                raise DamagedError(
                    key, f"a batch at offset {base_offset} follows offset {next_offset - 1}"
                )
            next_offset = base_offset + last_delta + 1
            yield row
        position = reached
        if rows < WALK_ROWS and position < len(view):
            check_batch(view, position, key=key)


def _sections(
    data: Buffer, wanted: Wanted, keep: Keep | None, limit: int, key: str
) -> Iterator[Section]:
    """The checked batches that may hold wanted records, decompressed one at a time."""
    view = memoryview(data)
    whole = pa.py_buffer(view)
    for row in _checked(view, whole.address, key):
        position, size, base_offset, last_delta, *_, count, _, attributes = row
        if base_offset >= wanted.to_offset:
            return
        if base_offset + last_delta < wanted.from_offset or attributes & CONTROL:
            continue
        if keep is not None and not keep(parse_header(view, position)):
            continue
        codec, start = attributes & CODEC_MASK, position + HEADER_BYTES
        records = open_section(
            view[start : position + size],
            codec=codec,
            record_count=count,
            base_offset=base_offset,
            key=key,
            limit=limit,
        )
        owner = pa.py_buffer(records) if codec else whole
        row[kernel.ADDRESS] = owner.address if codec else whole.address + start
        row[kernel.BYTES] = len(records)
        yield Section(owner, row)


def _decode(
    group: list[Section], wanted: Wanted, rows_max: int, key: str
) -> Iterator[pa.RecordBatch]:
    decoded = _Columns(sum(section.row[kernel.COUNT] for section in group), wanted.schema.names)
    decoded.scan(group, wanted, key)
    batch = decoded.record_batch(wanted, key)
    for start in range(0, batch.num_rows, rows_max):
        yield batch.slice(start, rows_max)


class _Columns:
    """The buffers that the kernel fills, each with room for `capacity` rows if it is wanted."""

    def __init__(self, capacity: int, columns: Sequence[str]) -> None:
        self._addresses = np.zeros(kernel.COLUMN_FIELDS, np.int64)
        self._buffers: dict[int, pa.Buffer] = {}
        self._result = np.zeros(kernel.RESULT_FIELDS, np.int64)
        for name in columns:
            for field, row_bytes in _FIELDS[name]:
                self._allocate(field, capacity, row_bytes)

    def _allocate(self, field: int, rows: int, row_bytes: int) -> None:
        """A buffer for `rows` and one more, since ends start with a zero; of bits, all set."""
        size = (rows + 1) * row_bytes if row_bytes else rows // 8 + 1
        buffer = pa.allocate_buffer(size)
        view = np.frombuffer(buffer, np.uint8)
        if row_bytes:
            view[:4] = 0
        else:
            view[:] = 0xFF
        self._buffers[field] = buffer
        self._addresses[field] = buffer.address

    def scan(self, group: list[Section], wanted: Wanted, key: str) -> None:
        sections = np.array([section.row for section in group], np.int64)
        code = kernel.scan(
            sections,
            wanted.from_offset,
            wanted.to_offset,
            _SCALES[wanted.unit],
            self._addresses,
            self._result,
        )
        if code != kernel.OK:
            base_offset = sections[self._result[kernel.ERROR_SECTION], kernel.BASE_OFFSET]
            raise DamagedError(
                key,
                f"the batch at offset {base_offset}: {kernel.REASONS[code]} "
                f"(record at byte {self._result[kernel.ERROR_POSITION]})",
            )

    def record_batch(self, wanted: Wanted, key: str) -> pa.RecordBatch:
        make: dict[str, Callable[[pa.DataType], pa.Array]] = {
            "offset": lambda kind: self._fixed(kind, kernel.OFFSETS),
            "timestamp": lambda kind: self._fixed(kind, kernel.TIMES),
            "timestamp_type": lambda kind: self._fixed(kind, kernel.TIME_TYPES),
            "key": lambda _: self._binary(kernel.KEY_ENDS, kernel.NULL_KEYS),
            "value": lambda _: self._binary(kernel.VALUE_ENDS, kernel.NULL_VALUES),
            "headers": lambda _: self._headers(key),
        }
        arrays = [make[field.name](field.type) for field in wanted.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=wanted.schema)

    @property
    def _rows(self) -> int:
        return int(self._result[kernel.ROWS])

    def _validity(self, field: int, nulls: int) -> pa.Buffer | None:
        return self._buffers[field] if nulls else None

    def _fixed(self, kind: pa.DataType, field: int) -> pa.Array:
        nulls = int(self._result[kernel.NULL_TIMES]) if field == kernel.TIMES else 0
        buffers = [self._validity(kernel.TIMES_VALID, nulls), self._buffers[field]]
        return pa.Array.from_buffers(kind, self._rows, buffers, nulls)

    def _binary(self, field: int, nulls_field: int) -> pa.Array:
        """The fields of a key or value follow each other: ends, sources, validity."""
        ends, sources = self._buffers[field], self._buffers[field + 1]
        target = pa.allocate_buffer(int(np.frombuffer(ends, np.int32)[self._rows]))
        kernel.copy(ends.address, sources.address, self._rows, target.address)
        nulls = int(self._result[nulls_field])
        buffers = [self._validity(field + 2, nulls), ends, target]
        return pa.Array.from_buffers(pa.binary(), self._rows, buffers, nulls)

    def _headers(self, key: str) -> pa.Array:
        count = int(self._result[kernel.HEADERS])
        pairs = _Headers(count, self._result)
        pairs.fill(self._rows, self._addresses, self._result, key)
        buffers = [self._buffers[kernel.HEADERS_VALID], self._buffers[kernel.HEADER_ENDS]]
        return pa.Array.from_buffers(
            HEADERS_TYPE, self._rows, buffers, children=[pairs.array(self._result)]
        )


class _Headers:
    """The keys and values of all headers, as buffers of exactly their size."""

    def __init__(self, count: int, result: NDArray[np.int64]) -> None:
        self._count = count
        self._key_ends = pa.py_buffer(np.zeros(count + 1, np.int32))
        self._keys = pa.allocate_buffer(int(result[kernel.HEADER_KEY_BYTES]))
        self._value_ends = pa.py_buffer(np.zeros(count + 1, np.int32))
        self._values = pa.allocate_buffer(int(result[kernel.HEADER_VALUE_BYTES]))
        self._valid = pa.py_buffer(np.full(count // 8 + 1, 0xFF, np.uint8))

    def fill(
        self, rows: int, columns: NDArray[np.int64], result: NDArray[np.int64], key: str
    ) -> None:
        code = kernel.fill_headers(
            rows,
            columns,
            self._key_ends.address,
            self._keys.address,
            self._value_ends.address,
            self._values.address,
            self._valid.address,
            result,
        )
        if code != kernel.OK:
            raise DamagedError(key, kernel.REASONS[code])

    def array(self, result: NDArray[np.int64]) -> pa.Array:
        nulls = int(result[kernel.NULL_VALUES])
        values = [self._valid if nulls else None, self._value_ends, self._values]
        return pa.StructArray.from_arrays(
            [
                _text(self._count, [None, self._key_ends, self._keys]),
                pa.Array.from_buffers(pa.binary(), self._count, values, nulls),
            ],
            fields=list(HEADERS_TYPE.value_type),
        )


def _text(rows: int, buffers: list[pa.Buffer | None]) -> pa.Array:
    """Header keys as text, with U+FFFD for what is not UTF-8."""
    text = pa.Array.from_buffers(pa.string(), rows, buffers, 0)
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        raw = pa.Array.from_buffers(pa.binary(), rows, buffers, 0)
        return pa.array([name.decode(errors="replace") for name in raw.to_pylist()], pa.string())
    return text
