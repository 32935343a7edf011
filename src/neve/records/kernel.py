"""The compiled decoder from record sections to the buffers of Arrow columns.

`scan` parses and checks every record, and records each row's offset, time, and the positions of its
key, value and headers; `copy` and `fill_headers` then copy the bytes into buffers of exactly the
right size. For any input, nothing is read or written out of bounds: an inconsistent record ends the
scan with a code and a position. Data must not change during a call; if it does, the result is
undefined but memory stays safe.

It returns the same as `reference.decode_batch`, and rejects the same input.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from neve.records.batch import HEADER_BYTES, LENGTH_END, LOG_APPEND_TIME
from neve.records.native import (
    compiled,
    copy_bytes,
    inlined,
    load_big_int32,
    load_big_int64,
    load_big_uint32,
    load_byte,
    load_int32,
    load_int64,
    store_byte,
    store_int32,
    store_int64,
)
from neve.records.varint import BAD, read_varint, read_varlong

Numbers: TypeAlias = NDArray[np.int64]

# The columns of `sections`, which has one row per batch: the address and size of its decompressed
# records, fields of its header, and the requested offsets, FROM <= offset < TO.
ADDRESS, BYTES, BASE_OFFSET, LAST_DELTA, BASE_TIME, MAX_TIME, TIME_TYPE, COUNT, FROM, TO = range(10)

# `walk` uses four of these columns differently: POSITION and SIZE are those of the whole batch.
POSITION, SIZE, CRC, ATTRIBUTES = 0, 1, 8, 9
WALK_FIELDS = 10

# The fields of `columns`: addresses of buffers, or 0 if a column is not requested.
OFFSETS, TIMES, TIMES_VALID, TIME_TYPES = range(4)
KEY_ENDS, KEY_SOURCES, KEYS_VALID, VALUE_ENDS, VALUE_SOURCES, VALUES_VALID = range(4, 10)
HEADER_ENDS, HEADER_SOURCES, HEADERS_VALID = range(10, 13)
COLUMN_FIELDS = 13

# The fields of `result`.
ROWS, ERROR_SECTION, ERROR_POSITION, NULL_TIMES, NULL_KEYS, NULL_VALUES = range(6)
HEADERS, HEADER_KEY_BYTES, HEADER_VALUE_BYTES, NULL_HEADER_VALUES = range(6, 10)
RESULT_FIELDS = 10

OK, RECORD, OFFSET_DELTA, TRAILING, CHANGED = range(5)
REASONS = {
    RECORD: "a length, count or varint of a record contradicts its size or the batch's",
    OFFSET_DELTA: "an offset delta does not rise, or passes the last one",
    TRAILING: "bytes follow the last record",
    CHANGED: "the records changed during the read",
}

INT64_MAX = 2**63 - 1


@compiled("UniTuple(int64, 2)(int64, int64, int64, int64[:,::1])")
def walk(address: int, size: int, position: int, table: Numbers) -> tuple[int, int]:
    """Parse the headers of adjacent batches into `table`, one row each.

    Returns the number of rows and the position after the last batch. Stops when the table is full,
    the data ends, or `batch.check_header` would reject a header.
    """
    row = 0
    while row < len(table) and size - position >= HEADER_BYTES:
        at = address + position
        batch_bytes = load_big_int32(at + 8) + LENGTH_END
        last_delta = load_big_int32(at + 23)
        count = load_big_int32(at + 57)
        fits = HEADER_BYTES <= batch_bytes <= size - position
        if not fits or load_byte(at + 16) != 2 or last_delta < -1 or count < 0:
            break
        table[row, POSITION] = position
        table[row, SIZE] = batch_bytes
        table[row, BASE_OFFSET] = load_big_int64(at)
        table[row, LAST_DELTA] = last_delta
        table[row, BASE_TIME] = load_big_int64(at + 27)
        table[row, MAX_TIME] = load_big_int64(at + 35)
        table[row, TIME_TYPE] = (load_byte(at + 22) & LOG_APPEND_TIME) >> 3
        table[row, COUNT] = count
        table[row, CRC] = load_big_uint32(at + 17)
        # All defined attributes are in the lower of the two bytes.
        table[row, ATTRIBUTES] = load_byte(at + 22)
        position += batch_bytes
        row += 1
    return row, position


@inlined
def _open_record(position: int, end: int) -> tuple[int, int, int, int]:
    """Return end, time delta and offset delta of a record, and the position after them or BAD."""
    length, position = read_varint(position, end)
    if position == BAD or length < 1 or length > end - position:
        return 0, 0, 0, BAD
    limit = position + length
    time_delta, position = read_varlong(position + 1, limit)
    delta, position = read_varint(position, limit)
    return limit, time_delta, delta, position


@inlined
def _skip_nullable(position: int, end: int) -> tuple[int, int, int]:
    """Return length (-1: null) and start of a nullable field, and the position after it or BAD."""
    size, position = read_varint(position, end)
    if position == BAD or size < -1 or size > end - position:
        return 0, 0, BAD
    return size, position, position + max(size, 0)


@inlined
def _skip_headers(position: int, end: int, count: int) -> tuple[int, int, int]:
    """Return the bytes of keys and of values of `count` headers, and the next position or BAD."""
    key_bytes = 0
    value_bytes = 0
    for _ in range(count):
        key_size, _start, position = _skip_nullable(position, end)
        value_size, _start, position = _skip_nullable(position, end)
        if position == BAD or key_size < 0:
            return 0, 0, BAD
        key_bytes += key_size
        value_bytes += max(value_size, 0)
    return key_bytes, value_bytes, position


@inlined
def _clear_bit(bits: int, row: int) -> None:
    address = bits + (row >> 3)
    store_byte(address, load_byte(address) & ~(1 << (row & 7)))


@inlined
def _place_time(  # noqa: PLR0917 (called by position)
    row: int, millis: int, scale: int, least: int, most: int, columns: Numbers
) -> int:
    """Write a time in the column's unit; null unless `least` <= `millis` <= `most`.

    Returns the number of nulls.
    """
    times = columns[TIMES]
    if least <= millis <= most:
        store_int64(times + 8 * row, millis * scale)
        return 0
    store_int64(times + 8 * row, 0)
    _clear_bit(columns[TIMES_VALID], row)
    return 1


@inlined
def _place_bytes(row: int, size: int, start: int, column: int, columns: Numbers) -> int:
    """Record the position of a key or value and the end of its copy. Returns the number of nulls.

    Its three buffers are adjacent in `columns`, from `column` on.
    """
    ends = columns[column] + 4 * row
    store_int32(ends + 4, load_int32(ends) + max(size, 0))
    store_int64(columns[column + 1] + 8 * row, start)
    if size < 0:
        _clear_bit(columns[column + 2], row)
        return 1
    return 0


@inlined
def _place_headers(row: int, count: int, start: int, limit: int, columns: Numbers) -> None:
    ends = columns[HEADER_ENDS] + 4 * row
    store_int32(ends + 4, load_int32(ends) + count)
    store_int64(columns[HEADER_SOURCES] + 16 * row, start)
    store_int64(columns[HEADER_SOURCES] + 16 * row + 8, limit)
    if count == 0:
        _clear_bit(columns[HEADERS_VALID], row)


@compiled("int64(int64[:,::1], int64, int64, int64, int64[::1], int64[::1])")
def _scan_section(  # noqa: C901, PLR0917 (a branch for each column; called by position)
    sections: Numbers,
    index: int,
    row: int,
    scale: int,
    columns: Numbers,
    result: Numbers,
) -> int:
    position = sections[index, ADDRESS]
    end = position + sections[index, BYTES]
    by_append = sections[index, TIME_TYPE] != 0
    fixed_time = sections[index, MAX_TIME]
    from_offset, to_offset = sections[index, FROM], sections[index, TO]
    most = INT64_MAX // scale
    least = -most - 1 if scale == 1 else -most
    delta_before = -1
    for _ in range(sections[index, COUNT]):
        result[ERROR_POSITION] = position - sections[index, ADDRESS]
        limit, time_delta, delta, position = _open_record(position, end)
        key_size, key, position = _skip_nullable(position, limit)
        value_size, value, position = _skip_nullable(position, limit)
        count, headers = read_varint(position, limit)
        header_keys, header_values, position = _skip_headers(headers, limit, max(count, 0))
        if position != limit or count < 0:
            return RECORD
        if delta <= delta_before or delta > sections[index, LAST_DELTA]:
            return OFFSET_DELTA
        delta_before = delta
        offset = sections[index, BASE_OFFSET] + delta
        if offset < from_offset or offset >= to_offset:
            continue
        if columns[OFFSETS]:
            store_int64(columns[OFFSETS] + 8 * row, offset)
        if columns[TIMES]:
            millis = fixed_time if by_append else sections[index, BASE_TIME] + time_delta
            result[NULL_TIMES] += _place_time(row, millis, scale, least, most, columns)
        if columns[TIME_TYPES]:
            store_int32(columns[TIME_TYPES] + 4 * row, sections[index, TIME_TYPE])
        if columns[KEY_ENDS]:
            result[NULL_KEYS] += _place_bytes(row, key_size, key, KEY_ENDS, columns)
        if columns[VALUE_ENDS]:
            result[NULL_VALUES] += _place_bytes(row, value_size, value, VALUE_ENDS, columns)
        if columns[HEADER_SOURCES]:
            _place_headers(row, count, headers, limit, columns)
            result[HEADERS] += count
            result[HEADER_KEY_BYTES] += header_keys
            result[HEADER_VALUE_BYTES] += header_values
        row += 1
    result[ROWS] = row
    return OK if position == end else TRAILING


@compiled("int64(int64[:,::1], int64, int64[::1], int64[::1])")
def scan(sections: Numbers, scale: int, columns: Numbers, result: Numbers) -> int:
    """Check every record of every section; keep those with a requested offset.

    The caller must set all validity bits and zero `result`. All buffers must have space for the
    number of records that the sections claim, `ends` for one more. Sources are addresses; those of
    headers are pairs: the start of the headers and the end of their record.

    Returns OK, or the code of the error that ended the scan.
    """
    for ends in (KEY_ENDS, VALUE_ENDS, HEADER_ENDS):
        if columns[ends]:
            store_int32(columns[ends], 0)
    for index in range(len(sections)):
        code = _scan_section(sections, index, result[ROWS], scale, columns, result)
        if code != OK:
            result[ERROR_SECTION] = index
            return code
    return OK


@compiled("void(int64, int64, int64, int64)")
def copy(ends: int, sources: int, rows: int, target: int) -> None:
    """Copy each row's bytes to its place in `target`, given by `ends`."""
    start = load_int32(ends)
    for row in range(rows):
        end = load_int32(ends + 4 * row + 4)
        if end > start:
            copy_bytes(target + start, load_int64(sources + 8 * row), end - start)
        start = end


