"""The contract of value formats: every input row is returned exactly once, as good or as bad.

`Decoded.good` has the input row of each output row, so that a caller can put the record's offset,
key and time beside the value's columns. Formats build `DecodedRun`s; `assemble` joins them and
checks the contract.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from neve.errors import InvalidError


@dataclass(frozen=True)
class BadValue:
    """An input row that cannot be a row of the table, and the reason."""

    row: int
    reason: str


@dataclass(frozen=True)
class Decoded:
    """The good rows with their input row numbers, the bad rows, and the fields left out.

    `unknown` has the fields of good rows that the schema lacks; a struct in it has only its new
    fields. Avro also reports columns there that must be wider, while the rows that need this are
    bad. `evolution(schema, unknown)` returns the change that the table needs; decode the values
    again with the evolved schema to get the complete rows.
    """

    rows: pa.RecordBatch
    good: pa.Int64Array
    bad: list[BadValue]
    unknown: pa.Schema | None = None


class ValueFormat(ABC):
    """Decodes record values to columns. Picklable: it is sent to the workers of a Spark job."""

    @abstractmethod
    def schema(self) -> pa.Schema | None:
        """Return the columns if they are known before the data."""

    @abstractmethod
    def infer(self, values: pa.BinaryArray) -> pa.Schema:
        """Infer the columns from a sample of values; unreadable values are ignored."""

    @abstractmethod
    def decode(self, values: pa.BinaryArray, schema: pa.Schema) -> Decoded:
        """Decode values to rows of `schema`. A null value is a good row of nulls."""

    def decode_each(
        self,
        values: pa.BinaryArray,  # noqa: ARG002 (used by overrides)
        schema: pa.Schema,  # noqa: ARG002
    ) -> Decoded | None:
        """Decode value by value; fields that `schema` lacks make a value bad.

        Returns None if the format does not support this.
        """
        return None


Rows = np.ndarray[tuple[int], np.dtype[np.int64]]
"""Input row numbers."""

NO_ROWS: Rows = np.zeros(0, np.int64)


@dataclass(frozen=True)
class DecodedRun:
    """The decoded part of the input. `good` has the input row number of each of `rows`."""

    rows: pa.StructArray
    good: Rows
    bad: list[BadValue] = field(default_factory=list)


def assemble(
    runs: Sequence[DecodedRun], schema: pa.Schema, count: int, unknown: pa.Schema | None = None
) -> Decoded:
    """Join runs, given in any order, to `count` good and bad rows, ordered by input row."""
    struct = pa.struct(list(schema))
    rows = [run.rows for run in runs if len(run.rows)]
    joined = pa.concat_arrays(rows) if len(rows) > 1 else rows[0] if rows else pa.array([], struct)
    good = pa.array(np.concatenate([NO_ROWS, *(run.good for run in runs)]))
    if any(first.good[-1] > then.good[0] for first, then in _neighbours(runs)):
        order = pc.sort_indices(good)
        joined, good = joined.take(order), good.take(order)
    bad = sorted((each for run in runs for each in run.bad), key=lambda each: each.row)
    # A wrong count would put values beside the wrong offsets.
    assert len(joined) == len(good)
    assert len(good) + len(bad) == count
    return Decoded(batch_of(joined, schema), good, bad, unknown)


def _neighbours(runs: Sequence[DecodedRun]) -> list[tuple[DecodedRun, DecodedRun]]:
    filled = [run for run in runs if len(run.good)]
    return list(itertools.pairwise(filled))


def batch_of(rows: pa.StructArray, schema: pa.Schema) -> pa.RecordBatch:
    """Return a struct's fields as columns; a null struct becomes a row of nulls."""
    if not len(schema):
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
    return pa.RecordBatch.from_arrays(rows.flatten(), schema=schema)


def nulls(count: int, schema: pa.Schema) -> pa.StructArray:
    return pa.nulls(count, pa.struct(list(schema)))


def no_column_for(names: Sequence[str]) -> str:
    """Return the reason why a value with these fields is bad."""
    return f"the table has no column for {', '.join(names)}, and cannot get one"


def check_optional(schema: pa.Schema) -> None:
    """Raise InvalidError for columns that cannot be null: a tombstone becomes a row of nulls."""
    required = [column.name for column in schema if not column.nullable]
    if required:
        raise InvalidError(
            f"columns {', '.join(required)} are required; a record without a value has nulls in "
            "all columns: make them optional"
        )


def offsets_of(values: pa.BinaryArray) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Return where each value begins in the array's data, and where the last one ends."""
    if not len(values):
        return np.zeros(1, np.int32)
    offsets = np.frombuffer(values.buffers()[1], np.int32)
    return offsets[values.offset : values.offset + len(values) + 1]


def decode_strictly(format_: ValueFormat, values: pa.BinaryArray, schema: pa.Schema) -> Decoded:
    """Decode like `format_.decode`, but a value with a field that `schema` lacks is bad."""
    decoded = format_.decode(values, schema)
    if decoded.unknown is None:
        return decoded
    each = format_.decode_each(values, schema)
    if each is not None:
        return each
    runs = list(_runs(format_, values, schema, 0))
    return assemble(runs, schema, len(values))


def _runs(
    format_: ValueFormat, values: pa.BinaryArray, schema: pa.Schema, first: int
) -> list[DecodedRun]:
    """Decode values, in halves down to single values while there are unknown fields.

    Some formats report unknown fields only for an array, not for each value.
    """
    decoded = format_.decode(values, schema)
    if decoded.unknown is None:
        bad = [BadValue(first + each.row, each.reason) for each in decoded.bad]
        good = np.asarray(decoded.good, np.int64) + first
        return [DecodedRun(decoded.rows.to_struct_array(), good, bad)]
    if len(values) == 1:
        reason = no_column_for(decoded.unknown.names)
        return [DecodedRun(nulls(0, schema), NO_ROWS, [BadValue(first, reason)])]
    middle = len(values) // 2
    return [
        *_runs(format_, values.slice(0, middle), schema, first),
        *_runs(format_, values.slice(middle), schema, first + middle),
    ]
