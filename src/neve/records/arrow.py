"""Record batches as Arrow columns.

`to_arrow` and `to_arrow_batches` decode any number of adjacent batches of one partition. They
verify every batch's checksum and record count and omit control batches. They raise DamagedError
rather than return a wrong record, and return all records of a batch (within the requested offsets)
or none.

The types are those of Spark's Kafka source: no large_ types, so a column stays below 2 GiB.

* A timestamp out of the range of its unit is null. Kafka's "no timestamp" stays -1 ms.
* `headers` is null for a record without headers, as in Spark.
* Arrow's text must be UTF-8: invalid bytes in a header's key become U+FFFD.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from neve.errors import DamagedError, InvalidError, UnsupportedError
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
from neve.records.columns import (
    HEADERS_TYPE,
    UNITS,
    ColumnSelection,
    DamagedSectionError,
    Section,
    decode,
)
from neve.records.crc import crc32c
from neve.records.reference import open_section
from neve.records.writer import from_arrow

__all__ = [
    "COLUMNS",
    "Part",
    "from_arrow",
    "parts_to_arrow_batches",
    "schema",
    "to_arrow",
    "to_arrow_batches",
]

COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value")
"""The default columns. `headers` is available on request."""

BATCH_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of decompressed records in one RecordBatch of `to_arrow_batches`; a larger Kafka batch gets
its own.

The size lets a consumer that drops a batch before it takes the next reuse its memory: fresh pages
cost more than decoding.
"""
BATCH_ROWS_MAX = 1024 * 1024

INT32_MAX = 2**31 - 1
WALK_ROWS = 256
"""The number of batch headers that one call of the kernel parses."""

Keep = Callable[[BatchHeader], bool]


class Part(NamedTuple):
    """Adjacent batches of the object `key`, and the range of requested offsets."""

    data: Buffer
    from_offset: int
    to_offset: int
    key: str = ""


def schema(
    columns: Sequence[str] = COLUMNS, *, headers: bool = False, unit: str = "us"
) -> pa.Schema:
    """Return the schema of these columns, in this order."""
    if unit not in UNITS:
        raise InvalidError(f"unknown unit {unit!r}: use one of {', '.join(UNITS)}")
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
        raise InvalidError(f"unknown column {unknown[0]!r}: use some of {', '.join(types)}")
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
    """Return all records with from_offset <= offset < to_offset as one RecordBatch.

    Raises InvalidError for 2 GiB or more; use `to_arrow_batches` for that.
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
            f"{key or 'data'}: 2 GiB or more of records do not fit one RecordBatch: "
            "use to_arrow_batches"
        )
    if found:
        return found[0]
    return pa.RecordBatch.from_pylist([], schema=schema(columns, headers=headers, unit=unit))


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
    """Yield the records in RecordBatches of 1 to `rows_max` rows.

    Each consists of whole Kafka batches with a total of at most `bytes_max` bytes of decompressed
    records, or of a single larger batch. `keep` may reject batches by their header.
    """
    part = Part(
        data,
        -1 if from_offset is None else from_offset,
        kernel.INT64_MAX if to_offset is None else to_offset,
        key,
    )
    return parts_to_arrow_batches(
        [part],
        columns=columns,
        headers=headers,
        unit=unit,
        keep=keep,
        limit=limit,
        rows_max=rows_max,
        bytes_max=bytes_max,
    )


def parts_to_arrow_batches(
    parts: Iterable[Part],
    *,
    columns: Sequence[str] = COLUMNS,
    headers: bool = False,
    unit: str = "us",
    keep: Keep | None = None,
    limit: int = compression.DECOMPRESSED_BYTES_MAX,
    rows_max: int = BATCH_ROWS_MAX,
    bytes_max: int = BATCH_BYTES_MAX,
) -> Iterator[pa.RecordBatch]:
    """Like `to_arrow_batches`, for separate parts of one partition; small ones are combined.

    If a part is damaged, the records before the damage are yielded before the error is raised.
    """
    wanted = ColumnSelection(schema(columns, headers=headers, unit=unit), unit)
    bytes_max = min(bytes_max, INT32_MAX)
    group: list[Section] = []
    rows = size = 0
    try:
        for section in _sections(parts, keep, min(limit, INT32_MAX)):
            count, more = section.row[kernel.COUNT], section.row[kernel.BYTES]
            if group and (rows + count > rows_max or size + more > bytes_max):
                full, group = group, []
                yield from _decode(full, wanted, rows_max)
                del full  # free it before the next one, which may be large too
                rows = size = 0
            group.append(section)
            rows += count
            size += more
    except (DamagedError, UnsupportedError):
        yield from _decode(group, wanted, rows_max)
        raise
    yield from _decode(group, wanted, rows_max)


def _checked(view: memoryview, address: int, key: str) -> Iterator[list[int]]:
    """Yield every batch as `kernel.walk` describes it, with its checksum verified."""
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
            raise DamagedError(key, f"the bytes at {position} changed during the read")


def _sections(parts: Iterable[Part], keep: Keep | None, limit: int) -> Iterator[Section]:
    """Yield the batches that may contain requested records, verified and decompressed."""
    for part in parts:
        yield from _sections_of(part, keep, limit)


def _sections_of(part: Part, keep: Keep | None, limit: int) -> Iterator[Section]:
    data, from_offset, to_offset, key = part
    view = memoryview(data)
    whole = pa.py_buffer(view)
    address = whole.address
    for row in _checked(view, address, key):
        position, size, base_offset, last_delta, _, _, _, count, _, attributes = row
        if base_offset >= to_offset:
            return
        if base_offset + last_delta < from_offset or attributes & CONTROL:
            continue
        if keep is not None and not keep(parse_header(view, position)):
            continue
        codec, start = attributes & CODEC_MASK, position + HEADER_BYTES
        records = open_section(
            view[start : position + size], codec, count, base_offset, key=key, limit=limit
        )
        owner = pa.py_buffer(records) if codec else whole
        row[kernel.ADDRESS] = owner.address if codec else address + start
        row[kernel.BYTES] = len(records)
        row[kernel.FROM], row[kernel.TO] = from_offset, to_offset
        yield Section(owner, row, key)


def _decode(
    group: Sequence[Section], wanted: ColumnSelection, rows_max: int
) -> Iterator[pa.RecordBatch]:
    if not group:
        return
    try:
        batch = decode(group, wanted)
    except DamagedSectionError as error:
        yield from _decode(group[: error.place], wanted, rows_max)
        raise
    for start in range(0, batch.num_rows, rows_max):
        yield batch.slice(start, rows_max)