@inlined
def _append(index: int, size: int, start: int, ends: int, target: int, room: int) -> bool:  # noqa: PLR0917
    """Append one field. Returns False if it does not fit the target."""
    at = load_int32(ends + 4 * index)
    if size > room - at:
        return False
    copy_bytes(target + at, start, size)
    store_int32(ends + 4 * index + 4, at + size)
    return True


@compiled("int64(int64, int64[::1], int64, int64, int64, int64, int64, int64[::1])")
def fill_headers(  # noqa: PLR0917 (kernels are called by position)
    rows: int,
    columns: Numbers,
    key_ends: int,
    keys: int,
    value_ends: int,
    values: int,
    values_valid: int,
    result: Numbers,
) -> int:
    """Copy the headers that `scan` found; set NULL_HEADER_VALUES of `result`.

    Returns CHANGED if the records differ from what `scan` read.
    """
    result[NULL_HEADER_VALUES] = 0
    for row in range(rows):
        position = load_int64(columns[HEADER_SOURCES] + 16 * row)
        limit = load_int64(columns[HEADER_SOURCES] + 16 * row + 8)
        first = load_int32(columns[HEADER_ENDS] + 4 * row)
        for index in range(first, load_int32(columns[HEADER_ENDS] + 4 * row + 4)):
            size, start, position = _skip_nullable(position, limit)
            room = result[HEADER_KEY_BYTES]
            if position == BAD or size < 0 or not _append(index, size, start, key_ends, keys, room):
                return CHANGED
            size, start, position = _skip_nullable(position, limit)
            room = result[HEADER_VALUE_BYTES]
            if position == BAD or not _append(index, max(size, 0), start, value_ends, values, room):
                return CHANGED
            if size < 0:
                _clear_bit(values_valid, index)
                result[NULL_HEADER_VALUES] += 1
    return OK


def warm_up() -> None:
    """Do nothing. Import this module and call this where compiling the kernel may take time.

    The first import on a machine compiles for some seconds; later ones load the cached code.
    """
