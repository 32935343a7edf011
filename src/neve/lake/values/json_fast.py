"""Many JSON values at once through pyarrow's reader, taken only where it cannot be wrong.

Each value becomes a line `{"v":…}`. pyarrow's reader refuses raw control characters in strings, so
no object can go on past the end of its line: what closes the line and opens the next would have to
stand inside an object without a comma. Every line is thus at least one row, and as many rows as
lines are one row each. A second `v` or another name beside it is an error or a column too many. So
a value that ends early, brings two objects or newlines of its own can never shift its neighbours.

The reader accepts more than the reference decoder (bad UTF-8, NaN, NUL, other forms of dates). Each
is checked here, and raises `FastPathError`: the reference decoder must decide.
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


class FastPathError(Exception):
    """These values are not for the fast path."""


class UnknownFieldError(FastPathError):
    """They have fields that the schema lacks, and may be fine otherwise."""


class FastJson:
    """Reads values for one schema. `numbers` are the timestamps that come as integers."""

    def __init__(self, schema: pa.Schema, numbers: frozenset[Path] = frozenset()) -> None:
        self.unknown = Shape()
        self._target = pa.struct(list(schema))
        self._numbers = numbers
        self._read_as = pa.schema([("v", _read_type(self._target, (), numbers))])

    def rows(self, values: pa.BinaryArray, *, unknown: bool) -> pa.StructArray:
        """All the values' rows, in order. With `unknown`, unknown fields are gathered."""
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
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise FastPathError(str(error)) from None
        if unknown:
            found = surplus(read.type, self._read_as.field(0).type)
            if found is not None:
                self.unknown.see_type(found, len(values))
        return rows

    def _read(self, values: pa.BinaryArray, unexpected: str) -> pa.Table:
        opened, closed, nothing = pa.scalar(b'{"v":'), pa.scalar(b"}\n"), pa.scalar(b"")
        lines = pc.binary_join_element_wise(opened, values, closed, nothing)
        data = lines.buffers()[2]
        # One block: where a block ends, the reader would look for newlines of its own.
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
    """pyarrow's reader knows no maps, and an object without fields is not for Arrow."""
    if pa.types.is_struct(type_):
        return type_.num_fields > 0 and all(fits_fast_path(each.type) for each in type_)
    if is_list(type_):
        return fits_fast_path(type_.value_type)
    return not pa.types.is_map(type_)


def number_timestamps(document: object, type_: pa.DataType, path: Path = ()) -> list[Path]:
    """The timestamps that a document, as a sample of its like, gives as integers."""
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
    """The type to ask the reader for, where it is not the column's own."""
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
    # Its own reading of dates takes numbers, that of floats rounds otherwise than the reference.
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
    """Unknown fields may be nested without limit, and types that deep crash the process."""
    opened = pc.add(pc.count_substring(values, "["), pc.count_substring(values, "{"))
    if (pc.max(opened).as_py() or 0) > DEPTH_MAX:
        raise FastPathError("perhaps nested too deep")


def _refuse_infinite(array: pa.Array) -> None:
    """NaN and the infinities are no JSON, and numbers past a double's range become infinite."""
    if pa.types.is_struct(array.type):
        for each in array.flatten():
            _refuse_infinite(each)
    elif is_list(array.type):
        _refuse_infinite(array.values)
    elif pa.types.is_floating(array.type) and pc.any(pc.invert(pc.is_finite(array))).as_py():
        raise FastPathError("a number that is not finite")
