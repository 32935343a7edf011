"""Decodes many JSON values at once with pyarrow's reader, if the result is certain to be right.

Each value becomes a line `{"v":…}`. A value that ends early, or contains two objects or newlines,
must not shift the rows of its neighbours:

- No object continues on the next line. pyarrow's reader rejects raw control characters in strings,
  and outside of a string the `}` of a line and the `{"v":` of the next would be two objects without
  a comma between them. So each line gives at least one row, and if the number of rows is the number
  of lines, each line gave exactly one.
- A second `v`, or another name beside it, is an error or an additional column.

The reader accepts more than the reference decoder (bad UTF-8, NaN, NUL, other forms of dates). All
of these are checked here and raise `FastPathError`; the reference decoder then decides.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from neve.lake.values.evolution import Path
from neve.lake.values.format_contract import offsets_of
from neve.lake.values.json_reference import DEPTH_MAX
from neve.lake.values.json_shape import Shape
from neve.lake.values.nested_cast import cast_nested, surplus
from neve.lake.values.times import MICROSECONDS_MAX, MICROSECONDS_MIN
from neve.lake.values.types import TIMESTAMP, is_list

_DATE_MIN, _DATE_MAX = MICROSECONDS_MIN // 86_400_000_000, MICROSECONDS_MAX // 86_400_000_000
_INTEGERS_END = 2.0**63
"""The double nearest to each integer past 64 bits is at least this far from 0."""


class FastPathError(Exception):
    """The fast path cannot decode these values; the reference decoder must decide."""


class UnknownFieldError(FastPathError):
    """The values have fields that the schema lacks; they may be valid otherwise."""


class FastJson:
    """Reads values for one schema. `numbers` has the paths of timestamps that are integers."""

    def __init__(self, schema: pa.Schema, numbers: frozenset[Path] = frozenset()) -> None:
        self.unknown = Shape()
        self._target = pa.struct(list(schema))
        self._numbers = numbers
        self._read_as = pa.schema([("v", _read_type(self._target, (), numbers))])

    def rows(self, values: pa.BinaryArray, *, unknown: bool) -> pa.StructArray:
        """Return the rows of all values, in order. Raises FastPathError if it cannot decode one.

        With `unknown`, fields that the schema lacks are added to `self.unknown`; without it, they
        raise UnknownFieldError.
        """
        _refuse_odd_bytes(values)
        if unknown:
            _refuse_depth(values)
        table = self._read(values, "infer" if unknown else "error")
        if table.num_rows != len(values) or table.column_names != ["v"]:
            raise FastPathError("as many rows as values were expected")
        read = _one_array(table.column(0))
        try:
            read.validate(full=True)
            _refuse_infinite(read)
            rows = cast_nested(read, self._target, self._leaf)
            found = surplus(read.type, self._read_as.field(0).type) if unknown else None
            if found is not None:
                cast_nested(read, found, _certain)
                self.unknown.see_type(found, len(values))
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise FastPathError(str(error)) from None
        return rows

    def _read(self, values: pa.BinaryArray, unexpected: str) -> pa.Table:
        opened, closed, nothing = pa.scalar(b'{"v":'), pa.scalar(b"}\n"), pa.scalar(b"")
        lines = pc.binary_join_element_wise(opened, values, closed, nothing)
        data = lines.buffers()[2]
        # A single block: the reader would end a block at any newline, also at one inside a value.
        read = pj.ReadOptions(use_threads=False, block_size=data.size + 1)
        parse = pj.ParseOptions(explicit_schema=self._read_as, unexpected_field_behavior=unexpected)
        try:
            return pj.read_json(pa.BufferReader(data), read_options=read, parse_options=parse)
        except pa.ArrowException as error:
            if "unexpected field" in str(error):
                raise UnknownFieldError(str(error)) from None
            raise FastPathError(str(error)) from None
        except UnicodeDecodeError as error:
            raise FastPathError(str(error)) from None

    def _leaf(self, array: pa.Array, target: pa.DataType, path: Path) -> pa.Array:
        if target == TIMESTAMP:
            return _timestamps(array, number=path in self._numbers)
        if target == pa.date32():
            days = array.cast(target)
            _refuse_outside(days.view(pa.int32()), _DATE_MIN, _DATE_MAX)
            return days
        if target == pa.float32():
            narrow = array.cast(target)
            _refuse_infinite(narrow)
            return narrow
        if array.type != target:
            raise FastPathError(f"read as {array.type}")
        return array


def fits_fast_path(type_: pa.DataType) -> bool:
    """Return True if pyarrow's reader supports the type: no maps, no structs without fields."""
    if pa.types.is_struct(type_):
        return type_.num_fields > 0 and all(fits_fast_path(each.type) for each in type_)
    if is_list(type_):
        return fits_fast_path(type_.value_type)
    return not pa.types.is_map(type_)


