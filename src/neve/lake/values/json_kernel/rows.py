"""The kernel itself: `scan` reads values into cells, `copy_texts` then moves the strings together.

A cell is eight bytes for each column and row: the number itself, the bits of a double, or where a
string lies. Rows that are not taken leave no trace: the next one is written over them.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from neve.lake.values.json_kernel.moments import (
    NO_MOMENT,
    date_of,
    moment_of,
    moment_of_millis,
)
from neve.lake.values.json_kernel.numbers import read_double, read_integer
from neve.lake.values.json_kernel.texts import (
    BAD,
    QUOTE,
    copy_unescaped,
    end_of_text,
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

# The columns of `fields`, one row a column of the table: its kind, its name's address and size,
# the first eight bytes of the name and its closing quote as a number, and the mask of those that
# there are, the addresses of its cells and of its validity (a byte each), and the row that last had
# it.
KIND, NAME, NAME_BYTES, NAME_WORD, NAME_MASK, CELLS, VALID, SEEN_IN = range(8)
FIELDS = 8

WORD_BYTES = 8
PROBES_MAX = 64
"""Names that one is compared with. A value whose fields come in no order is not taken."""

_OPEN, _CLOSE, _COLON, _COMMA = 0x7B, 0x7D, 0x3A, 0x2C
_TRUE, _ALSE, _NULL = 0x65757274, 0x65736C61, 0x6C6C756E
_INT32_MIN, _INT32_MAX = -(2**31), 2**31 - 1
_FLOAT_MAX = float(np.finfo(np.float32).max)

# Where a string lies: 31 bits each for its start and its size, and whether it has escapes.
_SIZE_SHIFT, _ESCAPED_SHIFT, _HALF = 31, 62, 2**31 - 1


@inlined
def _past_blanks(at: int, end: int) -> int:
    while at < end:
        byte = load_byte(at)
        if byte not in (0x20, 0x0A, 0x0D, 0x09):
            return at
        at += 1
    return at


@inlined
def _is_name(at: int, end: int, fields: Numbers, column: int) -> bool:
    """Whether this column's name and its closing quote stand here."""
    size = fields[column, NAME_BYTES]
    if end - at <= size:
        return False
    place = 0
    if end - at >= WORD_BYTES:
        if load_int64(at) & fields[column, NAME_MASK] != fields[column, NAME_WORD]:
            return False
        if size < WORD_BYTES:
            return True
        place = WORD_BYTES
    name = fields[column, NAME]
    while place < size:
        if load_byte(at + place) != load_byte(name + place):
            return False
        place += 1
    return bool(load_byte(at + size) == QUOTE)


@inlined
def _column_of(at: int, end: int, fields: Numbers, guess: int) -> int:
    """The column of the name that begins here, looked for from `guess` on; BAD where it is none."""
    count = len(fields)
    for probe in range(min(count, PROBES_MAX)):
        column = guess + probe
        if column >= count:
            column -= count
        if _is_name(at, end, fields, column):
            return column
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
def _value(at: int, end: int, fields: Numbers, column: int, row: int, data: int) -> int:  # noqa: PLR0917
    """Read a value into its cell; the address behind it, or BAD."""
    if at >= end:
        return BAD
    cell = fields[column, CELLS] + 8 * row
    if end - at >= 4 and load_int32(at) == _NULL:
        store_byte(fields[column, VALID] + row, 0)
        store_int64(cell, 0)
        return at + 4
    store_byte(fields[column, VALID] + row, 1)
    kind = fields[column, KIND]
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
def _members(at: int, end: int, fields: Numbers, source: int, row: int, data: int) -> int:  # noqa: PLR0917
    """Read the members of an object up to its closing brace; the address behind it, or BAD."""
    guess = 0
    while at < end:
        if load_byte(at) != QUOTE:
            return BAD
        column = _column_of(at + 1, end, fields, guess)
        if column == BAD or fields[column, SEEN_IN] == source:
            return BAD
        fields[column, SEEN_IN] = source
        guess = column + 1
        at = _past_blanks(at + fields[column, NAME_BYTES] + 2, end)
        if at >= end or load_byte(at) != _COLON:
            return BAD
        at = _value(_past_blanks(at + 1, end), end, fields, column, row, data)
        if at == BAD:
            return BAD
        at = _past_blanks(at, end)
        if at >= end:
            return BAD
        if load_byte(at) == _CLOSE:
            return at + 1
        if load_byte(at) != _COMMA:
            return BAD
        at = _past_blanks(at + 1, end)
    return BAD


@inlined
def _object(at: int, end: int, fields: Numbers, source: int, row: int, data: int) -> bool:  # noqa: PLR0917
    """Whether this is an object that could be taken, and nothing beside it."""
    at = _past_blanks(at, end)
    if at >= end or load_byte(at) != _OPEN:
        return False
    at = _past_blanks(at + 1, end)
    if at < end and load_byte(at) == _CLOSE:
        at += 1
    else:
        at = _members(at, end, fields, source, row, data)
    return at != BAD and _past_blanks(at, end) == end


@compiled("int64(int64, int64, int64, int64[:,::1], int64[::1])")
def scan(data: int, ends: int, values: int, fields: Numbers, taken: Numbers) -> int:
    """Read the values between the `ends` behind `data`; `taken` gets the numbers of those taken.

    Cells and validity have room for all of them; SEEN_IN comes as -1. Names have no quote,
    backslash or control character in them, and stand in memory as UTF-8.
    """
    row = 0
    for source in range(values):
        start = data + load_int32(ends + 4 * source)
        end = data + load_int32(ends + 4 * source + 4)
        if _object(start, end, fields, source, row, data):
            for column in range(len(fields)):
                if fields[column, SEEN_IN] != source:
                    store_byte(fields[column, VALID] + row, 0)
                    store_int64(fields[column, CELLS] + 8 * row, 0)
            taken[row] = source
            row += 1
    return row


@compiled("int64(int64, int64, int64)")
def text_bytes(cells: int, valid: int, rows: int) -> int:
    """How much room the strings of these cells need at most."""
    size = 0
    for row in range(rows):
        if load_byte(valid + row):
            size += (load_int64(cells + 8 * row) >> _SIZE_SHIFT) & _HALF
    return size


@compiled("void(int64, int64, int64, int64, int64, int64)")
def copy_texts(data: int, cells: int, valid: int, rows: int, ends: int, target: int) -> None:  # noqa: PLR0917
    """Put the strings one behind the other, and where each ends into `ends`."""
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
