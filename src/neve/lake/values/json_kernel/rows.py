"""The kernel: `scan` reads values into cells, then `copy_texts` copies the strings to one buffer.

A cell is eight bytes for one column and row: an integer, the bits of a double, or the position of a
string. A value that is not taken can leave cells behind in its row; the next value overwrites them.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from neve.lake.values.json_kernel.numbers import read_double, read_integer
from neve.lake.values.json_kernel.strings import (
    BAD,
    QUOTE,
    copy_unescaped,
    end_of_text,
)
from neve.lake.values.json_kernel.timestamps import (
    NO_MOMENT,
    date_of,
    moment_of,
    moment_of_millis,
)
from neve.records.native import (
    compiled,
    copy_bytes,
    inlined,
    load_byte,
    load_int32,
    load_int64,
    store_byte,
    store_double,
    store_int32,
    store_int64,
)

Numbers: TypeAlias = NDArray[np.int64]

BOOLEAN, INT32, INT64, FLOAT, DOUBLE, TEXT, DATE, MOMENT = range(8)

# A field describes one column of the table in eight words:
#   KIND              one of the kinds above
#   NAME, NAME_BYTES  address and size of the name
#   NAME_WORD         the first eight bytes of the name with its closing quote, as a number
#   NAME_MASK         mask of the bytes that NAME_WORD uses
#   CELLS, VALID      addresses of the column's cells and of its validity, a byte per row
#   SEEN_IN           number of the last value that had this field, to detect duplicate names
# Fields are contiguous in memory, and functions refer to a field by its address.
KIND, NAME, NAME_BYTES, NAME_WORD, NAME_MASK, CELLS, VALID, SEEN_IN = range(8)
FIELD_WORDS = 8

WORD_BYTES = 8
FIELD_BYTES = FIELD_WORDS * WORD_BYTES
PROBES_MAX = 64
"""Fields that a name is compared with at most, from the one after the previous match on.

With more columns than that, a value whose fields are far out of order is not taken.
"""

_OPEN, _CLOSE, _COLON, _COMMA = 0x7B, 0x7D, 0x3A, 0x2C
_TRUE, _ALSE, _NULL = 0x65757274, 0x65736C61, 0x6C6C756E
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_FLOAT_MAX = float(np.finfo(np.float32).max)

# A string's cell has 31 bits for its start, 31 for its size, and one that is set for escapes.
_SIZE_SHIFT, _ESCAPED_SHIFT, _HALF = 31, 62, 2**31 - 1


@inlined
def _of(field: int, word: int) -> int:
    return int(load_int64(field + WORD_BYTES * word))


@inlined
def _past_blanks(at: int, end: int) -> int:
    while at < end:
        byte = load_byte(at)
        if byte > 0x20 or byte not in (0x20, 0x0A, 0x0D, 0x09):
            return at
        at += 1
    return at


@inlined
def _is_name(at: int, end: int, field: int) -> bool:
    """Return True if this field's name and a closing quote are at this address."""
    size = _of(field, NAME_BYTES)
    if end - at <= size:
        return False
    place = 0
    if end - at >= WORD_BYTES:
        if load_int64(at) & _of(field, NAME_MASK) != _of(field, NAME_WORD):
            return False
        if size < WORD_BYTES:
            return True
        place = WORD_BYTES
    name = _of(field, NAME)
    while place < size:
        if load_byte(at + place) != load_byte(name + place):
            return False
        place += 1
    return bool(load_byte(at + size) == QUOTE)


@inlined
def _field_of(at: int, end: int, fields: int, columns: int, guess: int) -> int:
    """Return the field whose name is at this address, or BAD. The search starts at `guess`."""
    past = fields + FIELD_BYTES * columns
    field = guess
    for _ in range(min(columns, PROBES_MAX)):
        if field >= past:
            field = fields
        if _is_name(at, end, field):
            return field
        field += FIELD_BYTES
    return BAD


@inlined
def _boolean(at: int, end: int, cell: int) -> int:
    if end - at >= 4 and load_int32(at) == _TRUE:
        store_int64(cell, 1)
        return at + 4
    if end - at >= 5 and load_byte(at) == 0x66 and load_int32(at + 1) == _ALSE:
        store_int64(cell, 0)
        return at + 5
    return BAD


@inlined
def _integer(at: int, end: int, cell: int, kind: int) -> int:
    value, at = read_integer(at, end)
    if kind == INT32 and (value < _INT32_MIN or value > _INT32_MAX):
        return BAD
    store_int64(cell, value)
    return at


@inlined
def _fraction(at: int, end: int, cell: int, kind: int) -> int:
    value, at = read_double(at, end)
    if kind == FLOAT and abs(value) > _FLOAT_MAX:
        return BAD
    store_double(cell, value)
    return at


@inlined
def _text(at: int, end: int, cell: int, data: int) -> int:
    if load_byte(at) != QUOTE:
        return BAD
    at += 1
    close, escaped = end_of_text(at, end)
    if close == BAD:
        return BAD
    place = (at - data) | (close - at) << _SIZE_SHIFT
    store_int64(cell, place | 1 << _ESCAPED_SHIFT if escaped else place)
    return close + 1


