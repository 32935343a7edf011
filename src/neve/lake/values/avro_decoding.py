"""Decodes many Avro values of one schema: pyruhvro for speed, fastavro as the reference.

pyruhvro's rows are used only if serializing them again gives exactly the bytes of every value. This
rules out trailing bytes, truncated numbers and shifted rows. Otherwise the run is split, and the
reference decoder decodes small parts value by value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from neve.lake.values.avro_columns import with_logical_types
from neve.lake.values.avro_reference import ReferenceAvroDecoder
from neve.lake.values.avro_schema import AvroColumns
from neve.lake.values.format_contract import NO_ROWS, BadValue, DecodedRun, Rows
from neve.lake.values.json_reference import BadValueError
from neve.lake.values.types import is_list

RUN_ROWS_MAX = 65_536
JUDGED_ROWS_MAX = 256
_PARTS = 8


class _NotFastError(Exception):
    """pyruhvro's rows cannot be used; the reference decoder must decide."""


class AvroDecoder:
    """Decodes values to runs with rows of type `columns.columns`."""

    def __init__(self, columns: AvroColumns) -> None:
        self.columns = columns
        self._judge = ReferenceAvroDecoder(columns.judged)

    def runs(self, values: pa.BinaryArray, rows: Rows) -> Iterator[DecodedRun]:
        for first in range(0, len(values), RUN_ROWS_MAX):
            end = first + RUN_ROWS_MAX
            yield from self._run(values.slice(first, RUN_ROWS_MAX), rows[first:end])

    def _run(self, values: pa.BinaryArray, rows: Rows) -> Iterator[DecodedRun]:
        try:
            yield DecodedRun(self._fast(values), rows)
        except _NotFastError:
            if self.columns.fast is None or len(values) <= JUDGED_ROWS_MAX:
                yield from self._judged(values, rows)
                return
            step = -(-len(values) // _PARTS)
            for part in range(0, len(values), step):
                yield from self._run(values.slice(part, step), rows[part : part + step])

    def _fast(self, values: pa.BinaryArray) -> pa.StructArray:
        if self.columns.fast is None:
            raise _NotFastError("not for this schema")
        import pyruhvro

        schema = self.columns.fast
        try:
            batch = pyruhvro.deserialize_array(values.to_pylist(), schema)
            again = pyruhvro.serialize_record_batch(batch, schema, 1)
        except BaseException as error:
            # A panic of the library does not derive from Exception; it means "cannot decode".
            if isinstance(error, Exception) or type(error).__name__ == "PanicException":
                raise _NotFastError(str(error)) from None
            raise
        if len(again) != 1 or not again[0].equals(values):
            raise _NotFastError("other bytes when written again")
        stored = batch.to_struct_array()
        try:
            _refuse_keys_twice(stored)
            return with_logical_types(stored, self.columns)
        except pa.ArrowInvalid as error:
            raise _NotFastError(str(error)) from None

    def _judged(self, values: pa.BinaryArray, rows: Rows) -> Iterator[DecodedRun]:
        records: list[Any] = []
        good: list[int] = []
        bad: list[BadValue] = []
        for row, value in zip(rows.tolist(), values.to_pylist(), strict=True):
            try:
                records.append(self._judge.record(value))
                good.append(row)
            except BadValueError as error:
                bad.append(BadValue(row, str(error)))
        try:
            yield DecodedRun(self._stored(records), np.array(good, np.int64), bad)
        except (pa.ArrowInvalid, OverflowError):
            yield from map(self._single, records, good)
            yield DecodedRun(self._stored([]), NO_ROWS, bad)

    def _single(self, record: Any, row: int) -> DecodedRun:
        """Convert one record of several that could not be converted together."""
        try:
            return DecodedRun(self._stored([record]), np.array([row], np.int64))
        except (pa.ArrowInvalid, OverflowError) as error:
            return DecodedRun(self._stored([]), NO_ROWS, [BadValue(row, str(error))])

    def _stored(self, records: list[Any]) -> pa.StructArray:
        return with_logical_types(pa.array(records, self.columns.stored), self.columns)


def _refuse_keys_twice(array: pa.Array) -> None:
    """Raise ArrowInvalid if a map has a key twice.

    pyruhvro returns such entries and writes them again, so comparing the bytes does not find them.
    """
    if pa.types.is_struct(array.type):
        for each in array.flatten():
            _refuse_keys_twice(each)
    elif is_list(array.type):
        _refuse_keys_twice(array.values)
    elif pa.types.is_map(array.type) and len(array):
        _refuse_keys_twice(array.items)
        entries = pa.table({"row": _row_of_each_entry(array), "key": array.keys})
        distinct = entries.group_by(["row", "key"]).aggregate([])
        if distinct.num_rows != entries.num_rows:
            raise pa.ArrowInvalid("a key stands twice in a map")


def _row_of_each_entry(array: pa.MapArray) -> pa.Array:
    rows = np.repeat(np.arange(len(array)), np.diff(array.offsets.to_numpy()))
    if len(rows) != len(array.keys):
        raise pa.ArrowInvalid("entries that belong to no row")
    return pa.array(rows)
