"""The compiled encoder from rows of Arrow columns to the records of a batch.

`measure` returns how many rows fit a batch and the size of their records; `fill` writes them.
Columns are given as addresses of Arrow's buffers, with the position of the first row in them.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from neve.records.native import (
    compiled,
    copy_bytes,
    inlined,
    load_byte,
    load_int32,
    load_int64,
    store_byte,
)
from neve.records.varint import varint_bytes, write_varint

Numbers: TypeAlias = NDArray[np.int64]

# The fields of `columns`. Validity is 0 if nothing is null; ends are 0 if the column is missing.
# The first row is `shift` rows after the start of the buffers.
TIMES, OFFSETS, LIST_ENDS, LIST_VALID, LIST_SHIFT = range(5)
# Where the four fields of each column of bytes start: keys, values, and the two of headers.
KEY, VALUE, NAME, ITEM = 5, 9, 13, 17
_ENDS, _BYTES, _VALID, _SHIFT = range(4)
COLUMN_FIELDS = 21


@inlined
def _is_valid(bits: int, index: int) -> bool:
    return bits == 0 or (load_byte(bits + (index >> 3)) >> (index & 7)) & 1 == 1


@inlined
def _field(columns: Numbers, column: int, row: int) -> tuple[int, int]:
    """Return length (-1: null) and address of a key, a value, or a header's part."""
    if columns[column + _ENDS] == 0:
        return -1, 0
    index = columns[column + _SHIFT] + row
    if not _is_valid(columns[column + _VALID], index):
        return -1, 0
    start = load_int32(columns[column + _ENDS] + 4 * index)
    end = load_int32(columns[column + _ENDS] + 4 * index + 4)
    return end - start, columns[column + _BYTES] + start


@inlined
def _headers(columns: Numbers, row: int) -> tuple[int, int]:
    """Return the index of a row's first header, and the index after its last."""
    if columns[LIST_ENDS] == 0:
        return 0, 0
    index = columns[LIST_SHIFT] + row
    if not _is_valid(columns[LIST_VALID], index):
        return 0, 0
    ends = columns[LIST_ENDS] + 4 * index
    return load_int32(ends), load_int32(ends + 4)


@inlined
def _time(columns: Numbers, row: int) -> int:
    time: int = load_int64(columns[TIMES] + 8 * row)
    return time


@inlined
def _delta(columns: Numbers, first: int, row: int) -> int:
    """Return the difference between a row's offset and the first row's."""
    if columns[OFFSETS] == 0:
        return row - first
    delta: int = load_int64(columns[OFFSETS] + 8 * row) - load_int64(columns[OFFSETS] + 8 * first)
    return delta


@inlined
def _nullable_bytes(size: int) -> int:
    return varint_bytes(size) + max(size, 0)


@inlined
def _body_bytes(columns: Numbers, first: int, row: int) -> int:
    """Return the size of a record without its length field."""
    size = 1 + varint_bytes(_time(columns, row) - _time(columns, first))
    size += varint_bytes(_delta(columns, first, row))
    size += _nullable_bytes(_field(columns, KEY, row)[0])
    size += _nullable_bytes(_field(columns, VALUE, row)[0])
    header, behind = _headers(columns, row)
    size += varint_bytes(behind - header)
    for index in range(header, behind):
        size += _nullable_bytes(_field(columns, NAME, index)[0])
        size += _nullable_bytes(_field(columns, ITEM, index)[0])
    return size


@compiled("UniTuple(int64, 2)(int64[::1], int64, int64, int64)")
def measure(columns: Numbers, first: int, rows: int, bytes_max: int) -> tuple[int, int]:
    """Return how many rows from `first` on fit `bytes_max`, at least one, and their bytes.

    Counting also stops before an offset that does not increase or is too far from the first.
    """
    total = 0
    before = -1
    for row in range(first, rows):
        delta = _delta(columns, first, row)
        body = _body_bytes(columns, first, row)
        size = varint_bytes(body) + body
        if row > first and (total + size > bytes_max or not before < delta < 2**31):
            return row - first, total
        total += size
        before = delta
    return rows - first, total


@inlined
def _write_nullable(position: int, size: int, source: int) -> int:
    position = write_varint(position, size)
    if size > 0:
        copy_bytes(position, source, size)
        position += size
    return position


@compiled("int64(int64[::1], int64, int64, int64)")
def fill(columns: Numbers, first: int, count: int, target: int) -> int:
    """Write the records of `count` rows to `target`, which has the size from `measure`."""
    position = target
    for row in range(first, first + count):
        position = write_varint(position, _body_bytes(columns, first, row))
        store_byte(position, 0)
        position = write_varint(position + 1, _time(columns, row) - _time(columns, first))
        position = write_varint(position, _delta(columns, first, row))
        size, source = _field(columns, KEY, row)
        position = _write_nullable(position, size, source)
        size, source = _field(columns, VALUE, row)
        position = _write_nullable(position, size, source)
        header, behind = _headers(columns, row)
        position = write_varint(position, behind - header)
        for index in range(header, behind):
            size, source = _field(columns, NAME, index)
            position = _write_nullable(position, size, source)
            size, source = _field(columns, ITEM, index)
            position = _write_nullable(position, size, source)
    return position - target
