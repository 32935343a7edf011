"""Dates and timestamps outside Python's range: before year 1 or after year 9999.

A producer that writes microseconds instead of milliseconds makes records of the year 55840, and
Arrow formats such a timestamp wrongly.
"""

from __future__ import annotations

from datetime import date, timedelta

import pyarrow as pa
import pyarrow.compute as pc

_DAY_US = 86_400_000_000
_CYCLE_DAYS, _CYCLE_YEARS = 146_097, 400
"""The period of the Gregorian calendar."""
_DAYS = (-719_162, 2_932_896)
"""Python's first and last day, counted from 1970."""
_BEGIN = date(1970, 1, 1)


def is_out_of_range(column: pa.Array) -> bool:
    """Return True if a column of dates or timestamps has a value outside Python's range."""
    first, last = _bounds(column)
    return first is not None and (first < _DAYS[0] or last > _DAYS[1])


def _bounds(column: pa.Array) -> tuple[int | None, int]:
    whole = pc.min_max(_counted(column)).as_py()
    if whole["min"] is None:
        return None, 0
    each = 1 if pa.types.is_date(column.type) else _DAY_US
    return whole["min"] // each, whole["max"] // each


def _counted(column: pa.Array) -> pa.Array:
    """Return days or microseconds since 1970."""
    if pa.types.is_date(column.type):
        return column.cast(pa.date32(), safe=False).cast(pa.int32())
    return column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())


def texts_of(column: pa.Array, between: str, zone: str) -> list[str | None]:
    """Format dates and timestamps, with `between` before the time and `zone` at the end."""
    days = pa.types.is_date(column.type)
    behind = zone if not days and column.type.tz else ""
    return [
        None if count is None else (_day(count) if days else _moment(count, between) + behind)
        for count in _counted(column).to_pylist()
    ]


def _day(days: int) -> str:
    cycles, within = divmod(days, _CYCLE_DAYS)
    near = _BEGIN + timedelta(days=within)
    return f"{near.year + cycles * _CYCLE_YEARS:04d}-{near:%m-%d}"


def _moment(microseconds: int, between: str) -> str:
    days, rest = divmod(microseconds, _DAY_US)
    seconds, micros = divmod(rest, 1_000_000)
    minutes, second = divmod(seconds, 60)
    clock = f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"
    fraction = f".{micros:06d}".rstrip("0") if micros else ""
    return f"{_day(days)}{between}{clock}{fraction}"


def out_of_range_as_text(column: pa.Array) -> pa.Array:
    """Convert columns with values outside Python's range to text, at any depth."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return (
            pa.array(texts_of(column, "T", "Z"), pa.string()) if is_out_of_range(column) else column
        )
    if pa.types.is_struct(kind):
        fields = [out_of_range_as_text(column.field(at)) for at in range(kind.num_fields)]
        named = [pa.field(kind.field(at).name, each.type) for at, each in enumerate(fields)]
        return pa.StructArray.from_arrays(fields, fields=named, mask=column.is_null())
    if pa.types.is_list(kind):
        return _list_of(column, out_of_range_as_text(column.flatten()))
    if pa.types.is_map(kind):
        pairs = out_of_range_as_text(
            column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        )
        keys, items = pairs.values.field(0), pairs.values.field(1)
        return pa.MapArray.from_arrays(pairs.offsets, keys, items, mask=column.is_null())
    return column


def _list_of(column: pa.Array, values: pa.Array) -> pa.Array:
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_pylist()
    offsets = [0]
    for length in lengths:
        offsets.append(offsets[-1] + length)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, mask=column.is_null())