@inlined
def _moment(at: int, end: int, cell: int, kind: int) -> int:
    if load_byte(at) == QUOTE:
        at += 1
        close, _escaped = end_of_text(at, end)
        if close == BAD:
            return BAD
        value = date_of(at, close) if kind == DATE else moment_of(at, close)
        at = close + 1
    elif kind == DATE:
        return BAD
    else:
        millis, at = read_integer(at, end)
        value = moment_of_millis(millis)
    store_int64(cell, value)
    return at if value != NO_MOMENT else BAD


@inlined
def _put_null(field: int, row: int) -> None:
    store_byte(_of(field, VALID) + row, 0)
    store_int64(_of(field, CELLS) + 8 * row, 0)


@inlined
def _value(at: int, end: int, field: int, row: int, data: int) -> int:
    """Read a value into its cell. Returns the address after it, or BAD."""
    if at >= end:
        return BAD
    if end - at >= 4 and load_int32(at) == _NULL:
        _put_null(field, row)
        return at + 4
    cell = _of(field, CELLS) + 8 * row
    store_byte(_of(field, VALID) + row, 1)
    kind = _of(field, KIND)
    if kind == TEXT:
        return _text(at, end, cell, data)
    if kind in (INT32, INT64):
        return _integer(at, end, cell, kind)
    if kind in (DOUBLE, FLOAT):
        return _fraction(at, end, cell, kind)
    if kind == BOOLEAN:
        return _boolean(at, end, cell)
    return _moment(at, end, cell, kind)


@inlined
def _members(  # noqa: PLR0917 (kernels are called by position)
    at: int, end: int, fields: int, columns: int, source: int, row: int, data: int
) -> tuple[int, int]:
    """Read the members of an object; `at` is the address of its first name's quote.

    Returns the number of members, and the address after the closing brace or BAD.
    """
    members = 0
    guess = fields
    while at < end:
        if load_byte(at) != QUOTE:
            return 0, BAD
        field = _field_of(at + 1, end, fields, columns, guess)
        if field == BAD or _of(field, SEEN_IN) == source:
            return 0, BAD
        store_int64(field + WORD_BYTES * SEEN_IN, source)
        members += 1
        guess = field + FIELD_BYTES
        at = _past_blanks(at + _of(field, NAME_BYTES) + 2, end)
        if at >= end or load_byte(at) != _COLON:
            return 0, BAD
        at = _value(_past_blanks(at + 1, end), end, field, row, data)
        if at == BAD:
            return 0, BAD
        at = _past_blanks(at, end)
        if at >= end:
            return 0, BAD
        if load_byte(at) == _CLOSE:
            return members, at + 1
        if load_byte(at) != _COMMA:
            return 0, BAD
        at = _past_blanks(at + 1, end)
    return 0, BAD


@inlined
def _object(  # noqa: PLR0917
    at: int, end: int, fields: int, columns: int, source: int, row: int, data: int
) -> int:
    """Read a whole value. Returns the number of its members, or BAD if the value is not taken."""
    at = _past_blanks(at, end)
    if at >= end or load_byte(at) != _OPEN:
        return BAD
    at = _past_blanks(at + 1, end)
    if at < end and load_byte(at) == _CLOSE:
        members, at = 0, at + 1
    else:
        members, at = _members(at, end, fields, columns, source, row, data)
    return members if at != BAD and _past_blanks(at, end) == end else BAD


@compiled("int64(int64, int64, int64, int64, int64, int64[::1])")
def scan(data: int, ends: int, values: int, fields: int, columns: int, taken: Numbers) -> int:  # noqa: PLR0917
    """Read values into cells. Returns how many were taken, and writes their numbers to `taken`.

    `ends` is the address of `values + 1` int32 offsets from `data`, as in an Arrow array. The
    caller must provide cells and validity for all values, set SEEN_IN to -1, and give names as
    UTF-8 without quotes, backslashes and control characters.
    """
    row = 0
    for source in range(values):
        start = data + load_int32(ends + 4 * source)
        end = data + load_int32(ends + 4 * source + 4)
        members = _object(start, end, fields, columns, source, row, data)
        if members == BAD:
            continue
        if members < columns:
            for column in range(columns):
                field = fields + FIELD_BYTES * column
                if _of(field, SEEN_IN) != source:
                    _put_null(field, row)
        taken[row] = source
        row += 1
    return row


@compiled("int64(int64, int64, int64)")
def text_bytes(cells: int, valid: int, rows: int) -> int:
    """Return an upper bound on the bytes of these cells' strings without escapes."""
    size = 0
    for row in range(rows):
        if load_byte(valid + row):
            size += (load_int64(cells + 8 * row) >> _SIZE_SHIFT) & _HALF
    return size


@compiled("void(int64, int64, int64, int64, int64, int64)")
def copy_texts(data: int, cells: int, valid: int, rows: int, ends: int, target: int) -> None:  # noqa: PLR0917
    """Copy the strings to `target` without gaps, and write their int32 offsets to `ends`."""
    size = 0
    store_int32(ends, 0)
    for row in range(rows):
        if load_byte(valid + row):
            place = load_int64(cells + 8 * row)
            source = data + (place & _HALF)
            content = (place >> _SIZE_SHIFT) & _HALF
            if place >> _ESCAPED_SHIFT:
                size += copy_unescaped(source, content, target + size)
            else:
                copy_bytes(target + size, source, content)
                size += content
        store_int32(ends + 4 * row + 4, size)
