"""The format `json`: combines the kernel, the fast path and the reference decoder.

The kernel decodes flat objects one by one, and leaves values that it cannot decode with certainty.
The fast path takes these in whole runs, or all values if the schema is not flat. If it rejects a
run, the reference decoder takes the values that the prefilter suspects, and the fast path tries the
others again. If it rejects those too, they are split, and the reference decoder takes small parts.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from neve.lake.values.format_contract import (
    BadValue,
    Decoded,
    DecodedRun,
    Rows,
    ValueFormat,
    assemble,
    check_optional,
    nulls,
    offsets_of,
)
from neve.lake.values.json_fast import (
    FastJson,
    FastPathError,
    UnknownFieldError,
    fits_fast_path,
    number_timestamps,
)
from neve.lake.values.json_flat import FlatJson, is_flat
from neve.lake.values.json_prefilter import Prefilter
from neve.lake.values.json_reference import BadValueError, ReferenceJsonDecoder, parse
from neve.lake.values.json_shape import Shape
from neve.lake.values.types import plain_schema

RUN_ROWS_MAX = 65_536
RUN_BYTES_MAX = 16 * 1024 * 1024
"""Bounds the copy of the values that the fast path makes; a larger value is a run of its own."""

JUDGED_ROWS_MAX = 512
_PARTS = 8
_SAMPLED_VALUES_MAX = 20


@dataclass(frozen=True)
class JsonFormat(ValueFormat):
    """The format `json`. `columns` is the given schema; if it is None, the schema is inferred."""

    columns: pa.Schema | None = None

    def schema(self) -> pa.Schema | None:
        return self.columns

    def infer(self, values: pa.BinaryArray) -> pa.Schema:
        if self.columns is not None:
            return self.columns
        shape = Shape()
        for value in values:
            try:
                document = parse(value.as_py()) if value.is_valid else None
            except BadValueError:
                continue
            if isinstance(document, dict):
                shape.see(document)
        return _schema_of(shape) or pa.schema([])

    def decode(self, values: pa.BinaryArray, schema: pa.Schema) -> Decoded:
        check_optional(schema)
        filled, dense, runs = _without_nulls(values, schema)
        work = _Decoding(dense, schema)
        for first, end in _runs(dense, work.rows_max):
            runs += work.run(dense.slice(first, end - first), filled[first:end])
        return assemble(runs, schema, len(values), work.unknown())

    def decode_each(self, values: pa.BinaryArray, schema: pa.Schema) -> Decoded:
        check_optional(schema)
        filled, dense, runs = _without_nulls(values, schema)
        reference = ReferenceJsonDecoder(schema, strict=True)
        runs += [
            judged(reference, dense.slice(first, end - first), filled[first:end], schema)
            for first, end in _runs(dense, RUN_ROWS_MAX)
        ]
        return assemble(runs, schema, len(values))


@functools.lru_cache(maxsize=64)
def _flat_reader(schema: pa.Schema) -> FlatJson | None:
    return FlatJson(schema) if is_flat(schema) else None


class _Decoding:
    """The state of one call of `decode`. Methods take values together with their input rows."""

    def __init__(self, values: pa.BinaryArray, schema: pa.Schema) -> None:
        self._values = values
        self._schema = schema
        self._struct = pa.struct(list(schema))
        self._flat = _flat_reader(schema)
        self._expect_unknown = False
        if self._flat is None:
            _ = self._judge  # raises for columns that JSON cannot fill

    @functools.cached_property
    def _judge(self) -> ReferenceJsonDecoder:
        return ReferenceJsonDecoder(self._schema)

    @functools.cached_property
    def _fast(self) -> FastJson | None:
        if not fits_fast_path(self._struct):
            return None
        return FastJson(self._schema, _number_timestamps(self._values, self._struct))

    @functools.cached_property
    def _sieve(self) -> Prefilter:
        return Prefilter(self._struct)

    @property
    def rows_max(self) -> int:
        """The largest number of values in a run."""
        return RUN_ROWS_MAX if self._flat is None else min(RUN_ROWS_MAX, self._flat.rows_max)

    def run(self, values: pa.BinaryArray, rows: Rows) -> Iterator[DecodedRun]:
        if self._flat is not None:
            taken, places = self._flat.rows(values)
            yield DecodedRun(taken, rows[places])
            if len(places) == len(values):
                return
            left = np.ones(len(values), np.bool_)
            left[places] = False
            values, rows = values.filter(pa.array(left)), rows[left]
        yield from self._run_together(values, rows)

    def _run_together(
        self, values: pa.BinaryArray, rows: Rows, *, sieved: bool = False
    ) -> Iterator[DecodedRun]:
        try:
            yield DecodedRun(self._read(values), rows)
        except FastPathError:
            if self._fast is None or len(values) <= JUDGED_ROWS_MAX:
                yield self._judged(values, rows)
            elif not sieved:
                yield from self._run_sieved(values, rows)
            else:
                step = -(-len(values) // _PARTS)
                for part in range(0, len(values), step):
                    yield from self._run_together(
                        values.slice(part, step), rows[part : part + step], sieved=True
                    )

    def unknown(self) -> pa.Schema | None:
        """Return the fields that the schema lacks, as collected by the decoders that were used.

        The kernel collects none: it leaves values with such fields to the other decoders.
        """
        shape = Shape()
        if "_judge" in vars(self):
            shape.merge(self._judge.unknown)
        if "_fast" in vars(self) and self._fast is not None:
            shape.merge(self._fast.unknown)
        return _schema_of(shape)

    def _run_sieved(self, values: pa.BinaryArray, rows: Rows) -> Iterator[DecodedRun]:
        suspects = self._sieve.suspects(values)
        if suspects.any():
            yield self._judged(values.filter(pa.array(suspects)), rows[suspects])
        if not suspects.all():
            yield from self._run_together(
                values.filter(pa.array(~suspects)), rows[~suspects], sieved=True
            )

    def _read(self, values: pa.BinaryArray) -> pa.StructArray:
        if self._fast is None:
            raise FastPathError("not for this schema")
        if not self._expect_unknown:
            try:
                return self._fast.rows(values, unknown=False)
            except UnknownFieldError:
                self._expect_unknown = True
        return self._fast.rows(values, unknown=True)

    def _judged(self, values: pa.BinaryArray, rows: Rows) -> DecodedRun:
        return judged(self._judge, values, rows, self._schema)


def judged(
    reference: ReferenceJsonDecoder, values: pa.BinaryArray, rows: Rows, schema: pa.Schema
) -> DecodedRun:
    """Decode each value with the reference decoder."""
    decoded, good, bad = [], [], []
    for row, value in zip(rows.tolist(), values.to_pylist(), strict=True):
        try:
            decoded.append(reference.row(value))
            good.append(row)
        except BadValueError as error:
            bad.append(BadValue(row, str(error)))
    return DecodedRun(pa.array(decoded, pa.struct(list(schema))), np.array(good, np.int64), bad)


def _without_nulls(
    values: pa.BinaryArray, schema: pa.Schema
) -> tuple[Rows, pa.BinaryArray, list[DecodedRun]]:
    if values.null_count == 0 and len(values):
        return np.arange(len(values)), values, []
    empty = values.is_null().to_numpy(zero_copy_only=False)
    filled = np.flatnonzero(~empty)
    dense = values.drop_null() if len(filled) < len(values) else values
    return filled, dense, [DecodedRun(nulls(int(empty.sum()), schema), np.flatnonzero(empty))]


def _runs(values: pa.BinaryArray, rows_max: int) -> Iterator[tuple[int, int]]:
    """Yield (first, end) of runs of at most `rows_max` values and `RUN_BYTES_MAX` bytes."""
    offsets = offsets_of(values)
    first = 0
    while first < len(values):
        reach = int(np.searchsorted(offsets, int(offsets[first]) + RUN_BYTES_MAX, side="right")) - 1
        end = min(max(reach, first + 1), first + rows_max, len(values))
        yield first, end
        first = end


def _number_timestamps(values: pa.BinaryArray, struct: pa.StructType) -> frozenset[tuple[str, ...]]:
    """Guess from the first values which timestamps are sent as integers.

    Values for which the guess is wrong go to the reference decoder.
    """
    found: list[tuple[str, ...]] = []
    for value in values.slice(0, _SAMPLED_VALUES_MAX):
        try:
            found += number_timestamps(parse(value.as_py()), struct)
        except BadValueError:
            continue
    return frozenset(found)


def _schema_of(shape: Shape) -> pa.Schema | None:
    type_ = shape.type()
    return None if type_ is None else plain_schema(pa.schema(list(type_)))