def number_timestamps(document: object, type_: pa.DataType, path: Path = ()) -> list[Path]:
    """Return the paths of the timestamps that are integers in a sample document."""
    if pa.types.is_struct(type_) and isinstance(document, dict):
        return [
            found
            for each in type_
            for found in number_timestamps(document.get(each.name), each.type, (*path, each.name))
        ]
    if is_list(type_) and isinstance(document, list) and document:
        return number_timestamps(document[0], type_.value_type, (*path, "[]"))
    number = type_ == TIMESTAMP and isinstance(document, int)
    return [path] if number else []


def _read_type(type_: pa.DataType, path: Path, numbers: frozenset[Path]) -> pa.DataType:
    """Return the type to request from pyarrow's reader for a column."""
    if pa.types.is_struct(type_):
        return pa.struct(
            [
                pa.field(each.name, _read_type(each.type, (*path, each.name), numbers))
                for each in type_
            ]
        )
    if is_list(type_):
        return pa.list_(_read_type(type_.value_type, (*path, "[]"), numbers))
    if type_ == TIMESTAMP:
        return pa.int64() if path in numbers else TIMESTAMP
    # The reader would accept numbers as dates, and round floats differently than the reference.
    return {pa.date32(): pa.string(), pa.float32(): pa.float64()}.get(type_, type_)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _timestamps(array: pa.Array, *, number: bool) -> pa.Array:
    if not number:
        _refuse_outside(array.view(pa.int64()), MICROSECONDS_MIN, MICROSECONDS_MAX)
        return array
    _refuse_outside(array, MICROSECONDS_MIN // 1000, MICROSECONDS_MAX // 1000)
    return pc.multiply(array, pa.scalar(1000, pa.int64())).view(TIMESTAMP)


def _refuse_outside(array: pa.Array, least: int, most: int) -> None:
    found = pc.min_max(array)
    if found["min"].is_valid and (found["min"].as_py() < least or found["max"].as_py() > most):
        raise FastPathError("a date or time outside the years 1 to 9999")


def _certain(array: pa.Array, type_: pa.DataType, _path: Path) -> pa.Array:
    """Return the array of an unknown field. Raises FastPathError if its type is not certain.

    The reader infers double both for fractions and for integers past 64 bits, which need a decimal.
    """
    if pa.types.is_floating(type_):
        large = pc.greater_equal(pc.abs(array), _INTEGERS_END)
        if pc.any(large).as_py() and not pc.any(pc.not_equal(pc.floor(array), array)).as_py():
            raise FastPathError("perhaps integers past 64 bits")
    return array


def _refuse_odd_bytes(values: pa.BinaryArray) -> None:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        raise FastPathError("not UTF-8") from None
    offsets = offsets_of(values)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    if not data.all():
        raise FastPathError("a NUL byte")


def _refuse_depth(values: pa.BinaryArray) -> None:
    """Raise FastPathError if a value may be nested too deep.

    The nesting of unknown fields is not limited, and very deep inferred types crash the process.
    """
    opened = pc.add(pc.count_substring(values, "["), pc.count_substring(values, "{"))
    if (pc.max(opened).as_py() or 0) > DEPTH_MAX:
        raise FastPathError("perhaps nested too deep")


def _refuse_infinite(array: pa.Array) -> None:
    """Raise FastPathError for NaN and infinities.

    They are not valid JSON, and the reader returns infinity for numbers outside a double's range.
    """
    if pa.types.is_struct(array.type):
        for each in array.flatten():
            _refuse_infinite(each)
    elif is_list(array.type):
        _refuse_infinite(array.values)
    elif pa.types.is_floating(array.type) and pc.any(pc.invert(pc.is_finite(array))).as_py():
        raise FastPathError("a number that is not finite")
